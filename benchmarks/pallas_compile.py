"""The Pallas kernel through libtpu's compiler, for chips that are not there: a table in Markdown.

    TPU_SKIP_MDS_QUERY=1 JAX_PLATFORMS=cpu python benchmarks/pallas_compile.py > benchmarks/results/DATE-pallas.md

Needs jax and libtpu, in the environment that ci/pallas.sh builds, with platforms/tpu on PYTHONPATH. A row is one
program: the step's keys and values written to their pages, which are donated, then attention over them. `alias` is what
the program updates in place; a copy of the pages would show in `temp`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from anychip_tpu.pallas.attention import padded_head_size, ragged_paged_attention

CHIPS = {"v5e": "v5e:2x2", "v6e": "v6e:2x2", "7x": "tpu7x:2x2x1"}
BLOCKS, BLOCK_SIZE, TABLE = 2048, 32, 64
MEBIBYTE = 2**20


class Form(NamedTuple):
    """What is compiled."""

    dtype: str
    head_dim: int
    heads: int
    kv_heads: int
    tokens: int
    rows: int
    window: int | None = None
    soft_cap: float | None = None


FORMS = (
    Form("bfloat16", 128, 32, 8, 32, 32),
    Form("bfloat16", 128, 32, 8, 512, 32),
    Form("bfloat16", 128, 32, 8, 512, 32, 4096, 50.0),
    Form("bfloat16", 64, 9, 3, 512, 32),
    Form("float32", 128, 8, 4, 32, 32),
    Form("float32", 64, 9, 3, 512, 32, 24, 5.0),
)


def step(
    form: Form, q: Any, k: Any, v: Any, k_pages: Any, v_pages: Any, at: Any, table: Any, starts: Any, seen: Any
) -> Any:
    """Write and attend: the attention's output, and the pages."""
    block, entry = at
    k_pages, v_pages = k_pages.at[:, block, entry].set(k), v_pages.at[:, block, entry].set(v)
    options = {"scale": form.head_dim**-0.5, "window": form.window, "soft_cap": form.soft_cap}
    return ragged_paged_attention(q, k_pages, v_pages, table, starts, seen, **options), k_pages, v_pages


def compiled(form: Form, topology: str) -> Any:
    """The program for a chip of `topology`."""
    sharding = SingleDeviceSharding(topologies.get_topology_desc(topology, "tpu").devices[0])

    def shaped(dtype: str, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype), sharding=sharding)

    width = padded_head_size(form.head_dim)
    entry = shaped(form.dtype, form.kv_heads, form.tokens, width)
    pages = shaped(form.dtype, form.kv_heads, BLOCKS, BLOCK_SIZE, width)
    q = shaped(form.dtype, form.tokens, form.heads, form.head_dim)
    integers = partial(shaped, "int32")
    where = (integers(form.tokens), integers(form.tokens))
    rest = (integers(form.rows, TABLE), integers(form.rows + 1), integers(form.rows))
    traced = jax.jit(partial(step, form), donate_argnums=(3, 4)).trace(q, entry, entry, pages, pages, where, *rest)
    return traced.lower(lowering_platforms=("tpu",)).compile()


def lines() -> Iterator[str]:
    """The table."""
    yield "# Ragged paged attention in Pallas, compiled ahead\n"
    yield f"jax {version('jax')}, libtpu {version('libtpu')}; no TPU: compiled, not run. A cache of {BLOCKS} blocks of"
    yield f"{BLOCK_SIZE} tokens, tables of {TABLE}. Sizes are MiB. `benchmarks/pallas_compile.py` writes this page.\n"
    yield "| chip | dtype | heads | head size | tokens / rows | window, cap | seconds | code | temp | alias | pages |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for chip, topology in CHIPS.items():
        for form in FORMS:
            begun = time.perf_counter()
            memory = compiled(form, topology).memory_analysis()
            seconds = time.perf_counter() - begun
            size = (
                2
                * form.kv_heads
                * BLOCKS
                * BLOCK_SIZE
                * padded_head_size(form.head_dim)
                * jnp.dtype(form.dtype).itemsize
            )
            parts = (memory.generated_code_size_in_bytes, memory.temp_size_in_bytes, memory.alias_size_in_bytes, size)
            sizes = " | ".join(f"{part / MEBIBYTE:.2f}" for part in parts)
            heads, extras = f"{form.heads}/{form.kv_heads}", f"{form.window or ''}, {form.soft_cap or ''}".strip(", ")
            shape = f"{form.head_dim} | {form.tokens} / {form.rows}"
            yield f"| {chip} | {form.dtype} | {heads} | {shape} | {extras} | {seconds:.1f} | {sizes} |"


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)

"""What the shared kernels become on Intel GPUs that are not there: steps of models compiled, by Triton and by `ocloc`.

    python benchmarks/xpu_targets.py [TARGET ..] > TABLE

Tensors are fake and launches do nothing, so each step of a model costs what its kernels take to compile. Needs
triton-xpu 3.3 and Intel's offline compiler; ci/xpu.sh builds such an environment. Registers are what the native code is
given: 128, and 256 for what spills with fewer, as Triton's driver does. Seconds are those of `ocloc`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import triton
from tests.platforms.xpu.fake_gpu import TARGETS, compiled, use
from tests.platforms.xpu.steps import started, steps
from torch._subclasses.fake_tensor import FakeTensorMode

LARGE: Mapping[str, Any] = {
    "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 1,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 8192,
}  # fmt: skip
SMALL: Mapping[str, Any] = {
    **LARGE, "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
}  # fmt: skip
EXPERTS: Mapping[str, Any] = {
    **SMALL, "model_type": "qwen3_moe", "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4,
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
MODELS: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...] = (
    (LARGE, {}),
    ({**SMALL, "head_dim": 64}, {}),
    ({**SMALL, "head_dim": 256}, {}),
    (EXPERTS, {}),
)
"""Configs, and options of an engine: an 8B model, small ones with other heads, experts."""
CODED: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...] = (
    (SMALL, {"quantization": "int4"}),
    (SMALL, {"quantization": "int8", "kv_cache_dtype": "int8"}),
)
"""The same for chips that keep quantized weights."""
HEAD = """# The shared kernels on Intel GPUs that are not there

Written by `benchmarks/xpu_targets.py`: kernels that steps of models launch, through Triton {} to SPIR-V and through
Debian 12's `ocloc` to native code. `pvc` is the Data Center GPU Max, `dg2` is Arc's A series. Seconds are those of
`ocloc`. Of several variants the worst is shown. What spills with 128 registers is given 256, as Triton's driver does.
Nothing here ran on a GPU.
"""
MORE_REGISTERS = "-cl-intel-256-GRF-per-thread"
WORKERS = 4
LONGEST = 600
"""Seconds that one kernel may take."""


@dataclass(frozen=True)
class Native:
    """One variant of a program in a chip's own code."""

    seconds: float
    registers: int
    spilled: int
    lanes: int
    matrix: bool
    shared: int


def kernels(target: str, folder: Path) -> Iterator[tuple[str, Any]]:
    """(program, variant) of all that the models launch."""
    platform = use(target, folder)
    for config, options in (*MODELS, *(CODED if platform.capabilities.weight_formats else ())):
        with FakeTensorMode(allow_non_fake_inputs=True):
            steps(started(platform, dict(config), **options))
    platform.chip = replace(platform.chip, processors=1)  # so that the tiles of long prompts are taken
    with FakeTensorMode(allow_non_fake_inputs=True):
        steps(started(platform, dict(LARGE)))
    yield from compiled()


def native(target: str, made: tuple[str, Any]) -> Native:
    """Compile a program's variant to the target's code; with more registers where it would spill."""
    with tempfile.TemporaryDirectory() as folder:
        found = _native(target, made[1], Path(folder))
    print(target, made[0], found, file=sys.stderr, flush=True)
    return found


def _native(target: str, kernel: Any, folder: Path) -> Native:
    (folder / "kernel.spv").write_bytes(kernel.asm["spv"])
    begin = time.perf_counter()
    log = _ocloc(target, folder, "")
    if spilled(log):
        log = _ocloc(target, folder, MORE_REGISTERS)
    (binary,) = folder.glob("kernel*.bin")
    text = binary.read_bytes().partition(b".ze_info")[0].decode("latin1")
    seconds = time.perf_counter() - begin
    return Native(
        seconds, _number(text, "grf_count"), spilled(log), _number(text, "simd_size"), "has_dpas:        true" in text,
        kernel.metadata.shared,
    )  # fmt: skip


def spilled(log: str) -> int:
    """Registers that went to memory, as `ocloc` warns."""
    found = re.search(r"spilled around (\d+)", log)
    return int(found[1]) if found else 0


def _ocloc(target: str, folder: Path, options: str) -> str:
    for old in folder.glob("kernel*.bin"):
        old.unlink()
    command = ["ocloc", "compile", "--format", "zebin", "-exclude_ir", "-spirv_input", "-file", "kernel.spv"]
    command += ["-device", target, "-options", options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONGEST, check=True)
    return done.stdout + done.stderr


def _number(text: str, name: str) -> int:
    found = re.search(rf"{name}: +(\d+)", text)
    assert found, name
    return int(found[1])


def row(name: str, target: str, variants: list[Native]) -> str:
    """A line of the table: the worst of all variants."""
    cells = (
        f"`{name}`", target, len(variants), f"{sum(found.seconds for found in variants):.1f}",
        "/".join(sorted({str(found.lanes) for found in variants})), max(found.registers for found in variants),
        max(found.spilled for found in variants), max(found.shared for found in variants),
        "yes" if all(found.matrix for found in variants) else "some" if any(found.matrix for found in variants) else "",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the table."""
    print(HEAD.format(triton.__version__))
    print("| kernel | target | variants | s | lanes | registers | spilled | shared bytes | matrix instructions |")
    print("|---|---|---|---|---|---|---|---|---|")
    for target in sys.argv[1:] or list(TARGETS):
        found: dict[str, list[Native]] = defaultdict(list)
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
            made = list(kernels(target, Path(folder)))
            for (program, _), variant in zip(made, pool.map(partial(native, target), made), strict=True):
                found[program].append(variant)
        for program, variants in sorted(found.items()):
            print(row(program, target, variants))


if __name__ == "__main__":
    main()

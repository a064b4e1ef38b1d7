"""Every kernel in Triton compiled for every target, on a machine that needs none of them.

`python benchmarks/triton_targets.py [TARGET ..]` writes a table as Markdown: of each kernel how many variants real
models take, the seconds they took to compile, and the worst variant's registers, spills and shared memory. With
`--variants PATTERN` it prints each variant of the kernels whose name holds the pattern. Needs Triton 3.7. What lies in
Triton's cache (TRITON_CACHE_DIR) has no seconds.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import triton
from tests.triton.fake_device import SHARED, TARGETS, Compiled, compiled, use
from tests.triton.launches import (
    HEAD_SIZES,
    attend,
    attend_float32,
    caches,
    choose,
    decode_weights,
    edit,
    matrix_instructions,
    mix,
    multiply,
)


def compile_all(target: str, head_sizes: list[int]) -> Iterator[Compiled]:
    """Each variant of each kernel."""
    use(target)
    for dim in head_sizes:
        attend(target, dim)
    attend_float32(target, 128)
    for cache_type in caches(target):
        attend(target, 128, cache_type)
    for launch in (multiply, mix, decode_weights, choose, edit):
        launch(target)
    yield from compiled()


def main() -> None:
    """See the module's description."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--variants", help="print each variant of kernels whose name holds this")
    parser.add_argument("--heads", nargs="*", type=int, default=list(HEAD_SIZES), help="sizes of heads")
    arguments = parser.parse_args()
    seconds: dict[str, float] = {}

    def listen(metadata: Any, times: Any, cache_hit: bool, **rest: Any) -> None:
        if not cache_hit:
            seconds[metadata["hash"]] = times.total / 1e6

    triton.knobs.compilation.listener = listen
    print("| kernel | target | variants | s | registers | spilled | shared bytes | matrix instructions |")
    print("|---|---|---|---|---|---|---|---|")
    for target in arguments.targets:
        kernels: dict[str, list[Compiled]] = defaultdict(list)
        for found in compile_all(target, arguments.heads):
            kernels[found.name].append(found)
            if arguments.variants is not None and arguments.variants in found.name:
                print(
                    found.name,
                    found.registers,
                    found.spilled,
                    found.shared,
                    matrix_instructions(found.text),
                    found.launch,
                )
        for name, variants in sorted(kernels.items()):
            print(row(name, target, variants, seconds))


def row(name: str, target: str, variants: list[Compiled], seconds: dict[str, float]) -> str:
    """A line of the table."""
    taken = [seconds[found.identity] for found in variants if found.identity in seconds]
    used = sorted({each for found in variants for each in matrix_instructions(found.text)})
    assert all(found.shared <= SHARED[target] for found in variants), "a launch would not fit"
    cells = (
        f"`{name}`", target, len(variants), f"{sum(taken):.1f}" if taken else "",
        max(found.registers for found in variants), max(found.spilled for found in variants),
        max(found.shared for found in variants), ", ".join(f"`{each}`" for each in used),
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()

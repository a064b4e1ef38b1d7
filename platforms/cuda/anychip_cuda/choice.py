"""Which library attends long prompts: of those that can, the one that is faster with a model's heads."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import torch

from anychip.ops.op import OpSpec
from anychip.ops.shapes import dtype_of
from anychip_cuda.cudnn import Cudnn, cudnn_attends
from anychip_cuda.flash import PACKAGES, Flash, load
from anychip_cuda.libraries import Keys, Library, Prompts

TRIAL = (8192,)
"""Tokens of the prompts that libraries are timed with: one as long as a step, as cuDNN plans 40 ms for each length."""
CALLS = 5
"""The fastest counts: the figure is kept, and whatever else runs while a model is loaded only makes calls slower."""

Timed = Callable[[Library, OpSpec], float]
"""Microseconds that a library takes for prompts of `TRIAL`; raises `RuntimeError` where it cannot."""


@dataclass(frozen=True, slots=True)
class Found:
    """A library that can be used on a GPU, or why it cannot."""

    name: str
    library: Library | None
    reason: str = ""

    @property
    def line(self) -> str:
        """For people."""
        return self.library.name if self.library is not None else f"{self.name} {self.reason}"


@dataclass(frozen=True, slots=True)
class Choice:
    """The library for one model, if there is one, and a sentence on it."""

    library: Library | None
    note: str


def find(device: torch.device) -> tuple[Found, ...]:
    """All that are known, the likeliest to be chosen first."""
    level = torch.cuda.get_device_capability(device)
    offers = [(package.distribution, load(package, level)) for package in PACKAGES]
    cudnn = Found("cuDNN", Cudnn()) if cudnn_attends(device) else Found("cuDNN", None, "cannot attend on this GPU")
    return *(_found(name, offer) for name, offer in offers), cudnn


def _found(distribution: str, offer: Flash | str) -> Found:
    return Found(distribution, None, offer) if isinstance(offer, str) else Found(distribution, offer)


def choose(found: Sequence[Found], spec: OpSpec, timed: Timed) -> Choice:
    """The fastest of those that serve a model; nothing is timed where it is the only one."""
    able = [each.library for each in found if each.library is not None and not each.library.refuses(spec)]
    broken = [each.line for each in found if each.library is None and "not installed" not in each.reason]
    times: dict[Library, float] = {}
    for library in able if len(able) > 1 else ():
        try:
            times[library] = timed(library, spec)
        except RuntimeError as error:
            broken.append(f"{library.name} failed: {str(error).partition(chr(10))[0]}")
    best = min(times, key=lambda library: times[library]) if times else next(iter(able), None)
    chosen = "Triton" if best is None else best.name
    figures = ", ".join(
        f"{library.name} {times[library]:.0f} us" for library in sorted(times, key=lambda one: times[one])
    )
    tried = [f"{figures} for {' + '.join(map(str, TRIAL))} tokens"] if figures else []
    return Choice(best, "; ".join((f"long prompts: {chosen}", *tried, *broken)))


def remembered(timed: Timed, folder: Path, machine: str) -> Timed:
    """Time each library once for some heads on a machine, which may take the libraries half a second to be loaded."""

    def known(library: Library, spec: OpSpec) -> float:
        heads = (spec.dtype, spec.num_heads, spec.num_kv_heads, spec.head_dim)
        what = repr((machine, torch.__version__, library.name, heads, TRIAL))
        path = folder / hashlib.sha256(what.encode()).hexdigest()[:32]
        with contextlib.suppress(OSError, ValueError):
            return float(path.read_text(encoding="utf-8"))
        figure = timed(library, spec)
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{figure:.1f}", encoding="utf-8")
        return figure

    return known


@dataclass(frozen=True, slots=True)
class _Loose(Keys):
    """Some that are in no cache."""

    beside: tuple[torch.Tensor, torch.Tensor]

    def read(self, first: int, last: int, room: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Keys`; what lies behind the last are other numbers."""
        k, v = self.beside
        return k[first : first + room], v[first : first + room]


def timer(device: torch.device) -> Timed:
    """Time libraries on a GPU."""

    def timed(library: Library, spec: OpSpec) -> float:
        start = (0, *accumulate(TRIAL))
        there = torch.tensor(start, dtype=torch.int32, device=device)
        prompts = Prompts(0, 0, start, start, there, there, True, len({*TRIAL}) == 1)
        q, k, v = (
            torch.empty(start[-1], heads, spec.head_dim, dtype=dtype_of(spec.dtype), device=device).normal_()
            for heads in (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        )
        library.attend(q, _Loose((k, v)), prompts, spec.head_dim**-0.5)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(CALLS + 1)]
        marks[0].record()
        for mark in marks[1:]:
            library.attend(q, _Loose((k, v)), prompts, spec.head_dim**-0.5)
            mark.record()
        marks[-1].synchronize()
        return min(float(begin.elapsed_time(end)) for begin, end in pairwise(marks)) * 1000

    return timed

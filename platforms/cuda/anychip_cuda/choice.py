"""Choosing what attends long prompts: Triton's kernels, or the library that is fastest with a model's heads."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from anychip.ops.op import OpSpec
from anychip.triton.chip import Chip
from anychip_cuda.cudnn import Cudnn, cudnn_attends
from anychip_cuda.flash import PACKAGES, Flash, load
from anychip_cuda.libraries import Library

TRIAL = (8192,)
"""Tokens of each prompt of the timed step. It is one, as long as a step: cuDNN takes 40 ms to plan for each length."""
Timed = Callable[[Library | None, OpSpec], float]
"""Microseconds that a library takes for prompts of `TRIAL`, None being Triton; `RuntimeError` if it cannot run them."""


@dataclass(frozen=True, slots=True)
class Found:
    """A library that can be used on a GPU, or why it cannot."""

    name: str
    library: Library | None
    reason: str = ""

    @property
    def line(self) -> str:
        """How it is listed in notes."""
        return self.library.name if self.library is not None else f"{self.name} {self.reason}"


@dataclass(frozen=True, slots=True)
class Choice:
    """What attends long prompts of one model."""

    library: Library | None
    """None: Triton."""
    note: str
    """A line for the start-up log: what was chosen, the times measured, and what failed."""


def find(device: torch.device, chip: Chip) -> tuple[Found, ...]:
    """Every library known here, usable on `device` or not, the one most likely to be chosen first."""
    level = torch.cuda.get_device_capability(device)
    offers = [(package.distribution, load(package, level)) for package in PACKAGES]
    outdone = chip.tuning.grouped is not None
    able = cudnn_attends(device)
    cudnn = Found("cuDNN", Cudnn(outdone)) if able else Found("cuDNN", None, "cannot attend on this GPU")
    return *(_found(name, offer) for name, offer in offers), cudnn


def _found(distribution: str, offer: Flash | str) -> Found:
    return Found(distribution, None, offer) if isinstance(offer, str) else Found(distribution, offer)


def choose(found: Sequence[Found], spec: OpSpec, timed: Timed) -> Choice:
    """The fastest for a model among Triton's kernels and the libraries that do not refuse it.

    Nothing is timed where all of them refuse. One that raises `RuntimeError` is left out, which the note says.
    """
    able = [each.library for each in found if each.library is not None and not each.library.refuses(spec)]
    broken = [each.line for each in found if each.library is None and "not installed" not in each.reason]
    times: dict[Library | None, float] = {}
    for rival in (*able, None) if able else ():
        try:
            times[rival] = timed(rival, spec)
        except RuntimeError as error:
            broken.append(f"{_name(rival)} failed: {str(error).partition(chr(10))[0]}")
    ranked = sorted(times, key=lambda rival: times[rival])
    best = ranked[0] if ranked else None
    figures = ", ".join(f"{_name(rival)} {times[rival]:.0f} us" for rival in ranked)
    tried = [f"{figures} for {' + '.join(map(str, TRIAL))} tokens"] if figures else []
    return Choice(best, "; ".join((f"long prompts: {_name(best)}", *tried, *broken)))


def _name(rival: Library | None) -> str:
    return "Triton" if rival is None else rival.name


def remembered(timed: Timed, folder: Path, machine: str) -> Timed:
    """`timed`, but each figure is measured once and kept in a file of `folder`: a trial takes a second or two.

    `machine` stands for all that a figure depends on beside torch's version, the library's and the model's heads: the
    GPU, and the sources of Triton's programs. Where no file can be written, every start measures.
    """

    def known(library: Library | None, spec: OpSpec) -> float:
        heads = (spec.dtype, spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.block_size)
        what = repr((machine, torch.__version__, _name(library), heads, TRIAL))
        path = folder / hashlib.sha256(what.encode()).hexdigest()[:32]
        with contextlib.suppress(OSError, ValueError):
            return float(path.read_text(encoding="utf-8"))
        figure = timed(library, spec)
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{figure:.1f}", encoding="utf-8")
        return figure

    return known

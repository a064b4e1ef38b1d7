"""Asynchronous copies between host and device, through pinned memory, in the order of the current stream.

Torch caches pinned memory, and gives a piece out again only once the copies that used it are done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from anychip.plugin.contract import Pending

if TYPE_CHECKING:
    import numpy.typing as npt


def send(array: npt.NDArray[Any], device: torch.device, out: torch.Tensor | None = None) -> torch.Tensor:
    """Start copying an array to the device, into `out` if given; the array may be changed at once."""
    source = torch.from_numpy(array)
    pinned = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
    pinned.copy_(source)
    return pinned.to(device, non_blocking=True) if out is None else out.copy_(pinned, non_blocking=True)


class Fetched(Pending["npt.NDArray[Any]"]):
    """A tensor on its way to the host."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._pinned.copy_(tensor, non_blocking=True)
        self._done = torch.get_device_module(tensor.device).Event()
        self._done.record()

    def result(self) -> npt.NDArray[Any]:
        """Wait for the copy, and for nothing submitted after it. A device error is raised here."""
        self._done.synchronize()
        array: npt.NDArray[Any] = self._pinned.numpy()
        return array

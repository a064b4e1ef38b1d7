"""From the host to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    import numpy.typing as npt


class Send(Protocol):
    """Copies an array to the device, keeping none of it, and waits for nothing if the device can do without."""

    def __call__(self, array: npt.NDArray[Any], out: torch.Tensor | None = None) -> torch.Tensor:
        """A new tensor, or `out` filled: as many elements of the same type."""


def plain_send(device: torch.device) -> Send:
    """Copies that the device is waited for."""

    def send(array: npt.NDArray[Any], out: torch.Tensor | None = None) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return tensor.to(device, copy=True) if out is None else out.copy_(tensor)

    return send

"""Random numbers as a function of (seed, output position, purpose): no state, the same on every device."""

from __future__ import annotations

from enum import IntEnum

import torch

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_BITS = 24


class Purpose(IntEnum):
    """What a number is drawn for; two purposes at one position share nothing."""

    SAMPLE = 0
    ACCEPT_DRAFT = 1


_PURPOSES = 16


def stream_key(seed: int) -> int:
    """The key of a seed's stream, as a signed 64-bit number; neighbouring seeds give unrelated keys."""
    return _signed(_mix(_mix((seed & _MASK) + _GOLDEN & _MASK) + _GOLDEN & _MASK))


def uniforms(keys: torch.Tensor, positions: torch.Tensor, purpose: Purpose) -> torch.Tensor:
    """Two independent numbers in [0, 1) a row. keys [L] int64, positions [L] int -> [L, 2] float32.

    SplitMix64 (Steele, Lea and Flood, 2014) at counter `positions`, in 64-bit integers that wrap around.
    """
    counters = positions.long() * _PURPOSES + int(purpose)
    z = keys + counters * _signed(_GOLDEN)
    z = (z ^ _shift_right(z, 30)) * _signed(_FIRST)
    z = (z ^ _shift_right(z, 27)) * _signed(_SECOND)
    z = z ^ _shift_right(z, 31)
    parts = torch.bitwise_and(torch.stack([_shift(z, 40), _shift(z, 16)], dim=-1), 2**_BITS - 1)
    return parts.to(torch.float32).mul(2.0**-_BITS)


def _mix(z: int) -> int:
    z = (z ^ z >> 30) * _FIRST & _MASK
    z = (z ^ z >> 27) * _SECOND & _MASK
    return z ^ z >> 31


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _shift_right(z: torch.Tensor, bits: int) -> torch.Tensor:
    """The unsigned shift, which torch does not have for int64."""
    return torch.bitwise_and(_shift(z, bits), 2 ** (64 - bits) - 1)


def _shift(z: torch.Tensor, bits: int) -> torch.Tensor:
    """By name: torch-xla takes `>>` of a negative number for a division, which rounds towards 0."""
    return torch.bitwise_right_shift(z, bits)

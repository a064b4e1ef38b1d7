"""The random numbers of requests, which are part of the contract: a function of (seed, position), on any platform."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from anychip.engine.batch import Float32

_GOLDEN, _FIRST, _SECOND = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_BITS, _PURPOSES = 24, np.uint64(16)


def uniforms(seeds: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> Float32:
    """Two numbers in [0, 1) for each token to sample: of a row's seed [S] and its position [S] in the output. [S, 2].

    SplitMix64 (Steele, Lea and Flood, 2014) at a counter; `anychip.sample.random` computes the same on a device.
    """
    keys = _mix(_mix(seeds.astype(np.uint64) + _GOLDEN) + _GOLDEN)
    z = _mix(keys + positions.astype(np.uint64) * _PURPOSES * _GOLDEN)
    parts = np.stack([z >> np.uint64(40), z >> np.uint64(16)], axis=-1) & np.uint64(2**_BITS - 1)
    return parts.astype(np.float32) * np.float32(2.0**-_BITS)


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ z >> np.uint64(30)) * _FIRST
    z = (z ^ z >> np.uint64(27)) * _SECOND
    return z ^ z >> np.uint64(31)

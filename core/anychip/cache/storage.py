"""Types in which a cache keeps its entries."""

from __future__ import annotations

from dataclasses import replace

from anychip.plugin.contract import KVSpec, Plane

CODES = {"int8": "int8", "fp8": "float8_e4m3fn"}
"""Torch's type of the codes, by the name that users and platforms give a cache."""


def stored_as(spec: KVSpec, dtype: str) -> KVSpec:
    """The same keys and values in a smaller type, each head of each token with a scale of its own.

    `auto`, and a layer that keeps something else, stay as they are.
    """
    if dtype == "auto" or [plane.name for plane in spec.planes] != ["k", "v"]:
        return spec
    codes = (Plane(plane.name, plane.shape, CODES[dtype]) for plane in spec.planes)
    scales = (Plane(f"{plane.name}_scale", plane.shape[:1], "float32") for plane in spec.planes)
    return replace(spec, planes=(*codes, *scales))

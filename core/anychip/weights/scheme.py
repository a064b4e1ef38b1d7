"""Ways to quantize a model at load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from anychip.config import EngineConfig
from anychip.errors import UserError
from anychip.weights.role import Role

GROUP_SIZES = (32, 64, 128)
"""Numbers of inputs that may share a scale; 0 stands for a whole row."""
ACTIVATIONS: Mapping[Role, str] = MappingProxyType(
    {"inner": "group", "attention": "group", "attended": "token", "first": "group", "output": "none"}
)
"""How activations of integers may be rounded. What comes from a norm has the same few outliers at every token."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a float matrix is quantized; fields are those of `Quantization`."""

    format: str
    bits: int
    group_size: int
    zero_points: bool
    activation: str

    def of(self, role: Role) -> Scheme:
        """What becomes of a matrix.

        8-bit floats hurt some, and integers take no more memory: a weight then is off by some 0.8% of its row's
        deviation, not by 2.4% of itself. Where one scale a token would be coarse, inputs have more of them.
        """
        if self.bits == 4:
            return self
        activation = ACTIVATIONS[role] if self.format == "int8" or role != "inner" else self.activation
        return replace(self, format="int8" if role != "inner" else self.format, activation=activation)


def scheme_of(config: EngineConfig) -> Scheme | None:
    """What the quantization options ask for; None: nothing. Raises `UserError` for an option that has no effect."""
    group, name = config.quantization_group_size, config.quantization
    if group is not None and (name not in ("int4", "int8") or group not in GROUP_SIZES):
        raise UserError(
            f"--quantization-group-size {group} does not go with --quantization {name}.",
            f"int4 and int8 take {', '.join(map(str, GROUP_SIZES))}.",
        )
    if config.quantization_symmetric and name != "int4":
        raise UserError(
            f"--quantization-symmetric does not go with --quantization {name}.",
            "Leave it out: int8 and fp8 are symmetric, and without --quantization nothing is quantized.",
        )
    if name is None:
        return None
    if name == "int4":
        return Scheme("int4", 4, group or GROUP_SIZES[0], not config.quantization_symmetric, "none")
    return Scheme(name, 8, group or 0, False, "token")


def formats_of(name: str) -> tuple[str, ...]:
    """The formats that `--quantization` of a name makes, its own first."""
    return (name, "int8") if name == "fp8" else (name,)


def schemes(name: str) -> Iterator[Scheme]:
    """Every scheme of a format, all of which a kernel for it has to take."""
    if name == "int4":
        yield from (Scheme(name, 4, group, points, "none") for group in GROUP_SIZES for points in (True, False))
    elif name == "int8":
        yield from (Scheme(name, 8, group, False, "token") for group in (0, *GROUP_SIZES))
        yield from (Scheme(name, 8, 0, False, activation) for activation in ("group", "none"))
    elif name == "kquant":
        yield from (Scheme(name, bits, 16, points, "none") for bits in (4, 8) for points in (True, False))
        yield Scheme(name, 8, GROUP_SIZES[0], True, "none")
    elif name == "fp8":
        yield Scheme(name, 8, 0, False, "token")

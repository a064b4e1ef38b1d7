"""The tensor types of GGUF: name, values in a block, bytes of a block (ggml.h)."""

from __future__ import annotations

from typing import NamedTuple


class TensorType(NamedTuple):
    """One ggml tensor type; `block_bytes` 0 marks a type that is only known by name."""

    name: str
    block_values: int = 1
    block_bytes: int = 0


READABLE_TYPES: dict[int, TensorType] = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    30: TensorType("BF16", 1, 2),
}

_OTHER_NAMES = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}


def tensor_type(number: int) -> TensorType:
    """The type with this number in the file; an unknown one is named by its number."""
    return READABLE_TYPES.get(number) or TensorType(_OTHER_NAMES.get(number, f"type {number}"))

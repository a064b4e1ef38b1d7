"""What numbers become in 8 bits: floats with a scale a token, integers with several, or two of them for a number."""

from __future__ import annotations

from dataclasses import dataclass

import torch

GROUP = 128
"""Inputs of a token that share a scale where they become integers; 8-bit floats keep what is small beside outliers."""


@dataclass(frozen=True, slots=True)
class Coding:
    """What inputs become. With two `terms` they are sums of two integers, which loses no more than bfloat16 does."""

    codes: torch.dtype
    group: int = 0
    """Inputs of a token that share a scale; 0: all."""
    terms: int = 1

    @property
    def launch(self) -> dict[str, float | bool]:
        """Arguments of a launch that rounds."""
        return {**coding(self.codes), "GROUP": self.group, "TERMS": self.terms}


UNROUNDED: dict[str, float | bool] = {"LARGEST": 0, "WHOLE": False, "GROUP": 0, "TERMS": 1}
"""Arguments of a launch that could round, and does not."""


def coding(codes: torch.dtype | None) -> dict[str, float | bool]:
    """What a launch is told of codes of 8 bits: the largest, and whether they are integers; None: numbers stay."""
    if codes is None:
        return {"LARGEST": 0, "WHOLE": False}
    whole = not codes.is_floating_point
    return {"LARGEST": 127 if whole else torch.finfo(codes).max, "WHOLE": whole}

"""How the scheduler behaves, apart from sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """How the scheduler behaves, apart from sizes."""

    prefix_caching: bool = True
    by_priority: bool = False
    whole_prompts: bool = False
    ahead: int = 1
    """Steps under way whose tokens are still unknown when the next one samples."""

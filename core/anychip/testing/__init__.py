"""The conformance kit, for platforms in this repository and elsewhere alike; and the null platform.

A platform's whole test:

    from anychip.testing import PlatformSuite


    class TestMine(PlatformSuite):
        platform = "mine"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anychip.testing.suite import PlatformSuite as PlatformSuite

__all__ = ["PlatformSuite"]


def __getattr__(name: str) -> Any:
    """Import pytest only when the suite is asked for."""
    if name == "PlatformSuite":
        from anychip.testing.suite import PlatformSuite

        return PlatformSuite
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Every hook of anychip, in the order of a process's life. All run at start-up, none in the step loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from anychip.config import EngineConfig
    from anychip.plugin.spec import PlatformSpec

hookspec = pluggy.HookspecMarker("anychip")
hookimpl = pluggy.HookimplMarker("anychip")


@hookspec
def register_platforms(register: Callable[[PlatformSpec], None]) -> None:
    """Call register(PlatformSpec) once per platform."""


@hookspec
def register_models(register: Callable[[str, str], None]) -> None:
    """Call register(model_type, "module:Class") once per model family."""


@hookspec
def register_parsers(register: Callable[[str, str, str], None]) -> None:
    """Call register(kind, name, "module:Class"), kind being "tool" or "reasoning"."""


@hookspec
def configure(config: EngineConfig) -> EngineConfig | None:
    """Return a new config, or None to leave it as it is."""


@hookspec
def register_routes(app: Any, client: Any) -> None:
    """Add HTTP routes to the FastAPI `app`; `client` reaches the engine."""

"""The HTTP server of anychip: OpenAI's protocol over an engine.

The names load when they are used, so that the engine's process can start before the web framework is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anychip_api.app import create_app
    from anychip_api.options import ServerOptions
    from anychip_api.server import serve

_HOMES = {
    "ServerOptions": "anychip_api.options",
    "create_app": "anychip_api.app",
    "serve": "anychip_api.server",
}

__all__ = ["ServerOptions", "create_app", "serve"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)

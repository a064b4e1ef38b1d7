"""`anychip serve`."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anychip.cli.fields import engine_fields, server_fields
from anychip.cli.flags import Values, with_flags
from anychip.cli.loading import loading_bar
from anychip.config import EngineConfig, make_config
from anychip.engine.spawn import spawn_engine
from anychip.errors import UserError
from anychip.log import setup_logging

if TYPE_CHECKING:
    from anychip_api.app import Extension


@with_flags(server=server_fields(), engine=engine_fields())
def serve(
    model: Annotated[
        str | None, typer.Argument(help="A folder, a .gguf file, a Hugging Face id, or `demo`.", show_default=False)
    ] = None,
    *,
    server: Values,
    engine: Values,
) -> None:
    """Serve a model over OpenAI's protocol, until Ctrl-C or SIGTERM. Without a model it serves `demo`."""
    config = make_config({**engine, "model": _one_model(model, engine.get("model"))})
    setup_logging(config.log_level, config.log_format)
    process = spawn_engine(config)  # it loads its libraries while this process does
    from anychip_api.options import ServerOptions
    from anychip_api.server import serve as run_server

    with loading_bar() as bar:
        status = run_server(config, ServerOptions(**server), bar, [_plugin_routes(config)], process)
    _leave(status)


def _leave(status: int) -> None:
    """End at once where a thread still checks a grammar: native code that wakes while Python goes down may crash."""
    if any(thread.daemon for thread in threading.enumerate()):
        sys.stderr.flush()
        os._exit(status)
    if status:
        sys.exit(status)


def _one_model(argument: str | None, flag: str | None) -> str | None:
    if argument and flag and argument != flag:
        raise UserError(f"Two models were given: {argument} and --model {flag}.", "Give one.")
    return argument or flag


def _plugin_routes(config: EngineConfig) -> Extension:
    """An extension that lets each plugin add its routes."""

    def extend(app: Any, client: Any) -> None:
        from anychip.plugin.registry import Registry

        Registry(config.plugins).manager.hook.register_routes(app=app, client=client)

    return extend

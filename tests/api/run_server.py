"""Runs a server for the tests: `python run_server.py ENGINE_JSON SERVER_JSON`."""

from __future__ import annotations

import json
import sys

from anychip.config import make_config
from anychip.errors import UserError
from anychip.log import setup_logging
from anychip_api.options import ServerOptions
from anychip_api.server import serve


def main() -> int:
    engine, server = (json.loads(text) for text in sys.argv[1:])
    setup_logging("info", engine.get("log_format", "text"))
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in server.items()}
    try:
        return serve(make_config(engine), ServerOptions(**options))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

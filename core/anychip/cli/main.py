"""The command `anychip`. Each command imports what it needs when it runs, so that help is quick and brings no torch."""

from __future__ import annotations

import sys

from anychip.cli.report import ended


def main() -> None:
    """Run the command line of this process."""
    sys.exit(ended(_run))


def _run() -> None:
    from anychip.cli.app import make_app

    make_app(sys.argv[1:])()

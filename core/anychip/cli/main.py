"""The command `anychip`. Each command imports what it needs when it runs, so that help is quick and brings no torch."""

from __future__ import annotations

import sys

from anychip.cli.report import ended


def main() -> None:
    """Run the command line of this process."""
    sys.exit(ended(_run))


def _run() -> None:
    from anychip.cli.app import make_app
    from anychip.cli.elsewhere import check_flags

    check_flags(sys.argv[1:])
    make_app(sys.argv[1:])()

"""`python -m anychip` is the command `anychip`."""

from __future__ import annotations

from anychip.cli.main import main

if __name__ == "__main__":
    main()

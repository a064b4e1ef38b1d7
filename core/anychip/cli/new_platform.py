"""`anychip new-platform NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def new_platform(
    name: Annotated[str, typer.Argument(help="What `--device` will take: lower-case letters and digits.")],
    into: Annotated[Path, typer.Option(help="Folder to write the package's own folder into.")] = Path(),
) -> None:
    """Write the package of a new platform, which passes the conformance kit as it is."""
    from anychip.scaffold.platform_package import PlatformPackage

    package = PlatformPackage(name, into)
    for path in package.write():
        print(package.folder / path)
    print(
        f"""
This is a platform that serves on the host's processor so far. Next:

    cd {package.folder}
    pip install -e '.[test]'
    anychip conform {name}
    anychip serve demo --device {name}

Your chip comes in in anychip_{name}/platform.py. Choose a license before you publish."""
    )

"""The package of a new platform, written to a folder of its own.

Its files are in `files/`, with `@name@`, `@Name@` and a few others to be filled in. As generated it runs on the host's
processor and passes the conformance kit; a test generates one and runs the kit on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from anychip.errors import UserError
from anychip.plugin.contract import API_VERSION
from anychip.plugin.extras import platform_extras
from anychip.plugin.registry import BUILT_IN, Registry
from anychip.version import __version__

NAME = re.compile(r"[a-z][a-z0-9]{1,30}")
RESERVED = ("api", "auto")
"""`anychip_api` is the server's package; `--device auto` leaves the choice."""

FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    ".github/workflows/test.yml": "test.yml",
    "anychip_@name@/__init__.py": "init.py",
    "anychip_@name@/platform.py": "platform.py",
    "anychip_@name@/py.typed": "py.typed",
    "tests/test_conformance.py": "test_conformance.py",
}
"""Each file of the package, and its template."""


@dataclass(frozen=True, slots=True)
class PlatformPackage:
    """The package of the platform `name`, below the folder `parent`. Raises `UserError` for a name it cannot have."""

    name: str
    parent: Path

    def __post_init__(self) -> None:
        problem = _problem(self.name)
        if problem:
            raise UserError(
                f"{self.name!r} cannot be the name of a new platform: {problem}.",
                "Take lower-case letters and digits, a letter first, such as mychip.",
            )

    @property
    def folder(self) -> Path:
        """Where it is written."""
        return self.parent / f"anychip-{self.name}"

    def write(self) -> list[Path]:
        """Write every file; their paths within the folder. Raises `UserError` if it is there or cannot be made."""
        written = []
        try:
            self.folder.mkdir(parents=True)
            for path, template in FILES.items():
                target = self.folder / self._filled(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                text = files("anychip.scaffold").joinpath("files", f"{template}.template").read_text(encoding="utf-8")
                target.write_text(self._filled(text), encoding="utf-8")
                written.append(target.relative_to(self.folder))
        except FileExistsError:
            remedy = "Nothing was changed. Move it away, or choose another name."
            raise UserError(f"{self.folder} exists already.", remedy) from None
        except OSError as error:
            raise UserError(
                f"{self.folder} cannot be written: {error.strerror}.", "Choose another with --into."
            ) from None
        return written

    def _filled(self, text: str) -> str:
        values = {
            "@name@": self.name,
            "@Name@": self.name.capitalize(),
            "@version@": __version__,
            "@api_version@": str(API_VERSION),
        }
        for word, value in values.items():
            text = text.replace(word, value)
        return text


def _problem(name: str) -> str:
    """Why a platform cannot be called this, or nothing."""
    if not NAME.fullmatch(name):
        return "it also names a package, a module and a device"
    if name in RESERVED or name in BUILT_IN:
        return "anychip uses that word itself"
    if name in {extra.name for extra in platform_extras()} | Registry().installed:
        return "there is a platform of that name"
    return ""

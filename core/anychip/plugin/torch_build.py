"""What the installed PyTorch was built for, read from its version file: importing it takes seconds."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path


def built_for(name: str, folder: Path | None = None) -> bool:
    """Whether PyTorch was built with the vendor's library that its version file lists as `name`.

    `folder` is PyTorch's; by default that of the one which would be imported.
    """
    version = (folder or _torch_folder()) / "version.py"
    return version.is_file() and bool(re.search(rf"^{name}\b[^=]*=\s*['\"]", version.read_text(), re.MULTILINE))


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None, "anychip depends on torch"
    return Path(spec.origin).parent

"""Real distributions for tests: a module and its metadata in a folder on `sys.path`, found as an installed one is."""

import sys
import textwrap
from pathlib import Path


def install(folder: Path, name: str, source: str, version: str = "1.0") -> Path:
    """Write the distribution `name`, whose module is its entry point in the group `anychip`."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(textwrap.dedent(source))
    metadata = folder / f"{module}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(f"[anychip]\n{name.removeprefix('dummy-')} = {module}\n")
    return folder


def forget(folder: Path) -> None:
    """Drop the modules that were imported from a folder."""
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]

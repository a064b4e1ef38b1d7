"""The extras of the root distribution.

`anychip[cpu]` means `./platforms/cpu` inside a clone, and `anychip-cpu==<same version>` in a release, which
`ci/release.sh` builds with ANYCHIP_RELEASE=1.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ExtrasHook(MetadataHookInterface):
    """Fills `optional-dependencies` from the hook's table in pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Write one extra a platform, those of optional features, and `test`, which needs them all."""
        release = os.environ.get("ANYCHIP_RELEASE") == "1"
        extras = {name: [self._requirement(name, metadata["version"], release)] for name in self.config["platforms"]}
        features = self.config["features"]
        tests = [*self.config["test"], *(one for packages in features.values() for one in packages)]
        metadata["optional-dependencies"] = {**extras, **features, "test": tests}

    def _requirement(self, platform: str, version: str, release: bool) -> str:
        folder = Path(self.root) / "platforms" / platform
        if release or not (folder / "pyproject.toml").is_file():
            return f"anychip-{platform}=={version}"
        return f"anychip-{platform} @ {folder.as_uri()}"

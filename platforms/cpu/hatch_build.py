"""Tags a wheel with its platform when it carries prebuilt kernels; without them it is pure Python."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PrebuiltHook(BuildHookInterface[Any]):
    """Looks for libraries that `ci/build_kernels.sh` left in the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the wheel is packed; an editable install carries nothing."""
        if version == "editable" or not list(Path(self.root).glob("anychip_cpu/native/prebuilt/*.so")):
            return
        platform = self.config.get("platform") or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"

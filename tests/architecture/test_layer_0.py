"""Layer 0 loads without torch and transformers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import layers
from sources import ROOT, sources

LAYER_0 = [
    layers.module(source).removesuffix(".__init__")
    for source in sources(ROOT, ("core/anychip",), (".py",))
    if layers.in_layer_0(source)
]

PROBE = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted({"torch", "transformers"} & {*sys.modules}))
"""


def heavy_after(*names: str) -> str:
    """Which heavy libraries a fresh interpreter has loaded after importing some modules."""
    command = [sys.executable, "-c", PROBE, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_all_of_layer_0_loads_without_torch() -> None:
    assert heavy_after(*LAYER_0) == ""


@pytest.mark.parametrize("name", ["anychip", "anychip.config", "anychip.engine.scheduler", "anychip_api"])
def test_a_module_alone_loads_without_torch(name: str) -> None:
    assert heavy_after(name) == ""

"""The native library for tests: each variant that this processor runs, built once into the cache."""

from __future__ import annotations

import subprocess

import pytest

from anychip.config import make_config
from anychip_cpu.native.build import installed_torch
from anychip_cpu.native.compile import build, library_path, obstacle
from anychip_cpu.native.library import Library, load
from anychip_cpu.native.variants import supported_variants

VARIANTS = [variant.name for variant in supported_variants()]


def native_library(name: str) -> Library:
    """The variant, built if need be; skips the test where it cannot be."""
    if (reason := obstacle(installed_torch())) is not None:
        pytest.skip(reason)
    variant = next(variant for variant in supported_variants() if variant.name == name)
    path = library_path(make_config({}).cache_path / "native", variant, installed_torch())
    if not path.is_file():
        try:
            build(variant, installed_torch(), path)
        except subprocess.CalledProcessError as error:
            pytest.fail(error.stderr)
    return load(variant, path)

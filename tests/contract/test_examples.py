"""The examples use public names only, and stay small."""

from importlib import import_module
from pathlib import Path

import pytest

from contract_page import PUBLIC
from imports import imports
from sources import ROOT, sources

JAX = ROOT / "examples" / "jax-platform"
MAX_LINES = 600


def public_names():
    return {*PUBLIC, *(f"{module}.{name}" for module in PUBLIC for name in import_module(module).__all__)}


def own_imports():
    for source in sources(ROOT, ("examples",), (".py",)):
        for found in imports(source):
            if found.within("anychip"):
                yield f"{source.name}:{found.line}", found.module


def test_examples_import_public_names_only():
    found = dict(own_imports())
    assert len(found) >= 10
    assert {where: name for where, name in found.items() if name not in public_names()} == {}


def test_docs_say_which_names_are_public():
    text = (ROOT / "docs" / "contract.md").read_text()
    assert [module for module in PUBLIC if f"`{module}`" not in text] == []


def test_the_jax_platform_is_small():
    files = [*(JAX / "anychip_jax").glob("*.py"), JAX / "pyproject.toml"]
    lines = [line for path in files for line in Path(path).read_text().splitlines()]
    assert 100 < len(lines) < MAX_LINES


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_there(module):
    assert [name for name in import_module(module).__all__ if getattr(import_module(module), name, None) is None] == []

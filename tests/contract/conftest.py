"""Plugins that a test installs for itself."""

import sys

import pytest

from tests.contract.distributions import forget, install


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """`plugin(name, source)` installs a distribution for the length of a test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    yield lambda name, source, version="1.0": install(folder, name, source, version)
    forget(folder)

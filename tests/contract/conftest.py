"""Plugins that a test installs for itself."""

import sys
from pathlib import Path

import pytest
from tests.contract.distributions import forget, install
from tests.one_thread import one_thread

__all__ = ["one_thread"]


@pytest.fixture(scope="module", autouse=True)
def _forget_peak():
    """The host's memory counts what this process once needed as needed again; earlier tests are no reason for that."""
    Path("/proc/self/clear_refs").write_text("5")


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """`plugin(name, source)` installs a distribution for the length of a test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    yield lambda name, source, version="1.0": install(folder, name, source, version)
    forget(folder)

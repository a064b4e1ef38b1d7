"""Plugins that a test installs for itself."""

import sys
from pathlib import Path

import pytest
import torch
from tests.contract.distributions import forget, install


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Tensors here are tiny: more threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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

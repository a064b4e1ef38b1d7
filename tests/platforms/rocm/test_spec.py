"""What the package registers."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from anychip.config import make_config
from anychip.errors import UserError
from anychip.plugin.registry import Registry

POINT = EntryPoint("rocm", "anychip_rocm", "anychip")


def test_the_platform_is_found_through_its_entry_point() -> None:
    (found,) = (found for found in Registry(points=[POINT]).platforms if found.spec.name == "rocm")
    assert found.usable or found.probe.remedy


def test_asking_for_it_where_it_cannot_run_says_why() -> None:
    registry = Registry(points=[POINT])
    (found,) = (found for found in registry.platforms if found.spec.name == "rocm")
    if found.usable:
        pytest.skip("this machine has such a GPU")
    with pytest.raises(UserError, match=found.probe.reason):
        registry.choose("rocm").open(make_config({"device": "rocm"}))

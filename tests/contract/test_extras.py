"""Platforms that are not installed: names and chips come from the distribution, and the machine says which it has."""

import logging
import sys
from importlib.metadata import Distribution

import pytest

from anychip.config import make_config
from anychip.engine.engine import Engine
from anychip.plugin import pci_devices
from anychip.plugin.extras import Extra, platform_extras
from anychip.plugin.pci import DEVICES, PciDevice
from anychip.plugin.registry import Registry
from anychip.testing.tiny_model import write_tiny_model

METADATA = """Metadata-Version: 2.4
Name: anychip
Version: 0.1.0
Requires-Dist: numpy>=1.26
Provides-Extra: acme
Requires-Dist: anychip-acme==0.1.0 ; extra == 'acme'
Provides-Extra: bolt
Requires-Dist: anychip-bolt @ file:///a/clone/platforms/bolt ; extra == 'bolt'
Provides-Extra: plot
Requires-Dist: matplotlib>=3.8; extra == 'plot'
"""
CHIPS = """
[acme]
chip = "an Acme accelerator"
pci = ["abcd:*:0302*"]

[bolt]
chip = "a Bolt"
pci = ["beef:0001:*", "beef:0002:*"]
"""


@pytest.fixture
def distribution(tmp_path):
    """The metadata of an anychip with extras for two chips and for a feature."""
    folder = tmp_path / "anychip-0.1.0.dist-info"
    (folder / "extra_metadata").mkdir(parents=True)
    (folder / "METADATA").write_text(METADATA)
    (folder / "extra_metadata" / "chips.toml").write_text(CHIPS)
    return Distribution.at(folder)


def machine(root, *devices):
    """A root folder whose PCI bus has devices of (vendor, device, class)."""
    for number, names in enumerate(devices):
        device = root / DEVICES / f"0000:00:{number:02}.0"
        device.mkdir(parents=True)
        for file, value in zip(("vendor", "device", "class"), names, strict=True):
            (device / file).write_text(f"0x{value}\n")
    return root


def test_a_machine_with_none_of_the_chips_names_every_platform(distribution, tmp_path):
    root = machine(tmp_path, ("8086", "0d57", "060000"), ("abcd", "0001", "040300"))
    assert platform_extras(distribution, root) == (Extra("acme"), Extra("bolt"))
    assert platform_extras(distribution, tmp_path / "no-bus") == (Extra("acme"), Extra("bolt"))


def test_a_chip_that_is_there_is_named_first_with_what_to_install(distribution, tmp_path):
    root = machine(tmp_path, ("8086", "0d57", "060000"), ("beef", "0002", "120000"))
    first, second = platform_extras(distribution, root)
    assert (first.name, first.seen, second) == ("bolt", "a Bolt (beef:0002)", Extra("acme"))
    assert first.sentence == (
        "bolt is not installed. This machine has a Bolt (beef:0002). Install it with `pip install 'anychip[bolt]'`."
    )


def test_two_chips_of_one_machine_are_both_named(distribution, tmp_path):
    root = machine(tmp_path, ("abcd", "0007", "030200"), ("beef", "0001", "000000"))
    assert [extra.seen for extra in platform_extras(distribution, root)] == [
        "an Acme accelerator (abcd:0007)",
        "a Bolt (beef:0001)",
    ]


def test_a_device_that_cannot_be_read_is_passed_over(distribution, tmp_path):
    root = machine(tmp_path, ("beef", "0001", "120000"), ("8086", "0d57", "060000"))
    (root / DEVICES / "0000:00:00.0" / "class").unlink()
    assert list(pci_devices(root)) == [PciDevice("8086", "0d57", "060000")]
    assert [extra.seen for extra in platform_extras(distribution, root)] == ["", ""]


def test_an_installed_platform_is_not_missing_even_where_an_allow_list_leaves_it_out(plugin):
    plugin("dummy-bolt", "raise RuntimeError('must not be imported')")
    assert "bolt" in Registry(allowed=()).installed


def test_a_start_that_was_left_the_choice_tells_of_a_chip_that_nothing_here_runs_on(
    distribution, tmp_path, monkeypatch, caplog
):
    """The chip is whatever stands first on this machine's own bus."""
    first = next(pci_devices(), None)
    if first is None:
        pytest.skip("this machine has no PCI bus")
    vendor, number = first.vendor, first.device
    chips = tmp_path / "anychip-0.1.0.dist-info" / "extra_metadata" / "chips.toml"
    chips.write_text(f'[acme]\nchip = "an Acme"\npci = ["{vendor}:{number}:*"]\n')
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    options = {"model": str(write_tiny_model(tmp_path / "tiny")), "kv_cache_memory_bytes": 2**20, "threads": 1}
    for device, told in (("auto", True), ("reference", False)):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            Engine(make_config(options | {"device": device}), lambda what, done, total: None).runner.close()
        assert (f"This machine has an Acme ({vendor}:{number})." in caplog.text) == told


def test_a_distribution_without_the_table_still_names_its_extras(tmp_path):
    folder = tmp_path / "anychip-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    root = machine(tmp_path, ("beef", "0001", "120000"))
    assert platform_extras(Distribution.at(folder), root) == (Extra("acme"), Extra("bolt"))

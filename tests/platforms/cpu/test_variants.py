"""Which builds of the kernels a processor gets, and that those no machine here runs still compile."""

import shutil
import subprocess

import pytest

from anychip.errors import UserError
from anychip_cpu.native.build import build_chosen, installed_torch
from anychip_cpu.native.compile import command, find_compiler, obstacle
from anychip_cpu.native.variants import VARIANTS, supported_variants


def test_the_best_tested_variant_comes_first():
    everything = frozenset().union(*(variant.needs for variant in VARIANTS))
    names = [variant.name for variant in supported_variants(everything)]
    assert names == ["avx512_vnni_bf16", "avx512", "avx2", "amx"]
    assert [variant.name for variant in supported_variants(frozenset({"avx2", "fma", "f16c"}))] == ["avx2"]
    assert supported_variants(frozenset({"asimd"})) == ()


def test_variants_that_this_processor_lacks_compile(tmp_path):
    if (reason := obstacle(installed_torch())) is not None:
        pytest.skip(reason)
    compiler = find_compiler()
    for variant in set(VARIANTS) - set(supported_variants()):
        checked = [*command(compiler, variant, installed_torch(), tmp_path / "none"), "-fsyntax-only"]
        done = subprocess.run(checked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_building_by_name(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="no native kernels 'sse9'"):
        list(build_chosen(tmp_path, "sse9"))
    monkeypatch.setenv("PATH", "")
    assert shutil.which("g++") is None
    assert list(build_chosen(tmp_path, "avx2")) == [
        "no native kernels, as no C++ compiler is installed; torch's operators run"
    ]

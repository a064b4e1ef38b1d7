"""Which library attends long prompts: what each says of itself, and how one is chosen."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anychip.ops.op import OpSpec
from anychip_cuda.choice import Found, choose, remembered
from anychip_cuda.cudnn import Cudnn
from anychip_cuda.flash import PACKAGES, Flash, Package, load
from anychip_cuda.libraries import Library

HOPPER = (9, 0)
SPEC = OpSpec("bfloat16", 1024, 16, 8, 128, 1000)
FLASH = Flash(PACKAGES[0], "0.0.3", ("bfloat16",), 256)
CUDNN = Cudnn()
BOTH = (Found("fa3-fwd", FLASH), Found("flash-attn-3", None, "is not installed"), Found("cuDNN", CUDNN))


def never(library: Library | None, spec: OpSpec) -> float:
    raise AssertionError("there is nothing to time")


@pytest.mark.parametrize(("flash", "cudnn", "chosen"), [(376.0, 482.0, FLASH), (500.0, 482.0, CUDNN)])
def test_the_faster_one_is_chosen_and_the_note_says_why(flash: float, cudnn: float, chosen: Library) -> None:
    times = {FLASH: flash, CUDNN: cudnn, None: 900.0}
    choice = choose(BOTH, SPEC, lambda library, spec: times[library])
    assert choice.library is chosen
    assert choice.note.startswith(f"long prompts: {chosen.name}; ")
    assert f"{FLASH.name} {flash:.0f} us" in choice.note
    assert f"{CUDNN.name} {cudnn:.0f} us" in choice.note
    assert "flash-attn-3" not in choice.note


def test_a_figure_is_kept_for_one_machine_and_one_model_s_heads(tmp_path: Path) -> None:
    figures = iter((376.2, 482.0, 100.0, 90.0))

    def ask(machine: str, library: Library | None, spec: OpSpec) -> float:
        return remembered(lambda library, spec: next(figures), tmp_path / "new", machine)(library, spec)

    assert [ask("one", FLASH, SPEC) for _ in range(2)] == [376.2, 376.2]
    assert ask("one", CUDNN, SPEC) == 482.0
    assert ask("other", FLASH, SPEC) == 100.0
    assert ask("one", FLASH, OpSpec("bfloat16", 1024, 32, 8, 128, 1000)) == 90.0
    assert ask("one", FLASH, SPEC) == 376.2
    (tmp_path / "new").chmod(0o500)
    for path in (tmp_path / "new").iterdir():
        path.write_text("half a figu", encoding="utf-8")
    assert remembered(lambda library, spec: 5.0, tmp_path / "new", "one")(FLASH, SPEC) == 5.0


@pytest.mark.parametrize(("own", "chosen"), [(427.0, CUDNN), (400.0, None)])
def test_triton_s_kernels_are_timed_too(own: float, chosen: Library | None) -> None:
    choice = choose(BOTH[1:], SPEC, lambda library, spec: 410.0 if library else own)
    assert choice.library is chosen
    assert "Triton 4" in choice.note


def test_those_that_cannot_serve_a_model_are_not_timed() -> None:
    def timed(library: Library | None, spec: OpSpec) -> float:
        assert library is None or not library.refuses(spec)
        return 1.0 if library else 2.0

    half = OpSpec("float16", 1024, 16, 8, 128, 1000)
    assert choose(BOTH, half, timed).library is CUDNN  # this build of the other has no float16
    assert choose(BOTH, OpSpec("bfloat16", 1024, 16, 8, 256, 1000), timed).library is FLASH


def test_cudnn_is_left_out_where_triton_was_measured_to_be_faster() -> None:
    found, paged = (Found("cuDNN", Cudnn(outdone=True)),), replace(SPEC, block_size=64)
    assert choose(found, paged, never).library is None
    assert choose(found, replace(SPEC, block_size=16), lambda library, spec: 1.0 if library else 2.0).library


def test_without_any_it_is_triton() -> None:
    for spec in (OpSpec("float32", 64, 4, 1, 16, 100), OpSpec("bfloat16", 64, 4, 1, 16, 100, softcap=True)):
        choice = choose(BOTH, spec, never)
        assert (choice.library, choice.note) == (None, "long prompts: Triton")


def test_one_that_fails_is_named_and_left_out() -> None:
    def timed(library: Library | None, spec: OpSpec) -> float:
        if library is FLASH:
            raise RuntimeError("no kernel image is available\nfor this device")
        return 482.0 if library else 900.0

    choice = choose((*BOTH, Found("other", None, "1.0 cannot be used")), SPEC, timed)
    assert choice.library is CUDNN
    assert f"{FLASH.name} failed: no kernel image is available" in choice.note
    assert "other 1.0 cannot be used" in choice.note


def test_every_reason_to_refuse_a_model_is_given() -> None:
    spec = OpSpec("float32", 64, 4, 1, 20, 100, softcap=True, sinks=True)
    assert len(CUDNN.refuses(spec)) == len(FLASH.refuses(spec)) == 4
    sizes = (16, 20, 96, 100, 128, 136, 256, 264)
    specs = {size: OpSpec("bfloat16", 64, 4, 1, size, 100) for size in sizes}
    assert [size for size in sizes if not CUDNN.refuses(specs[size])] == [16, 96, 128]
    assert [size for size in sizes if not FLASH.refuses(specs[size])] == [16, 96, 128, 136, 256]


def test_they_travel_to_who_rehearses_with_them() -> None:
    assert pickle.loads(pickle.dumps((CUDNN, FLASH))) == (CUDNN, FLASH)


def test_a_missing_package_is_reported() -> None:
    assert (
        load(Package("anychip-has-no-such-package", "nowhere._C", "nowhere", "nowhere"), HOPPER) == "is not installed"
    )


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str, config: str) -> Package:
    """A package on the path, as pip would leave it there."""
    information = folder / f"{name}-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", encoding="utf-8")
    (folder / f"{name}_extension.py").write_text(code, encoding="utf-8")
    (folder / f"{name}_config.py").write_text(config, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return Package(name, f"{name}_extension", name, f"{name}_config")


CONFIG = "CONFIG = {'build_flags': {'FLASHATTENTION_DISABLE_FP16': True, 'FLASHATTENTION_DISABLE_HDIM256': True}}"
KNOWS = (
    "Tensor q, Tensor k, Tensor v, *, Tensor(a!)? out=None, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, "
    "int? max_seqlen_q=None, int? max_seqlen_k=None, float? softmax_scale=None, bool is_causal=False, "
    "int num_splits=0, bool? pack_gqa=None"
)


def operator(name: str, arguments: str) -> str:
    return f"import torch\ntorch.library.define('{name}::fwd', '({arguments}) -> Tensor')"


def test_a_package_that_cannot_be_loaded_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = install(tmp_path, monkeypatch, "flashbroken", "raise ImportError('undefined symbol: _ZN3c10')", CONFIG)
    said = f"1.2 cannot be used with torch {torch.__version__}: undefined symbol: _ZN3c10"
    assert load(broken, HOPPER) == said
    empty = install(tmp_path, monkeypatch, "flashempty", "", CONFIG)
    odd = install(tmp_path, monkeypatch, "flashodd", operator("flashodd", KNOWS), "CONFIG = {}")
    for package in (empty, odd):  # the host is not to fall with them
        assert str(load(package, HOPPER)).startswith(f"1.2 cannot be used with torch {torch.__version__}: ")


def test_a_package_whose_operator_is_another_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = install(tmp_path, monkeypatch, "flashold", operator("flashold", KNOWS.replace("pack_gqa", "pack")), CONFIG)
    assert load(old, HOPPER) == "1.2 is too old: it does not know pack_gqa"


def test_a_package_takes_what_it_was_built_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = install(tmp_path, monkeypatch, "flashfine", operator("flashfine", KNOWS), CONFIG)
    assert load(package, HOPPER) == Flash(package, "1.2", ("bfloat16",), 192)
    assert isinstance(load(package, (8, 0)), Flash)
    assert load(package, (10, 0)) == "1.2 is not made for compute capability 10.0"

"""Kernels compiled beside a start: what was is found, and whatever goes wrong there holds nobody up."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.triton.mode import require_triton

require_triton(interpreted=False)

from tests.triton.fake_device import use
from tests.triton.rehearsed import BERT, QWEN, work

from anychip.config import make_config
from anychip.log import logger
from anychip.triton.ahead.process import Helpers, mark, start_early, start_helpers
from anychip.triton.ahead.rehearsal import Rehearsal, rehearse
from anychip.triton.ahead.work import Work

LONG = 300
"""Seconds that no machine should need."""
PARENT = """
import sys, time
from anychip.triton.ahead.process import Helpers
from tests.triton.rehearsed import QWEN, work
helpers = Helpers("cuda", 1)
assert helpers.begin(work("sm_90", QWEN))
print(helpers._process.pid, flush=True)
time.sleep(600)
"""

OUTLINES = """
import sys
import triton
from tests.triton.rehearsed import EXPERTS, LLAMA, QWEN, work
from anychip.triton.ahead.absent import use_absent
from anychip.triton.ahead.outlines import Outlines
from anychip.triton.ahead.rehearsal import Rehearsal, rehearse

given = work("sm_90", eval(sys.argv[1]), **eval(sys.argv[2]))
use_absent(given.target)
launched = []
triton.knobs.runtime.jit_cache_hook = lambda key, fn, **_: launched.append((fn.name, str(key))) or True
def words():
    return rehearse(Rehearsal(given.platform), given.config, given.source)
with Outlines():
    for word in words():
        if word == "start" and not given.config.quantization:
            assert not {"torch._dynamo", "sympy"} & {*sys.modules}, "a start has to wait for these"
ours, launched = launched, []
assert len([*words()]) > 2
assert ours == launched
print(len({*ours}))
"""


@pytest.fixture(autouse=True)
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Triton's cache, empty."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "compiled"))
    return tmp_path / "compiled"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What is logged."""
    monkeypatch.setattr(logger, "propagate", True)
    caplog.set_level(logging.INFO, logger.name)
    return caplog


@contextmanager
def closing(helpers: Helpers | None) -> Iterator[Helpers]:
    """Ends them whatever happens."""
    assert helpers is not None
    try:
        yield helpers
    finally:
        helpers.close()


def small() -> Work:
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
    return work("sm_90", QWEN | sizes, max_num_seqs=8, max_model_len=512, max_num_batched_tokens=512)


def encoder() -> Work:
    return work("sm_90", BERT, task="embed", dtype="bfloat16")


def ends(process: subprocess.Popen[bytes]) -> int:
    return process.wait(LONG)


def test_what_was_compiled_is_found_on_the_disk(compiled: Path, tmp_path: Path) -> None:
    given, likely = small(), tmp_path / "likely"
    with closing(Helpers("cuda", 2, likely)) as helpers:
        assert helpers.begin(given)
        assert helpers.wait(LONG)
        assert ends(helpers._process) == 0
    assert given.marker.exists()
    assert likely.exists()
    before = {*os.listdir(compiled)}
    assert len(before) > 20
    use("sm_90")
    assert len([*rehearse(Rehearsal(given.platform), given.config, given.source)]) > 2
    assert {*os.listdir(compiled)} == before
    other = Rehearsal(replace(given.platform, chip=replace(given.platform.chip, overlap=False)))
    next(word for word in rehearse(other, given.config, given.source) if word == "start")
    assert {*os.listdir(compiled)} > before  # negative control: another chip's kernels are not there


@pytest.mark.parametrize(
    ("model", "options"), [("QWEN", {}), ("LLAMA", {"quantization": "fp8", "kv_cache_dtype": "fp8"}), ("EXPERTS", {})]
)
def test_tensors_are_outlined_as_torch_would(model: str, options: dict[str, str]) -> None:
    command = [sys.executable, "-c", OUTLINES, model, repr(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_a_failure_holds_nobody_up(said: pytest.LogCaptureFixture) -> None:
    with closing(Helpers("cuda", 1)) as helpers:
        assert helpers.begin(work("sm_90", QWEN | {"num_hidden_layers": "many"}))
        assert not helpers.wait(LONG)
    assert "UserError" in said.text
    assert "num_hidden_layers" in said.text


def test_where_nothing_can_be_kept_a_start_goes_on(
    compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "compiled"))
    given = encoder()
    with closing(Helpers("cuda", 2)) as helpers:
        assert helpers.begin(given)
        assert helpers.wait(LONG)
        assert ends(helpers._process) == 0
    assert "compiled ahead: 0 of" in said.text
    assert not given.marker.exists()


def test_one_that_died_before_it_was_told_is_replaced() -> None:
    early = Helpers("cuda", 1)
    early._process.kill()
    early._process.wait()
    with closing(early):
        assert not early.begin(encoder())
    early = Helpers("cuda", 1)
    early._process.kill()
    early._process.wait()
    with closing(start_helpers(encoder(), early)) as helpers:
        assert helpers is not early
        assert helpers._process.poll() is None
    assert not Path(early._folder.name).exists()


def test_where_no_process_can_be_started_a_start_goes_on(
    monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert start_helpers(encoder()) is None
    assert "no process could be started" in said.text


def test_all_end_with_who_started_them() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        helper = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + LONG
    while group := living(helper):
        assert time.monotonic() < deadline, group
        time.sleep(0.1)


def test_closing_ends_all_at_once() -> None:
    with closing(Helpers("cuda", 1)) as helpers:
        assert helpers.begin(small())
        assert living(helpers._process.pid)
    deadline = time.monotonic() + LONG
    while group := living(helpers._process.pid):  # whoever adopted them has to notice
        assert time.monotonic() < deadline, group
        time.sleep(0.01)


def test_an_early_one_is_started_only_where_it_may_be_of_use(tmp_path: Path) -> None:
    config = make_config({"model": "some/model"}, {})
    assert start_early("cuda", config, processors=10**6) is None
    assert start_early("cuda", config.replace("test", compile_ahead=False), processors=2) is None
    assert start_early("cuda", config.replace("test", model="demo"), processors=2) is None
    with closing(start_early("cuda", config, processors=2)) as helpers:
        assert helpers.likely is not None
        mark(helpers.likely)
    assert start_early("cuda", config, processors=2) is None
    (tmp_path / "model.safetensors").write_bytes(b"few")
    assert start_early("cuda", config.replace("test", model=str(tmp_path)), processors=2) is None


def test_an_early_one_with_nothing_to_do_is_ended() -> None:
    given = encoder()
    mark(given.marker)
    early = start_early("cuda", given.config.replace("test", model="some/model"), processors=2)
    with closing(early) as helpers:
        assert start_helpers(given, helpers) is None
        assert helpers._process.returncode is not None
        assert helpers.likely is not None
        assert helpers.likely.exists()


def test_none_is_started_where_nobody_wants_any() -> None:
    given = encoder()
    assert start_helpers(replace(given, config=given.config.replace("test", compile_ahead=False))) is None


def test_starting_one_needs_no_torch() -> None:
    code = "import sys, anychip.triton.ahead.process; print('torch' in sys.modules, 'triton' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def living(group: int) -> list[str]:
    """Commands of the processes of a group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = rest.split()
        if int(fields[2]) == group and fields[0] not in "ZX":
            found.append(name)
    return found

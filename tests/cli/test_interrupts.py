"""Ctrl-C and SIGTERM at every stage: the command ends soon, shows nothing of its insides, and leaves no process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.cli.command import (
    LIMIT,
    children,
    config_folder,
    ended_with,
    endless_model,
    is_gone,
    read_proc,
    start,
    wait_for_child,
    wait_for_words,
)

NULL = ("--device", "null", "--load-format", "dummy")
INTERRUPTED = 130


@contextmanager
def running(*arguments: object, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """`anychip ...`; however the test ends, its engine's process must end as well."""
    process = start(*arguments, log=log, **environment)
    try:
        engine = wait_for_child(process.pid)
        yield process
    finally:
        process.kill()
        process.communicate()
    assert is_gone(engine), "the engine's process is left behind"
    assert "Traceback" not in log.read_text(), log.read_text()


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C, which a terminal sends to the whole process group; the exit status that a shell reports."""
    os.killpg(process.pid, signal.SIGINT)
    return ended_with(process)


def served_at(log: Path) -> str:
    """The address in the server's log, once it is there."""
    return wait_for_words(log, r"http://[\d.]+:\d+")


@pytest.mark.parametrize("delay", [0, 0.3, 2])
def test_ctrl_c_while_run_loads(tmp_path: Path, delay: float) -> None:
    folder = endless_model(tmp_path / "model")
    options = ("--device", "reference", "--max-tokens", 100_000)
    with running("run", "w1", "--model", folder, *options, log=tmp_path / "log") as process:
        time.sleep(delay)
        assert interrupt(process) == INTERRUPTED


def test_ctrl_c_while_run_generates(tmp_path: Path) -> None:
    folder = endless_model(tmp_path / "model")
    options = ("--device", "null", "--max-tokens", 100_000, "--kv-cache-memory-bytes", 2**28)
    with running("run", "w1", "--model", folder, *options, log=tmp_path / "log") as process:
        assert process.stdout is not None
        assert process.stdout.read(1), (tmp_path / "log").read_text()
        assert interrupt(process) == INTERRUPTED


@pytest.mark.parametrize("delay", [0, 1])
def test_ctrl_c_while_serve_loads(tmp_path: Path, delay: float) -> None:
    folder = endless_model(tmp_path / "model")
    with running("serve", folder, "--device", "reference", "--port", 0, log=tmp_path / "log") as process:
        time.sleep(delay)
        assert interrupt(process) in (0, INTERRUPTED)


@pytest.mark.parametrize(
    ("command", "number", "status"),
    [(["run", "hello"], signal.SIGINT, INTERRUPTED), (["serve", "--port", "0"], signal.SIGTERM, 0)],
)
def test_a_download_is_not_waited_for(tmp_path: Path, command: list[str], number: int, status: int) -> None:
    """A package index that takes connections and says nothing; only our own process gets the signal."""
    with socket.create_server(("127.0.0.1", 0)) as index:
        environment = {
            "ANYCHIP_CACHE_DIR": str(tmp_path / "cache"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"http://127.0.0.1:{index.getsockname()[1]}/simple",
        }
        with running(*command, log=tmp_path / "log", **environment) as process:
            index.settimeout(LIMIT)
            index.accept()
            (download,) = [child for child in children(process.pid) if is_download(child)]
            process.send_signal(number)
            assert ended_with(process) == status
            assert is_gone(download)


def is_download(process: int) -> bool:
    return b"download" in read_proc(Path(f"/proc/{process}/cmdline")).split(b"\0")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_idle_server_stops(tmp_path: Path, number: int) -> None:
    log = tmp_path / "log"
    with running("serve", config_folder(tmp_path), *NULL, "--port", 0, log=log) as process:
        assert httpx.get(served_at(log) + "/health").status_code == 200
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        assert ended_with(process) == 0


def test_ctrl_c_while_the_server_streams(tmp_path: Path) -> None:
    """The first lets the request go on, the second ends it."""
    log = tmp_path / "log"
    folder = config_folder(tmp_path, max_position_embeddings=200_000)
    with running("serve", folder, *NULL, "--port", 0, "--kv-cache-memory-bytes", 2**28, log=log) as process:
        body = {"prompt": [1, 2, 3], "max_tokens": 100_000, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", served_at(log) + "/v1/completions", json=body, timeout=LIMIT) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            next(lines)
            os.killpg(process.pid, signal.SIGINT)
            wait_for_words(log, "Stopping")
            assert any("data:" in next(lines) for _ in range(100))
            os.killpg(process.pid, signal.SIGINT)
            rest = [line for line in lines if line]
        assert '"aborted"' in rest[-1]
        assert ended_with(process) == 0


def test_a_killed_client_leaves_no_engine(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running("serve", config_folder(tmp_path), *NULL, "--port", 0, log=log) as process:
        served_at(log)
        process.kill()

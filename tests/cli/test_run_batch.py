"""`anychip run-batch`: every request is answered once, however often the command is ended."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import ended_with, endless_model, is_gone, run, start, wait_for_child

REFERENCE = ("--device", "reference", "--max-num-seqs", 2, "--workers", 2)
COUNT = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return endless_model(tmp_path_factory.mktemp("model") / "model")


def write_input(folder: Path, tokens: int, count: int = COUNT, endless_from: int = COUNT) -> Path:
    path = folder / "in.jsonl"
    with path.open("w") as file:
        for number in range(count):
            most = 150_000 if number >= endless_from else tokens
            body = {"prompt": [1, 2, 3 + number], "max_tokens": most, "temperature": 0}
            line = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions", "body": body}
            file.write(json.dumps(line) + "\n")
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def count(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_it_answers_every_line(model: Path, tmp_path: Path) -> None:
    source, output = write_input(tmp_path, tokens=3, count=4), tmp_path / "out.jsonl"
    with source.open("a") as file:
        file.write(json.dumps({"custom_id": "bad", "url": "/v1/completions", "body": {"prompt": 5}}) + "\n")
    done = run("run-batch", "-i", source, "-o", output, "--model", model, *REFERENCE)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "5 of 5 requests are done, 1 of them with an error." in done.stderr
    answers = {one["custom_id"]: one["response"] for one in read(output)}
    assert answers.pop("bad")["status_code"] == 400
    assert sorted(answers) == ["r0", "r1", "r2", "r3"]
    assert all(answer["body"]["usage"]["completion_tokens"] == 3 for answer in answers.values())
    again = run("run-batch", "-i", source, "-o", output, "--model", model, *REFERENCE)
    assert again.returncode == 0
    assert len(read(output)) == 5


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_it_goes_on_where_it_ended(model: Path, tmp_path: Path, number: signal.Signals) -> None:
    """What comes after the third asks for so much the first time that none of it is ever done."""
    source, output = write_input(tmp_path, tokens=5, endless_from=3), tmp_path / "out.jsonl"
    command = ("run-batch", "-i", source, "-o", output, "--model", model, *REFERENCE)
    process = start(*command, log=tmp_path / "log")
    engine = wait_for_child(process.pid)
    while count(output) < 3:
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.01)
    process.send_signal(number)
    assert ended_with(process) == 128 + number
    assert is_gone(engine)
    first = output.read_bytes()
    kept = first[: first.rindex(b"\n") + 1]
    assert kept.count(b"\n") == 3
    write_input(tmp_path, tokens=5)
    with output.open("ab") as file:
        file.write(b'{"id": "batch_req_1", "custom')  # what a kill in the middle of a write leaves
    done = run(*command)
    assert done.returncode == 0, done.stderr
    assert output.read_bytes().startswith(kept)
    ids = Counter(one["custom_id"] for one in read(output))
    assert ids == {f"r{number}": 1 for number in range(COUNT)}
    if number == signal.SIGINT:
        assert "the same command goes on" in (tmp_path / "log").read_text()


def test_what_it_refuses(tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"

    def refused(words: str) -> None:
        done = run("run-batch", "-i", source, "-o", output)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr

    refused("Cannot read")
    source.write_text("{}\n")
    refused("Line 1")
    write_input(tmp_path, tokens=1)
    output.write_text('{"id": "x", "custom_id": "other"}\n')
    refused("other requests")
    assert output.read_text() == '{"id": "x", "custom_id": "other"}\n'
    output = tmp_path / "missing" / "out.jsonl"
    refused("Cannot write")

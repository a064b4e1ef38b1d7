"""What the commands do when nothing goes wrong, as processes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.cli.command import ANYCHIP, ENVIRONMENT, LIMIT, config_folder, endless_model, run

from anychip.testing.tiny_model import write_tiny_model

TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
REFERENCE = ("--device", "reference")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model without an end of sequence; its chat template puts a conversation's words in a row."""
    folder = with_template(write_tiny_model(tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": None}))
    return folder


def with_template(folder: Path) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


def fed(text: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """`anychip ...` with `text` on standard input."""
    command = [*ANYCHIP, *map(str, arguments)]
    return subprocess.run(
        command, env=ENVIRONMENT, input=text, capture_output=True, text=True, check=False, timeout=LIMIT
    )


def test_run_writes_the_answer_and_nothing_else(model: Path) -> None:
    done = run("run", "w5 w6 w7", "--model", model, *REFERENCE, "--max-tokens", 8)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.split()) == 8
    assert done.stdout.endswith("\n")


def test_run_is_greedy_unless_told_otherwise_and_reads_standard_input(model: Path) -> None:
    options = ("run", "--model", model, *REFERENCE, "--max-tokens", 8)
    first, second = fed("w5 w6 w7", *options), fed("w5 w6 w7", *options)
    hot = fed("w5 w6 w7", *options, "--temperature", 2)
    assert first.stdout == second.stdout != hot.stdout
    assert first.returncode == hot.returncode == 0


def test_run_completes_raw_text_and_puts_a_system_message_first(model: Path) -> None:
    options = ("--model", model, *REFERENCE, "--max-tokens", 8)
    raw = run("run", "w9 w5", "--raw", *options).stdout
    assert raw == run("run", "w5", "--system", "w9", *options).stdout
    assert raw != run("run", "w5", *options).stdout


def test_run_says_that_its_own_limit_ended_an_answer(model: Path) -> None:
    done = run("run", "w5", "--model", endless_model(model), "--device", "null", "--kv-cache-memory-bytes", 2**24)
    assert done.returncode == 0
    assert "--max-tokens" in done.stderr


def test_a_closed_pipe_is_no_error(model: Path) -> None:
    options = ["--model", str(model), *REFERENCE, "--max-tokens", "100"]
    command = [*ANYCHIP, "run", "w5", *options]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(LIMIT) == 141


def test_chat_remembers_until_it_is_reset(model: Path) -> None:
    lines = "w5\nw5\n/reset\nw5\n/what\n/exit\nw5\n"
    done = fed(lines, "chat", "--model", model, *REFERENCE, "--max-tokens", 6, "--temperature", 0)
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first == third != second
    assert done.stderr.count("/reset") == 2, "the greeting and the answer to an unknown command"


def test_chat_takes_back_what_does_not_fit(model: Path) -> None:
    done = fed("w5 " * 300 + "\nw5\n", "chat", "--model", model, *REFERENCE, "--max-tokens", 6)
    assert done.returncode == 0
    assert "256" in done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_ctrl_c_stops_an_answer_and_ctrl_d_leaves_the_chat(tmp_path: Path) -> None:
    folder = with_template(endless_model(tmp_path / "model"))
    options = ["--device", "null", "--max-tokens", "100000", "--kv-cache-memory-bytes", str(2**28)]
    master, slave = os.openpty()
    process = subprocess.Popen(
        [*ANYCHIP, "chat", "--model", str(folder), *options],
        env=ENVIRONMENT,
        stdin=slave,
        stdout=slave,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(slave)
    read_until(master, b"> ")
    os.write(master, b"w5\n")
    read_until(master, b"\n")  # the question's own echo
    read_until(master, b"w")
    os.killpg(process.pid, signal.SIGINT)
    read_until(master, b"[stopped]\r\n> ")
    os.write(master, b"\x04")
    assert process.wait(LIMIT) == 0
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    os.close(master)


def read_until(terminal: int, words: bytes) -> bytes:
    """What the terminal shows, up to `words`."""
    deadline = time.monotonic() + LIMIT
    shown = b""
    while words not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, shown
        shown += os.read(terminal, 1024)
    return shown


def test_bench_prints_json(tmp_path: Path) -> None:
    shape = ("--prompts", 4, "--input-len", 8, "--output-len", 8, "--runs", 1)
    done = run(
        "bench", "--model", config_folder(tmp_path), "--device", "null", "--load-format", "dummy", *shape, "--json"
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["prompts"] == 4
    assert report["total_tokens_per_second"] == pytest.approx(2 * report["output_tokens_per_second"], rel=0.01)


def test_platforms_lists_what_was_found_and_the_ops() -> None:
    done = run("platforms", *REFERENCE)
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ("reference", "null", "runs only by name", "paged_attention"))


def test_platforms_says_what_is_missing_and_what_to_install(tmp_path: Path) -> None:
    """Extras come from whichever distribution is installed: here one with an extra for a chip called acme."""
    metadata = tmp_path / "anychip-0.1.0.dist-info"
    metadata.mkdir()
    lines = ("Metadata-Version: 2.4", "Name: anychip", "Version: 0.1.0", "Provides-Extra: acme", "Provides-Extra: plot")
    needs = ("Requires-Dist: anychip-acme==0.1.0 ; extra == 'acme'", "Requires-Dist: matplotlib ; extra == 'plot'")
    (metadata / "METADATA").write_text("\n".join((*lines, *needs)) + "\n")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = [*ANYCHIP, "platforms", *REFERENCE]
    environment = ENVIRONMENT | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=LIMIT)
    assert "acme is not installed. Install it with `pip install 'anychip[acme]'`." in done.stdout
    assert "plot" not in done.stdout
    assert all(line.endswith(".") for line in done.stdout.splitlines() if "cannot run here:" in line)

"""The command line as a person meets it: a process, its streams, its exit status, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from anychip.testing.tiny_model import write_tiny_model

ANYCHIP = [sys.executable, "-m", "anychip"]
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
LIMIT = 240
"""Seconds of patience with a slow and busy machine; only a test that fails needs them."""
SOON = 25
"""Seconds for an end that was asked for: fewer than a server gives the requests that are open."""

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": 96,
}


def run(*arguments: object, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """`anychip ...` to its end."""
    command = [*ANYCHIP, *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=ENVIRONMENT | environment, capture_output=True, text=True, check=False, timeout=LIMIT
    )


def start(*arguments: object, log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """`anychip ...` under way, its standard error in `log`, in a process group of its own."""
    with log.open("wb") as stream:
        return subprocess.Popen(
            [*ANYCHIP, *map(str, arguments)],
            env=ENVIRONMENT | environment,
            stdout=subprocess.PIPE,
            stderr=stream,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def config_folder(folder: Path, **values: object) -> Path:
    """A model folder with a config.json and nothing else."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA | values))
    return folder


def endless_model(folder: Path) -> Path:
    """A model with weights and a tokenizer that has room for long answers and never ends one itself."""
    write_tiny_model(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 200_000, "eos_token_id": None}))
    return folder


def children(process: int) -> list[int]:
    """Processes that `process` started and that still live."""
    lists = Path(f"/proc/{process}/task").glob("*/children")
    return [int(word) for path in lists for word in read_proc(path).split()]


def read_proc(path: Path) -> bytes:
    """A file of /proc, empty once its process or thread has ended."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def wait_for_child(process: int) -> int:
    """The engine's process, once it runs its own program."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        for child in children(process):
            if b"anychip.engine.process" in read_proc(Path(f"/proc/{child}/cmdline")):
                return child
        time.sleep(0.02)
    raise AssertionError("no engine process was started")


def wait_for_words(log: Path, pattern: str) -> str:
    """The first match of a pattern in a log, once it is there."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text()):
            return found[0]
        time.sleep(0.02)
    raise AssertionError(f"no {pattern!r} in\n{log.read_text()}")


def is_gone(process: int) -> bool:
    """Whether a process ends; one whose parent has not asked for its status yet has ended too."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        _, _, rest = read_proc(Path(f"/proc/{process}/stat")).rpartition(b") ")
        if rest[:1] in (b"", b"Z", b"X"):
            return True
        time.sleep(0.05)
    return False


def ended_with(process: subprocess.Popen[bytes]) -> int:
    """What a shell reports for the end of a process, which comes soon.

    CPython ends by the signal itself where Ctrl-C met code in `exec`, as a dataclass has while it is imported,
    although the exception was caught. A shell reports the same for both.
    """
    process.communicate(timeout=SOON)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode

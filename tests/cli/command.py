"""The command line as a person meets it: a process, its streams, its exit status, and what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from anychip.testing.tiny_model import write_tiny_model

ANYCHIP = [sys.executable, "-m", "anychip"]
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
LIMIT = 60

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


def run(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`anychip ...` to its end."""
    command = [*ANYCHIP, *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=LIMIT
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
    return [int(word) for path in lists for word in path.read_text().split()]


def wait_for_child(process: int) -> int:
    """The engine's process, once it runs its own program."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        for child in children(process):
            if b"anychip.engine.process" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        time.sleep(0.02)
    raise AssertionError("no engine process was started")


def is_gone(process: int) -> bool:
    """Whether a process has ended; a moment is given for it."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not Path(f"/proc/{process}").exists():
            return True
        time.sleep(0.05)
    return False

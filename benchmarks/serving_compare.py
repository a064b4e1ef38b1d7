"""Streaming clients against several servers, one after the other, with the same tiny model and the same load.

    python benchmarks/serving_compare.py MODEL --server 'anychip=anychip serve {model} --port {port}' \\
        --server 'other=other serve {model} --port {port}'

`--write-model TOKENIZER_FOLDER` makes MODEL first: one small random layer, so that little is computed and serving is
what takes the time. Prints tokens a second that reach the clients, and processor seconds for 1,000 tokens of all the
server's processes together.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

PORT = 18233
READY_SECONDS = 240.0
TICKS = os.sysconf("SC_CLK_TCK")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def write_model(folder: Path, tokenizer: Path) -> None:
    """A config of one small layer with the vocabulary of a real tokenizer; weights are made up at load."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = json.loads((tokenizer / "config.json").read_text())["vocab_size"]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": 128,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "eos_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    for name in TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copy(tokenizer / name, folder / name)


def wait_ready(process: subprocess.Popen[bytes]) -> None:
    """Return when /health answers."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=1):
                return
        except (OSError, urllib.error.URLError):
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server is not ready"
            time.sleep(0.2)


def processor_seconds(pid: int) -> float:
    """Of a process and all its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    return (int(fields[11]) + int(fields[12])) / TICKS + sum(processor_seconds(int(child)) for child in children)


def load(clients: int, output_len: int) -> dict[str, Any]:
    """One load from a process of its own."""
    flags = [f"--requests={clients}", "--input-len=32", f"--output-len={output_len}", "--json"]
    command = [sys.executable, "-m", "anychip", "bench", "serve", f"--url=http://127.0.0.1:{PORT}", *flags]
    report: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert not report["failed"], report["first_error"]
    return report


def measure(name: str, command: str, model: Path, clients: int, output_len: int) -> dict[str, Any]:
    """Start a server, load it twice, and read the second."""
    with tempfile.TemporaryFile() as log:
        words = shlex.split(command.format(model=model, port=PORT))
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_ready(process)
            load(clients, 50)
            before = processor_seconds(process.pid)
            report = load(clients, output_len)
            spent = processor_seconds(process.pid) - before
        except BaseException:
            log.seek(0)
            print(log.read().decode(errors="replace")[-3000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait(60)
    return {
        "server": name,
        "tokens_per_second": report["output_tokens_per_second"],
        "server_s": round(spent / report["output_tokens"] * 1000, 4),
        "ttft_ms_p50": report["ttft_ms"]["p50"],
        "itl_ms_p50": report["itl_ms"]["p50"],
        "itl_ms_p99": report["itl_ms"]["p99"],
    }


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--server", action="append", required=True, metavar="NAME=COMMAND")
    parser.add_argument("--write-model", type=Path, metavar="FOLDER")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=300)
    options = parser.parse_args()
    if options.write_model:
        write_model(options.model, options.write_model)
    for server in options.server:
        name, _, command = server.partition("=")
        row = measure(name, command, options.model, options.clients, options.output_len)
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

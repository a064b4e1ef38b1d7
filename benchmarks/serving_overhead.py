"""What serving costs: streaming clients on the null platform, the load generator on the same processors.

    python benchmarks/serving_overhead.py [--clients 64] [--json FILE] [--profile FILE]

The null platform's steps take a given time, so that the server's own work is all that can be late. For each time of a
step it prints tokens a second that reach the clients, pieces of text a token (1 is one write a step and client; less
means that the clients fell behind and tokens were joined), and processor seconds for 1,000 tokens of the front end, the
engine and the load generator. Exits with 1 if fewer than the goal reach the clients in every row.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from anychip.config import make_config
from anychip.engine.locate import locate_model

STEP_SECONDS = (0.008, 0.004, 0.002, 0.001, 0.0)
INPUT_LEN = 32
GOAL = 8000.0
VOCAB_SIZE = 49152
READY_SECONDS = 60.0
PORT = 18231
TICKS = os.sysconf("SC_CLK_TCK")


def write_model(folder: Path, step_seconds: float) -> None:
    """A model of the null platform."""
    config = {"model_type": "llama", "vocab_size": VOCAB_SIZE, "max_position_embeddings": 8192}
    (folder / "config.json").write_text(json.dumps({**config, "step_seconds": step_seconds}))


class Seconds(NamedTuple):
    """Processor seconds of each part; the front end's own and those it spends in the kernel, mostly in writes."""

    front_end: float
    front_end_kernel: float
    engine: float
    load_generator: float


class Server:
    """`anychip serve` on the null platform, with the demo model's tokenizer."""

    def __init__(self, folder: Path, clients: int, profile: Path | None) -> None:
        tokenizer = locate_model(make_config({"model": "demo"}), lambda what, done, total: None).path
        start = [sys.executable, "-m", "anychip"]
        if profile:
            start = [sys.executable, "-m", "cProfile", "-o", str(profile), "-m", "anychip"]
        flags = [
            "--device=null",
            "--load-format=dummy",
            f"--tokenizer={tokenizer}",
            f"--port={PORT}",
            f"--max-num-seqs={clients}",
        ]
        command = [*start, "serve", str(folder), *flags, "--served-model-name=null", "--log-level=warning"]
        self.process = subprocess.Popen(command)
        deadline = time.monotonic() + READY_SECONDS
        while not self._ready():
            assert self.process.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server is not ready"
            time.sleep(0.1)

    def processor_seconds(self) -> Seconds:
        """Until now."""
        pid = self.process.pid
        (engine,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return Seconds(*_seconds(pid), sum(_seconds(int(engine))), _children())

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(30)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=1):
                return True
        except (OSError, urllib.error.URLError):
            return False


def _seconds(pid: int) -> tuple[float, float]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / TICKS, int(fields[12]) / TICKS


def load(clients: int, output_len: int) -> dict[str, Any]:
    """One load in a process of its own."""
    shape = [f"--requests={clients}", f"--input-len={INPUT_LEN}", f"--output-len={output_len}"]
    with tempfile.TemporaryDirectory() as name:
        output = Path(name) / "load.json"
        flags = [f"--url=http://127.0.0.1:{PORT}", f"--output={output}", *shape]
        subprocess.run(
            [sys.executable, "-m", "anychip", "bench", "serve", *flags], check=True, stdout=subprocess.DEVNULL
        )
        report: dict[str, Any] = json.loads(output.read_text())
    assert not report["failed"], report["first_error"]
    return report


def measure(step_seconds: float, clients: int, output_len: int, profile: Path | None) -> dict[str, Any]:
    """One row."""
    with tempfile.TemporaryDirectory() as name:
        write_model(Path(name), step_seconds)
        server = Server(Path(name), clients, profile)
        try:
            load(clients, 16)
            before = server.processor_seconds()
            report = load(clients, output_len)
            after = server.processor_seconds()
        finally:
            server.stop()
    thousands = report["output_tokens"] / 1000
    pieces = sum(len(request["chunks"]) for request in report["requests"])
    return {
        "step_ms": step_seconds * 1000,
        "tokens_per_second": report["output_tokens_per_second"],
        "pieces_per_token": round(pieces / report["output_tokens"], 3),
        **{f"{name}_s": round(spent / thousands, 4) for name, spent in _between(before, after).items()},
        "ttft_ms_p50": report["ttft_ms"]["p50"],
        "itl_ms_p50": report["itl_ms"]["p50"],
        "itl_ms_p99": report["itl_ms"]["p99"],
    }


def _between(before: Seconds, after: Seconds) -> dict[str, float]:
    return {name: end - begin for name, begin, end in zip(Seconds._fields, before, after, strict=True)}


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure every time of a step; the status is 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=1000)
    parser.add_argument("--step-ms", type=float, action="append", help="only these times of a step")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="write cProfile's view of the front end there")
    options = parser.parse_args()
    steps = [step / 1000 for step in options.step_ms or []] or STEP_SECONDS
    rows = []
    for step in steps:
        rows.append(measure(step, options.clients, options.output_len, options.profile))
        if len(rows) == 1:
            print("  ".join(rows[0]))
        print("  ".join(f"{value:{len(name)}}" for name, value in rows[-1].items()), flush=True)
    if options.json:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "processors": os.cpu_count()}
        result = {"machine": machine, "clients": options.clients, "output_len": options.output_len, "rows": rows}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    best = max(row["tokens_per_second"] for row in rows)
    print(f"at most {best:.0f} tokens/s reach {options.clients} clients, goal {GOAL:.0f}")
    return 0 if best >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())

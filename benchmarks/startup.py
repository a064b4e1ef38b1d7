"""Start-up: importing anychip, the server ready, its first token, and what memory it takes; medians of several starts.

`python benchmarks/startup.py [--model demo] [--runs 5] [--json FILE]` prints a table. Run it on an idle machine, with
the model in the cache: a start before the first measured one sees to that.
"""

from __future__ import annotations

import argparse
import http.client
import json
import platform
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIMIT = 120.0
REQUESTS = 8
PROMPT = list(range(100, 108))
"""Eight token ids, so that no tokenizer decides how long the prompt is."""
GOALS = {"import_s": 0.3, "ready_s": 6.0, "first_token_s": 0.2}
LABELS = {
    "import_s": "import anychip",
    "ready_s": "anychip serve: /health answers 200",
    "first_token_s": "first token after that",
    "start_to_first_token_s": "process start to first token",
    "resident_mib": f"resident memory (PSS) with {REQUESTS} requests running, MiB",
}


def measure_import() -> float:
    """Seconds that `import anychip` takes in a new process."""
    program = "import time; begin = time.perf_counter(); import anychip; print(time.perf_counter() - begin)"
    return float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)


class Server:
    """`anychip serve`, timed from the start of its process."""

    def __init__(self, model: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        command = [sys.executable, "-m", "anychip", "serve", model, "--port", str(self.port), "--log-level", "error"]
        self.begin = time.perf_counter()
        self.process = subprocess.Popen(command)

    def wait_ready(self) -> None:
        """Return once /health answers 200."""
        while time.perf_counter() - self.begin < LIMIT:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
                connection.request("GET", "/health")
                if connection.getresponse().status == http.client.OK:
                    return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.005)
        raise SystemExit("The server did not start.")

    def stream(self, max_tokens: int) -> Iterator[bytes]:
        """The lines of a streamed completion, as they come."""
        body = {"prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise SystemExit(f"The server answered {answer.status}: {answer.read().decode()}")
        yield from (line for line in answer if line.startswith(b"data: {"))

    def resident_with_requests(self) -> float:
        """MiB that the server and its engine hold while `REQUESTS` requests run; shared pages count in part."""
        streams = [self.stream(1000) for _ in range(REQUESTS)]
        running = threading.Barrier(REQUESTS + 1)
        done = threading.Event()

        def follow(lines: Iterator[bytes]) -> None:
            for _ in range(8):
                next(lines)
            running.wait(LIMIT)
            for _ in lines:
                if done.is_set():
                    return

        threads = [threading.Thread(target=follow, args=(lines,), daemon=True) for lines in streams]
        for thread in threads:
            thread.start()
        running.wait(LIMIT)
        total = sum(proportional_set_size(each) for each in descendants(self.process.pid))
        done.set()
        for thread in threads:
            thread.join()
        return total / 2**20

    def stop(self) -> None:
        """End it and wait."""
        self.process.terminate()
        self.process.wait(LIMIT)


@contextmanager
def serving(model: str) -> Iterator[Server]:
    """A server that is stopped afterwards."""
    server = Server(model)
    try:
        yield server
    finally:
        server.stop()


def descendants(process: int) -> list[int]:
    """A process and all that it started."""
    found = [process]
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += descendants(int(child))
    return found


def proportional_set_size(process: int) -> int:
    """Bytes of memory, each page divided by the number of processes that map it."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found, "smaps_rollup has a line Pss"
    return int(found[1]) * 1024


def measure_start(model: str) -> dict[str, float]:
    """One start of the server."""
    with serving(model) as server:
        server.wait_ready()
        ready = time.perf_counter()
        lines = server.stream(8)
        next(lines)
        first = time.perf_counter()
        list(lines)
        return {
            "ready_s": ready - server.begin,
            "first_token_s": first - ready,
            "start_to_first_token_s": first - server.begin,
            "resident_mib": server.resident_with_requests(),
        }


def measure(model: str, runs: int) -> dict[str, list[float]]:
    """Every number of every run."""
    measure_import()
    measure_start(model)
    rows = [{"import_s": measure_import(), **measure_start(model)} for _ in range(runs)]
    return {name: [round(row[name], 3) for row in rows] for name in LABELS}


def report(values: dict[str, list[float]]) -> str:
    """A Markdown table of medians and ranges."""
    lines = ["| | median | range | aim |", "|---|---|---|---|"]
    for name, label in LABELS.items():
        each = values[name]
        digits = 0 if name == "resident_mib" else 2
        unit = "" if name == "resident_mib" else " s"
        aim = f"under {GOALS[name]:g} s" if name in GOALS else ""
        spread = f"{min(each):.{digits}f} to {max(each):.{digits}f}"
        lines.append(f"| {label} | {statistics.median(each):.{digits}f}{unit} | {spread} | {aim} |")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """What it ran on."""
    words = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {"processor": words[0] if words else platform.machine(), "processors": len(words)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    values = measure(options.model, options.runs)
    where = {**machine(), "python": platform.python_version(), "model": options.model, "runs": options.runs}
    print(", ".join(f"{name} {value}" for name, value in where.items()))
    print(report(values))
    if options.json:
        options.json.write_text(json.dumps({**where, **values}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Schemathesis on our own OpenAPI document, hostile clients beside it, and an honest one that must not notice.

    python benchmarks/fuzz.py [--seconds 60] [--seed 1] [--json FILE]

Serves a tiny random model. Fails if any answer has status 500 or above, if an honest request fails or takes longer than
the limit, or if the server afterwards still runs requests, holds blocks or connections, or has grown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from hostile import ATTACKS, attack

from anychip.testing.tiny_model import write_tiny_model

READY_SECONDS = 240.0
PAUSE = 0.2
LATENCY_LIMIT = 30.0
"""Seconds an honest request may take: a hang, not slowness; fuzzer, attackers and server share the processors."""
EXPECTED = '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "3xx", "4xx", "504"]\n'
"""A request may name a deadline that it cannot meet, and is answered 504."""
GROWTH_LIMIT = 400 * 2**20
HONEST = {"prompt": "w5 w6 w7", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


def write_model(folder: Path) -> Path:
    """The tiny model with a chat template."""
    write_tiny_model(folder)
    template = "{% for message in messages %}{{ message.role }} {{ message.content }} {% endfor %}w1"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return folder


def start_server(model: Path, log: Path, device: str) -> tuple[subprocess.Popen[bytes], int]:
    """`anychip serve`, ready to answer, and its port."""
    flags = [f"--device={device}", "--port=0", "--served-model-name=tiny", "--client-timeout=5"]
    with log.open("wb") as stream:
        command = [sys.executable, "-m", "anychip", "serve", str(model), *flags]
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if served := re.search(r"Serving .* at http://127\.0\.0\.1:(\d+)", log.read_text()):
            return process, int(served[1])
        time.sleep(0.1)
    process.kill()
    raise SystemExit(f"the server did not become ready:\n{log.read_text()}")


async def keep_asking(client: httpx.AsyncClient, seconds: list[float], problems: list[str]) -> None:
    """The honest client: one request after the other, each with the same answer."""
    expected = None
    while True:
        begin = time.monotonic()
        answer = await client.post("/v1/completions", json=HONEST)
        seconds.append(time.monotonic() - begin)
        text = answer.json()["choices"][0]["text"] if answer.status_code == httpx.codes.OK else answer.text
        expected = expected or text
        if answer.status_code != httpx.codes.OK or text != expected:
            problems.append(f"an honest request was answered {answer.status_code}: {text[:200]}")
        await asyncio.sleep(PAUSE)


async def keep_attacking(port: int, outcomes: Counter[str], problems: list[str]) -> None:
    """Every hostile client in turn, again and again."""
    while True:
        for name in ATTACKS:
            status = await attack(name, port)
            outcomes[f"{name}: {status}"] += 1
            if status >= httpx.codes.INTERNAL_SERVER_ERROR:
                problems.append(f"{name} was answered {status}")
            await asyncio.sleep(PAUSE)


async def fuzz(program: str, port: int, seconds: int, seed: int) -> tuple[int, str]:
    """Exit status and report of schemathesis."""
    url = f"http://127.0.0.1:{port}/openapi.json"
    flags = ["--checks=not_a_server_error", "--phases=coverage,fuzzing", f"--max-time={seconds}", "--warnings=off"]
    flags += [f"--seed={seed}"]
    flags += ["--exclude-path=/metrics", "--suppress-health-check=all", "--request-timeout=30", "--no-shrink"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "schemathesis.toml").write_text(EXPECTED)
        process = await asyncio.create_subprocess_exec(
            program, "run", url, *flags, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder
        )
        report, _ = await process.communicate()
        assert process.returncode is not None, "it has ended"
        return process.returncode, report.decode(errors="replace")


async def everything(program: str, port: int, seconds: int, seed: int) -> dict[str, Any]:
    """Run all of it; the report, with `problems` first."""
    problems: list[str] = []
    calm: list[float] = []
    busy: list[float] = []
    outcomes: Counter[str] = Counter()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client:
        await _for_a_while(keep_asking(client, calm, problems), 3)
        before = await gauges(client)
        others = [
            asyncio.create_task(keep_asking(client, busy, problems)),
            asyncio.create_task(keep_attacking(port, outcomes, problems)),
        ]
        status, report = await fuzz(program, port, seconds, seed)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        problems += [str(task.exception()) for task in others if not task.cancelled() and task.exception()]
        after = await settled(client)
    if status:
        problems.append(f"schemathesis ended with {status}:\n{report[-6000:]}")
    if max(busy) > LATENCY_LIMIT:
        problems.append(f"an honest request took {max(busy):.2f} s")
    problems += leaks(before, after)
    return {
        "problems": problems,
        "seconds": seconds,
        "seed": seed,
        "schemathesis": [line for line in report.splitlines() if "generated" in line or "passed" in line][-3:],
        "honest_ms_calm": spread(calm),
        "honest_ms_under_attack": spread(busy),
        "attacks": dict(sorted(outcomes.items())),
        "before": before,
        "after": after,
    }


async def _for_a_while(work: Any, seconds: float) -> None:
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError:
        return


async def gauges(client: httpx.AsyncClient) -> dict[str, float]:
    """What /metrics says is in use."""
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "open_fds", "resident_memory_bytes")
    found = {}
    for line in (await client.get("/metrics")).text.splitlines():
        name = line.partition("{")[0].partition(" ")[0].partition(":")[2] or line.split(" ")[0].removeprefix("process_")
        if name in names:
            found[name] = float(line.split()[-1])
    return found


async def settled(client: httpx.AsyncClient) -> dict[str, float]:
    """What is in use once all that was begun has ended, for which it gets some seconds."""
    for _ in range(40):
        found = await gauges(client)
        if not found["num_requests_running"] and not found["num_requests_waiting"]:
            break
        await asyncio.sleep(0.5)
    await asyncio.sleep(6)  # slow clients lose their connections
    return await gauges(client)


def leaks(before: dict[str, float], after: dict[str, float]) -> list[str]:
    """What is left over."""
    problems = [f"{name} is {after[name]} afterwards" for name in before if "num_" in name and after[name]]
    if after["kv_cache_usage_perc"] > before["kv_cache_usage_perc"]:
        problems.append("blocks are still held")
    if after["open_fds"] > before["open_fds"] + 8:
        problems.append(f"{after['open_fds']:.0f} files are open, before it were {before['open_fds']:.0f}")
    if after["resident_memory_bytes"] > before["resident_memory_bytes"] + GROWTH_LIMIT:
        problems.append("the server's memory has grown")
    return problems


def spread(seconds: list[float]) -> dict[str, float]:
    """Count, median, 99th percentile and maximum in milliseconds."""
    ordered = sorted(seconds)
    late = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    numbers = {"p50": statistics.median(ordered), "p99": late, "max": ordered[-1]}
    return {"requests": len(ordered), **{name: round(value * 1000, 1) for name, value in numbers.items()}}


def main() -> int:
    """Run from the command line; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="the same requests again")
    parser.add_argument("--device", default="reference")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--schemathesis", default="schemathesis", help="the program")
    options = parser.parse_args()
    beside = Path(sys.executable).with_name("schemathesis")
    program = str(beside) if beside.exists() else shutil.which(options.schemathesis)
    if program is None:
        raise SystemExit("there is no schemathesis: pip install schemathesis")
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "log"
        server, port = start_server(write_model(Path(name) / "model"), log, options.device)
        try:
            report = asyncio.run(everything(program, port, options.seconds, options.seed))
        finally:
            server.terminate()
            status = server.wait(60)
        if status or "Traceback" in log.read_text():
            report["problems"].append(f"the server ended with {status}:\n{log.read_text()[-4000:]}")
    print(json.dumps(report, indent=1))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())

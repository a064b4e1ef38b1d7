"""200 concurrent mixed requests with random aborts against a real server: nothing lost, blocks back to zero.

    python benchmarks/soak.py --seconds 120 [--model demo] [--json soak.json]

Each client sends completions and chats, streamed and not, with n, logprobs and penalties, and hangs up on a third of
them.
Every request that is not hung up on must end with a finish reason. Exits with 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

READY_SECONDS = 180.0
QUIET_SECONDS = 20.0
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seven",
    "wise",
    "owls",
    "count",
    "stars",
]


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def body(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """A random request: its route and JSON."""
    text = " ".join(chance.choices(WORDS, k=chance.randint(1, 60)))
    fields: dict[str, Any] = {
        "max_tokens": chance.randint(1, 24),
        "temperature": chance.choice([0.0, 0.7, 1.0]),
        "n": chance.choice([1, 1, 1, 2]),
        "stream": chance.random() < 0.6,
        "presence_penalty": chance.choice([0.0, 0.0, 0.5]),
        "seed": chance.choice([None, chance.randrange(1000)]),
        "stop": chance.choice([None, ["\n\n"], [" owls"]]),
    }
    if chance.random() < 0.5:
        fields |= {"prompt": text, "logprobs": chance.choice([None, None, 2])}
        return "/v1/completions", fields
    return "/v1/chat/completions", {**fields, "messages": [{"role": "user", "content": text}]}


async def one_request(client: httpx.AsyncClient, chance: random.Random) -> str:
    """Send a request; how it went."""
    route, fields = body(chance)
    patience = chance.uniform(0.0, 8.0) if chance.random() < 0.33 else None
    try:
        async with asyncio.timeout(patience):
            return await (_streamed if fields["stream"] else _whole)(client, route, fields)
    except TimeoutError:
        return "hung up"


async def _whole(client: httpx.AsyncClient, route: str, fields: dict[str, Any]) -> str:
    answer = await client.post(route, json=fields)
    if answer.status_code != httpx.codes.OK:
        return f"status {answer.status_code}: {answer.text[:200]}"
    choices = answer.json()["choices"]
    complete = len(choices) == fields["n"] and all(choice["finish_reason"] for choice in choices)
    return "complete" if complete else "incomplete"


async def _streamed(client: httpx.AsyncClient, route: str, fields: dict[str, Any]) -> str:
    ended: set[int] = set()
    async with client.stream("POST", route, json=fields) as answer:
        if answer.status_code != httpx.codes.OK:
            return f"status {answer.status_code}: {(await answer.aread())[:200]!r}"
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                return "complete" if len(ended) == fields["n"] else "incomplete"
            if line.startswith("data: "):
                for choice in json.loads(line[6:]).get("choices", []):
                    if choice["finish_reason"]:
                        ended.add(choice["index"])
    return "cut off"


async def keep_asking(client: httpx.AsyncClient, seed: int, until: float, outcomes: Counter[str]) -> None:
    """One client: a request after the other."""
    chance = random.Random(seed)
    while time.monotonic() < until:
        outcomes[await one_request(client, chance)] += 1


async def gauges(client: httpx.AsyncClient) -> dict[str, float]:
    """Running, waiting and cache use, as /metrics tells them."""
    text = (await client.get("/metrics")).text
    wanted = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(line.split()[-1]) for line in lines for name in wanted if f":{name}{{" in line}


async def soak(url: str, clients: int, seconds: float) -> dict[str, Any]:
    """Run the load; what came of it, and what is left afterwards."""
    outcomes: Counter[str] = Counter()
    limits = httpx.Limits(max_connections=clients + 8)
    async with httpx.AsyncClient(base_url=url, timeout=300.0, limits=limits) as client:
        until = time.monotonic() + seconds
        await asyncio.gather(*(keep_asking(client, seed, until, outcomes) for seed in range(clients)))
        deadline = time.monotonic() + QUIET_SECONDS
        left = await gauges(client)
        while any(left.values()) and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
            left = await gauges(client)
        alive = (await client.get("/health")).status_code == httpx.codes.OK
    return {"clients": clients, "seconds": seconds, "outcomes": dict(outcomes), "left": left, "alive": alive}


def start_server(model: str, port: int) -> subprocess.Popen[bytes]:
    """The server, ready to answer."""
    command = [sys.executable, "-m", "anychip", "serve", model, "--port", str(port), "--max-model-len", "1024"]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health").status_code == httpx.codes.OK:
                return process
        except httpx.TransportError:
            time.sleep(0.2)
    process.terminate()
    raise SystemExit("the server did not become ready")


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    port = free_port()
    server = start_server(options.model, port)
    try:
        report = asyncio.run(soak(f"http://127.0.0.1:{port}", options.clients, options.seconds))
    finally:
        server.terminate()
        status = server.wait(30)
    report["exit_status"] = status
    print(json.dumps(report, indent=2))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    good = set(report["outcomes"]) <= {"complete", "hung up"} and not any(report["left"].values())
    return 0 if good and report["alive"] and status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

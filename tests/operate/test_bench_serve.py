"""`anychip bench serve` against a real server: what it sends, what it reports, what it says when it cannot."""

from __future__ import annotations

import itertools
import json
import socket
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.api.running import LIMIT, RunningServer
from tests.operate.conftest import Serve

from anychip.bench.ask import Outcome
from anychip.bench.load import arrivals, run
from anychip.bench.options import LoadOptions, goals
from anychip.bench.plot import check_plot
from anychip.bench.summary import peak, summary
from anychip.bench.workload import prompts
from anychip.errors import UserError

CONVERSATIONS = [
    {"conversations": [{"from": "human", "value": "w5 w6"}, {"from": "gpt", "value": "a" * 40}]},
    {"conversations": [{"from": "human", "value": "w7 w8 w9"}, {"from": "gpt", "value": "b" * 8}]},
    {"conversations": [{"from": "human", "value": "alone"}]},
]


def load(server: RunningServer, **options: Any) -> tuple[dict[str, Any], list[Outcome]]:
    chosen = LoadOptions(url=f"{server.base}/v1", **{"requests": 8, "output_len": 5, "input_len": 20, **options})
    told: list[tuple[int, int]] = []
    model, outcomes, seconds = run(chosen, lambda done, failed: told.append((done, failed)))
    report = summary(chosen, model, outcomes, seconds)
    assert told[-1] == (report["completed"], report["failed"])
    return report, outcomes


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
@pytest.mark.parametrize("dataset", ["random", "shared-prefix"])
def test_a_load_of_exact_lengths(plain_server: RunningServer, dataset: str, endpoint: str) -> None:
    options = {
        "dataset": dataset,
        "endpoint": endpoint,
        "concurrency": 2,
        "prefix_len": 12,
        "goodput": ("ttft:99999",),
    }
    report, outcomes = load(plain_server, **options)
    assert (report["completed"], report["failed"], report["model"]) == (8, 0, "null")
    assert report["output_tokens"] == 8 * 5
    assert report["input_tokens"] == sum(one.prompt_tokens for one in outcomes)
    assert all(abs(one.prompt_tokens - 20) <= 1 for one in outcomes)
    assert report["peak_concurrency"] == 2
    assert report["goodput_part"] == 1.0
    for outcome in outcomes:
        assert 0 < outcome.ttft <= outcome.e2e
    assert report["ttft_ms"]["p50"] <= report["ttft_ms"]["p99"] <= report["e2e_ms"]["max"]


def test_conversations(plain_server: RunningServer, tmp_path: Path) -> None:
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(CONVERSATIONS))
    report, outcomes = load(plain_server, dataset="sharegpt", dataset_path=str(path), output_len=None)
    assert report["completed"] == 8
    assert {(one.prompt_tokens, one.output_tokens) for one in outcomes} == {(2, 10), (3, 2)}


def test_prompts_are_the_same_each_time_and_share_their_beginnings() -> None:
    options = LoadOptions(
        dataset="shared-prefix", requests=40, input_len=40, prefix_len=30, prefixes=3, range_ratio=0.5
    )
    made = prompts(options, 1.0)
    assert made == prompts(options, 1.0)
    assert len({tuple(one.text.split()[:30]) for one in made}) == 3
    assert len({one.text for one in made}) == 40
    assert {5 <= len(one.text.split()) - 30 <= 15 for one in made} == {True}


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 100.0])
def test_requests_come_at_their_rate(burstiness: float) -> None:
    options = LoadOptions(rate=50.0, burstiness=burstiness)
    times = list(itertools.islice(arrivals(options), 4000))
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert statistics.mean(pauses) == pytest.approx(1 / 50, rel=0.1)
    assert statistics.stdev(pauses) == pytest.approx(1 / 50 / burstiness**0.5, rel=0.15)


def test_what_is_refused_is_counted_and_shown(serve: Serve) -> None:
    with serve(rate_limit=4) as server:
        report, _ = load(server)
    assert (report["completed"], report["failed"]) == (2, 6)  # /tokenize and the first request count too
    assert "429" in report["first_error"]


def test_the_command_writes_json_and_a_picture(plain_server: RunningServer, tmp_path: Path) -> None:
    files = {"--output": tmp_path / "out.json", "--plot": tmp_path / "out.png"}
    flags = [f"{flag}={path}" for flag, path in files.items()]
    command = [sys.executable, "-m", "anychip", "bench", "serve", f"--url={plain_server.base}", "--requests=4", *flags]
    done = subprocess.run([*command, "--output-len=3"], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    assert "TTFT" in done.stdout
    report = json.loads(files["--output"].read_text())
    assert len(report["requests"]) == report["completed"] == 4
    assert files["--plot"].read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty.json").write_text("[]")
    with pytest.raises(UserError, match="--dataset-path"):
        prompts(LoadOptions(dataset="sharegpt"), 1.0)
    for name in ("empty.json", "none.json"):
        with pytest.raises(UserError, match=name):
            prompts(LoadOptions(dataset="sharegpt", dataset_path=str(tmp_path / name)), 1.0)
    for text in ("ttft", "speed:5", "ttft:fast"):
        with pytest.raises(UserError, match="goodput"):
            goals(LoadOptions(goodput=(text,)))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(UserError, match="--url"):
            run(LoadOptions(url=f"http://127.0.0.1:{silent.getsockname()[1]}"), lambda done, failed: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"anychip\[plot\]"):
        check_plot()


def test_open_requests_are_counted() -> None:
    outcomes = [Outcome(start=start, end=end) for start, end in ((0, 2), (1, 3), (2, 4))]
    assert peak(outcomes) == 2
    assert peak([]) == 0

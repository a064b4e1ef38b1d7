"""Hooks run at start-up only."""

import json
import sys

import numpy as np

from anychip.config import make_config
from anychip.engine.batch import RowSampling
from anychip.engine.engine import Engine
from anychip.engine.messages import Submit

COUNTING = """
from anychip.plugin import hookimpl

CALLS = []


@hookimpl
def configure(config):
    CALLS.append("configure")
    return None


@hookimpl
def register_models(register):
    CALLS.append("register_models")
"""
START_UP = (
    "pluggy",
    "anychip.plugin.registry",
    "anychip.plugin.hookspec",
    "anychip.plugin.signatures",
    "dummy_counting",
)


def test_no_hook_and_nothing_of_the_registry_runs_in_a_step(plugin, tmp_path):
    plugin("dummy-counting", COUNTING)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 64}))
    options = {"model": str(tmp_path), "device": "null", "load_format": "dummy", "log_level": "error"}
    engine = Engine(make_config(options, {}), lambda what, done, total: None)
    calls = sys.modules["dummy_counting"].CALLS
    assert set(calls) == {"configure", "register_models"}
    at_start = list(calls)
    called = set()

    def record(frame, event, argument):
        if event == "call":
            called.add(frame.f_globals.get("__name__", ""))

    engine.handle(
        Submit(handle=1, prompt=np.arange(2, 40, dtype=np.int32).tobytes(), sampling=RowSampling(seed=1), max_tokens=9)
    )
    sys.setprofile(record)
    try:
        while engine.has_work:
            engine.step()
    finally:
        sys.setprofile(None)
    assert "anychip.engine.scheduler" in called
    assert not {name for name in called if name.startswith(START_UP)}
    assert calls == at_start
    engine.close()

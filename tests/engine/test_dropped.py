"""What is left of a model in the caller's own process."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path

from anychip import LLM


def null_model(path: Path) -> LLM:
    (path / "config.json").write_text(json.dumps({"model_type": "null", "vocab_size": 1000}))
    return LLM(model=str(path), device="null", load_format="dummy", skip_tokenizer_init=True)


def test_a_model_dropped_without_being_closed_goes_when_the_next_is_loaded(tmp_path: Path) -> None:
    first = null_model(tmp_path)
    engine = weakref.ref(first.engine)
    first.engine.scheduler.itself = first.engine  # type: ignore[attr-defined]  # a ring that only the collector finds
    del first
    null_model(tmp_path).close()
    assert engine() is None


def test_closing_gives_all_back_to_the_collector(tmp_path: Path) -> None:
    llm = null_model(tmp_path)
    assert gc.get_freeze_count() > 0, "collections would look through all that was imported, in the middle of a step"
    llm.close()
    assert gc.get_freeze_count() == 0

"""Reading what sentence-transformers writes beside a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anychip.errors import UserError
from anychip.weights.sentence import read_sentence_files


def write(folder: Path, *modules: str, pooling: dict[str, Any] | None = None, **files: Any) -> Path:
    listed = [{"idx": at, "path": "" if at == 0 else f"{at}_{name}", "type": f"sentence_transformers.models.{name}"}
              for at, name in enumerate(modules)]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling or {"pooling_mode_mean_tokens": True}))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_plain_folder_has_none(tmp_path: Path) -> None:
    assert read_sentence_files(tmp_path) is None


def test_everything_is_read(tmp_path: Path) -> None:
    settings = {"prompts": {"query": "query: "}, "default_prompt_name": "query", "similarity_fn_name": "dot"}
    texts = {"max_seq_length": 9, "do_lower_case": True}
    modules = ("Transformer", "Pooling", "Normalize")
    folder = write(tmp_path, *modules, config_sentence_transformers=settings, sentence_bert_config=texts)
    files = read_sentence_files(folder)
    assert files is not None
    assert (files.pooling, files.normalize, files.max_seq_length, files.lower_case) == ("mean", True, 9, True)
    assert (dict(files.prompts), files.default_prompt, files.similarity) == ({"query": "query: "}, "query", "dot")


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_each_kind_of_pooling(tmp_path: Path, config: dict[str, Any], kind: str) -> None:
    files = read_sentence_files(write(tmp_path, "Transformer", "Pooling", pooling=config))
    assert files is not None
    assert files.pooling == kind
    assert not files.normalize


@pytest.mark.parametrize(
    "config",
    [
        {"pooling_mode_max_tokens": True},
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
        {"pooling_mode_mean_tokens": False},
        {"pooling_mode_mean_tokens": True, "include_prompt": False},
    ],
)
def test_a_pooling_that_is_not_there_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="not supported"):
        read_sentence_files(write(tmp_path, "Transformer", "Pooling", pooling=config))


def test_a_module_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'Dense'"):
        read_sentence_files(write(tmp_path, "Transformer", "Pooling", "Dense"))


@pytest.mark.parametrize("text", ["{", "5", "[5]"])
def test_a_broken_list_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(UserError, match=r"modules\.json"):
        read_sentence_files(tmp_path)

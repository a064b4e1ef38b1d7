"""The demo model's tokenizer in a folder that transformers reads: `python write_tokenizer.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from anychip.config import make_config
from anychip.engine.locate import locate_model
from anychip.text.load import load_tokenizer


def main(folder: Path) -> None:
    """Write tokenizer.json and its config."""
    source = locate_model(make_config({"model": "demo"}), lambda what, done, total: None)
    tokenizer = load_tokenizer(source.path, None)
    assert tokenizer is not None
    folder.mkdir()
    tokenizer.backend.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer.special_tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


main(Path(sys.argv[1]))

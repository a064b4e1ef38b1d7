"""A tokenizer whose word `wN` is token N, with the special tokens of BERT around one text or two."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors

FIRST, LAST = 3, 4


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    words = {"[PAD]": 1, "[CLS]": FIRST, "[SEP]": LAST}
    taken = set(words.values())
    words |= {f"w{token}": token for token in range(vocabulary) if token not in taken}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", FIRST), ("[SEP]", LAST)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))

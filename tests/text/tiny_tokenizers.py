"""Small tokenizers of the kinds that models have, made on the spot."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The capital of France is Paris, and it's lovely in 2024.",
    "Straße, café, naïve, 日本語のテキスト, 한국어 문장, emoji 👍🏽 and 👩‍👩‍👧 too.",
    "def f(x):\n    return x ** 2\n\n\nprint(f(10))  # spaces   and\ttabs",
] * 4
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<s>", "<|im_start|>", "<|im_end|>"]


def byte_level() -> Tokenizer:
    """A trained byte-level vocabulary; `<s>`, `<|im_start|>`, `<|im_end|>` are its first ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    return tokenizer


def sentencepiece_pieces() -> tuple[list[str], list[float], list[int]]:
    """Tokens, scores and GGUF token types of a byte-fallback vocabulary."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [2, 3, 3] + [6] * 256
    scores = [0.0] * len(pieces)
    words = ["▁the", "▁capital", "▁Paris", "▁is", "▁", "Paris", "▁▁", "in", "▁in", "lo", "ly", "al", "an", "▁a", "er"]
    spelled = {character for word in words for character in word}
    for length in range(2, 9):
        spelled.update(word[:length] for word in words if len(word) > length)
    for rank, piece in enumerate(sorted({*words, *spelled}, key=lambda piece: (-len(piece), piece))):
        pieces.append(piece)
        scores.append(-float(rank + 1))
        types.append(1)
    return pieces, scores, types


def sentencepiece(strip: bool = True) -> Tokenizer:
    """The same vocabulary the way a Llama folder stores it."""
    pieces, scores, _ = sentencepiece_pieces()
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges = [
        (-scores[index], index, piece[:cut], piece[cut:])
        for index, piece in enumerate(pieces)
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
    pairs = [(left, right) for *_, left, right in sorted(merges)]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    prepend = [normalizers.Prepend("▁")] if strip else []
    tokenizer.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def word_pieces() -> Tokenizer:
    """A decoder that is no joining of bytes."""
    words = ["[UNK]", "[CLS]", "the", "cap", "##ital", "of", "is", "##s", "paris", ",", "."]
    tokenizer = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.add_special_tokens(["[CLS]"])
    return tokenizer


def metaspace() -> Tokenizer:
    """Sentencepiece with the older decoder, which takes the first token's space away."""
    tokenizer = sentencepiece()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def save_folder(folder: Path, tokenizer: Tokenizer, **config: object) -> Path:
    """Write tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def write_byte_level_gguf(path: Path, tokenizer: Tokenizer, pre: str, types: list[int] | None = None) -> Path:
    """The vocabulary of `byte_level()` as llama.cpp's converter would store it."""
    state = json.loads(tokenizer.to_str())
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([token for token, _ in vocabulary])
    default_types = [3, 3, 3] + [1] * (len(vocabulary) - 4) + [4]
    writer.add_token_types(types or default_types)
    writer.add_token_merges([" ".join(merge) for merge in state["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    return _finish(writer, path)


def write_sentencepiece_gguf(path: Path, **flags: bool) -> Path:
    """The vocabulary of `sentencepiece()` in a GGUF file; flags are `add_bos_token` and `add_space_prefix`."""
    pieces, scores, types = sentencepiece_pieces()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    for name, value in flags.items():
        writer.add_bool(f"tokenizer.ggml.{name}", value)
    return _finish(writer, path)


def _finish(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

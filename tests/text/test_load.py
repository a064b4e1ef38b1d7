from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text import tiny_tokenizers as tiny
from tokenizers import pre_tokenizers, processors
from transformers import AutoTokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer, get_gguf_tokenizer

from anychip.errors import UserError
from anychip.text.gguf_pretokenizers import PRE_TOKENIZERS, build_pre_tokenizer
from anychip.text.load import load_tokenizer
from anychip.text.tokenizer import Tokenizer

TEXTS = [
    *tiny.CORPUS[:3],
    "",
    " ",
    "  leading and trailing  ",
    "<|im_start|>user\nhi<|im_end|>",
    "12345 don't DON'T",
    "a\u0301",
]


def with_bos(tokenizer):
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


def test_a_folder_reads_like_transformers(tmp_path):
    tiny.save_folder(
        tmp_path,
        tiny.byte_level(),
        bos_token="<s>",
        eos_token={"__type": "AddedToken", "content": "<|im_end|>", "special": True},
        chat_template=tiny.TEMPLATE,
        tokenizer_class="PreTrainedTokenizerFast",
    )
    ours, reference = load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert ours.encode(text) == reference.encode(text)
        assert ours.decode(ours.encode(text)) == reference.decode(reference.encode(text), skip_special_tokens=True)
    assert (ours.bos_token_id, ours.eos_token_id) == (reference.bos_token_id, reference.eos_token_id) == (0, 2)
    assert ours.vocab_size == len(reference)
    assert ours.chat_template == tiny.TEMPLATE
    message = [{"role": "user", "content": "hi"}]
    assert ours.chat.render(message) == reference.apply_chat_template(
        message, tokenize=False, add_generation_prompt=True
    )


@pytest.mark.parametrize(
    ("stated", "in_file", "adds"), [(None, True, True), (None, False, False), (True, False, True), (False, True, False)]
)
def test_add_bos_token_of_the_configuration_decides(tmp_path, stated, in_file, adds):
    backend = with_bos(tiny.byte_level()) if in_file else tiny.byte_level()
    flags = {} if stated is None else {"add_bos_token": stated}
    tiny.save_folder(tmp_path, backend, bos_token="<s>", eos_token="<|im_end|>", **flags)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.adds_bos is adds
    assert tokenizer.encode("hi")[0] == 0 if adds else tokenizer.encode("hi")[0] != 0
    assert tokenizer.encode("hi", add_special_tokens=False)[0] != 0


def test_add_eos_token(tmp_path):
    tiny.save_folder(tmp_path, tiny.byte_level(), eos_token="<|im_end|>", add_eos_token=True)
    assert load_tokenizer(tmp_path).encode("hi")[-1] == 2


def test_truncation_and_padding_of_the_file_are_off(tmp_path):
    backend = tiny.byte_level()
    backend.enable_truncation(4)
    backend.enable_padding(length=4)
    tiny.save_folder(tmp_path, backend)
    assert len(load_tokenizer(tmp_path).encode("a b c d e f g h")) > 4


def test_special_tokens_of_the_configuration(tmp_path):
    backend = tiny.byte_level()
    decoder = {str(backend.token_to_id("<tool>")): {"content": "<tool>", "special": True}}
    tiny.save_folder(tmp_path, backend, added_tokens_decoder=decoder, pad_token="[NOT THERE]")
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "<|im_end|>"}}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode("a<tool>")) == "a"
    assert tokenizer.eos_token_id == 2
    assert tokenizer.vocab_size == backend.get_vocab_size()


def test_templates_in_files_and_lists(tmp_path):
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    tiny.save_folder(tmp_path, tiny.byte_level(), chat_template=named)
    message = [{"role": "user", "content": "hi"}]
    assert load_tokenizer(tmp_path).chat.render(message, tools=[{}]) == "t"
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "json"}))
    assert load_tokenizer(tmp_path).chat_template == "json"
    (tmp_path / "chat_template.jinja").write_text("jinja")
    assert load_tokenizer(tmp_path).chat_template == "jinja"
    assert load_tokenizer(tmp_path, "{{ 'given' }}").chat.render(message) == "given"
    (tmp_path / "own.jinja").write_text("own")
    assert load_tokenizer(tmp_path, str(tmp_path / "own.jinja")).chat.render(message) == "own"
    with pytest.raises(UserError, match=r"nothing\.jinja"):
        load_tokenizer(tmp_path, str(tmp_path / "nothing.jinja"))


def test_folders_that_cannot_be_read(tmp_path):
    assert load_tokenizer(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model"')
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(UserError, match="tokenizer"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "tekken", "gpt-4o", "qwen35"])
def test_a_byte_level_gguf_reads_like_transformers(tmp_path, pre):
    path = tiny.write_byte_level_gguf(tmp_path / "m.gguf", tiny.byte_level(), pre)
    ours = load_tokenizer(path)
    _, state, _ = get_gguf_tokenizer(str(path))
    reference, _ = convert_gguf_tokenizer("llama", state)
    for text in TEXTS:
        assert ours.encode(text, add_special_tokens=False) == reference.encode(text, add_special_tokens=False).ids
        assert ours.decode(ours.encode(text)) == reference.decode(ours.encode(text))
    assert ours.all_special_ids == [0, 1, 2]
    assert ours.adds_bos is (pre in ("llama-bpe", "tekken"))
    assert ours.chat_template == tiny.TEMPLATE


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=40))
def test_a_byte_level_gguf_is_the_tokenizer_it_was_made_from(text):
    assert GGUF_AND_ORIGINAL[0].encode(text) == GGUF_AND_ORIGINAL[1].encode(text)


@pytest.fixture(scope="module", autouse=True)
def _gguf_and_original(tmp_path_factory):
    original = tiny.byte_level()
    path = tiny.write_byte_level_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf", original, "gpt-2")
    GGUF_AND_ORIGINAL.extend([load_tokenizer(path), Tokenizer(original, {})])


GGUF_AND_ORIGINAL: list[Tokenizer] = []


@pytest.mark.parametrize("add_space_prefix", [True, False])
def test_a_sentencepiece_gguf_is_the_tokenizer_it_was_made_from(tmp_path, add_space_prefix):
    path = tiny.write_sentencepiece_gguf(tmp_path / "m.gguf", add_space_prefix=add_space_prefix)
    ours, original = load_tokenizer(path), Tokenizer(tiny.sentencepiece(strip=add_space_prefix), {})
    for text in [*TEXTS, "the capital  is Paris", "</s>the</s> the"]:
        assert ours.encode(text) == original.encode(text)
        assert ours.decode(ours.encode(text)) == original.decode(original.encode(text))
    assert ours.adds_bos
    assert ours.all_special_ids == [0, 1, 2]


def test_a_sentencepiece_gguf_reads_like_transformers(tmp_path):
    path = tiny.write_sentencepiece_gguf(tmp_path / "m.gguf", add_bos_token=False)
    ours = load_tokenizer(path)
    _, state, _ = get_gguf_tokenizer(str(path))
    reference, _ = convert_gguf_tokenizer("phi3", state)
    for text in ["the capital is Paris", "in London the lo", "日本 é", "  two"]:
        assert ours.encode(text) == reference.encode(text, add_special_tokens=False).ids
    assert not ours.adds_bos


def test_an_unknown_pre_tokenizer_or_kind_is_named(tmp_path):
    path = tiny.write_byte_level_gguf(tmp_path / "m.gguf", tiny.byte_level(), "weird-pre")
    with pytest.raises(UserError, match="weird-pre"):
        load_tokenizer(path)
    data = path.read_bytes().replace(b"gpt2", b"rwkv")
    path.write_bytes(data)
    with pytest.raises(UserError, match="rwkv"):
        load_tokenizer(path)


@settings(max_examples=40, deadline=None)
@given(text=st.text(max_size=40))
@pytest.mark.parametrize("rule", set(PRE_TOKENIZERS.values()), ids=lambda rule: str(len(rule.splits)))
def test_a_pre_tokenizer_loses_nothing(rule, text):
    splits = build_pre_tokenizer(rule).pre_tokenize_str(text)
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    assert "".join(piece for piece, _ in splits) == "".join(piece for piece, _ in spelled)


def test_smollm_splits_like_its_published_tokenizer():
    published = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    ours = build_pre_tokenizer(PRE_TOKENIZERS["smollm"])
    for text in [*TEXTS, "x1y22 333", "²½٣", "  \n\n 1  "]:
        assert ours.pre_tokenize_str(text) == published.pre_tokenize_str(text)


def test_the_text_room_imports_no_torch():
    code = "import sys, anychip.text.load; sys.exit(bool({'torch', 'transformers', 'gguf'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

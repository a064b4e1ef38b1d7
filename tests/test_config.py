"""The configuration: where values come from, and what is refused."""

import typing

import msgspec
import pytest

from anychip.config import FIELDS, EngineConfig, make_config
from anychip.errors import UserError


def test_the_default_has_no_origins():
    assert make_config({}, {}) == EngineConfig()
    assert make_config({"model": None, "max_model_len": None}, {}) == EngineConfig()


def test_an_argument_wins_over_the_environment():
    environment = {"ANYCHIP_MODEL": "a", "ANYCHIP_MAX_NUM_SEQS": "8", "MODEL": "b"}
    config = make_config({"model": "c"}, environment)
    assert (config.model, config.max_num_seqs) == ("c", 8)
    assert config.origins == {"model": "argument", "max_num_seqs": "environment"}


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("ANYCHIP_DEVICE", "reference:0")
    assert make_config({}).device == "reference:0"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("plugins", "cpu,toy", ("cpu", "toy")),
        ("enable_prefix_caching", "false", False),
        ("strict_kernels", "1", True),
        ("memory_utilization", "0.5", 0.5),
        ("kv_cache_memory_bytes", "1073741824", 2**30),
        ("seed", "-1", -1),
        ("chat_template", "{{ messages }}", "{{ messages }}"),
    ],
)
def test_text_of_the_environment_takes_the_type_of_the_field(name, text, value):
    assert getattr(make_config({}, {f"ANYCHIP_{name.upper()}": text}), name) == value


def test_every_option_can_be_set_from_the_environment():
    for name in FIELDS:
        config = make_config({}, {f"ANYCHIP_{name.upper()}": _text(name)})
        assert config.origins == {name: "environment"}


def _text(name):
    """A choice other than the first, or a number that every option takes."""
    for arm in (FIELDS[name], *typing.get_args(FIELDS[name])):
        if typing.get_origin(arm) is typing.Literal:
            return typing.get_args(arm)[-1]
    return "0.5" if name == "memory_utilization" else "1"


def test_the_token_of_the_hub_is_read_last():
    assert make_config({}, {"HF_TOKEN": "a"}).hf_token == "a"
    assert make_config({}, {"HF_TOKEN": "a", "ANYCHIP_HF_TOKEN": "b"}).hf_token == "b"
    assert make_config({"hf_token": "c"}, {"HF_TOKEN": "a"}).hf_token == "c"


def test_an_unknown_option_is_named_with_the_known_ones():
    with pytest.raises(UserError, match=r"Unknown option 'max_len'.*max_model_len"):
        make_config({"max_len": 3}, {})


def test_origins_are_no_option():
    with pytest.raises(UserError, match="Unknown option 'origins'"):
        make_config({"origins": {}}, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_model_len", 0),
        ("max_num_seqs", -1),
        ("max_num_seqs", "many"),
        ("block_size", 1.5),
        ("steps_in_flight", 0),
        ("memory_utilization", 0),
        ("memory_utilization", 1.01),
        ("memory_utilization", float("nan")),
        ("dtype", "float64"),
        ("load_format", "pickle"),
        ("scheduling_policy", "random"),
        ("enable_prefix_caching", "maybe"),
        ("model", 3),
        ("plugins", 3),
    ],
)
def test_a_bad_value_is_refused_by_name(name, value):
    with pytest.raises(UserError, match=name) as refused:
        make_config({name: value}, {})
    assert refused.value.remedy
    if isinstance(value, str):
        with pytest.raises(UserError, match=f"ANYCHIP_{name.upper()}"):
            make_config({}, {f"ANYCHIP_{name.upper()}": value})


def test_a_config_is_frozen():
    with pytest.raises(AttributeError):
        EngineConfig().model = "other"


def test_a_changed_copy_says_who_changed_it():
    config = make_config({"model": "a"}, {})
    changed = config.replace("toy", max_num_seqs=4)
    assert (config.max_num_seqs, changed.max_num_seqs) == (None, 4)
    assert changed.origins == {"model": "argument", "max_num_seqs": "toy"}
    with pytest.raises(UserError, match="max_num_seqs"):
        config.replace("toy", max_num_seqs=0)
    with pytest.raises(UserError, match="max_seqs"):
        config.replace("toy", max_seqs=4)


def test_the_cache_folder_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    assert str(EngineConfig(cache_dir="~/x").cache_path) == "/somewhere/x"


def test_every_field_is_an_option_but_origins():
    assert set(FIELDS) == {field.name for field in msgspec.structs.fields(EngineConfig)} - {"origins"}

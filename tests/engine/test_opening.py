"""A device that is opened before the model is known."""

import pytest

from anychip.config import make_config
from anychip.engine.engine import Engine
from anychip.engine.opening import open_device
from anychip.errors import UserError
from anychip.testing.tiny_model import write_tiny_model


def config(**options):
    return make_config({"device": "null", "load_format": "dummy", **options}, {})


def test_an_engine_takes_the_device_that_was_opened_for_its_config(tmp_path):
    """Only the model may differ: a client looks for it meanwhile."""
    model = str(write_tiny_model(tmp_path))
    early = open_device(config(model="a/name"))
    engine = Engine(config(model="a/name").replace("client", model=model), lambda what, done, total: None, early)
    assert engine.runner.platform is early.platform
    assert engine.config.model == model
    other = Engine(config(model=model, max_num_seqs=3), lambda what, done, total: None, early)
    assert other.runner.platform is not early.platform
    assert other.info.max_num_seqs == 3
    for each in (engine, other):
        each.close()


def test_a_device_that_is_not_there_is_a_sentence():
    with pytest.raises(UserError, match="No platform 'nope'"):
        open_device(config(device="nope"))

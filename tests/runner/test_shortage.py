import pytest
import torch
from tests.runner.driver import options, source, started

from anychip.errors import UserError
from anychip.ops.linear import linear
from anychip.ops.op import Kernel
from anychip.reference.platform import ReferencePlatform


class Small(ReferencePlatform):
    """A device on which products of many tokens, caches of many bytes, or any weights at all do not fit."""

    def __init__(self, tokens=1 << 30, cache=1 << 50, weights=True):
        super().__init__()
        self.tokens, self.cache, self.weights = tokens, cache, weights

    def kernels(self, spec):
        def limited(x, weight, bias):
            _allocate(len(x) <= self.tokens)
            return linear(x, weight, bias)

        return {"linear": Kernel(limited)}

    def allocate_kv(self, plan, ops):
        _allocate(plan.bytes <= self.cache)
        return super().allocate_kv(plan, ops)

    def prepare_weight(self, weight, out=None):
        _allocate(self.weights)
        return weight


def _allocate(fits):
    if not fits:
        raise torch.OutOfMemoryError("out of memory")


def test_weights_that_do_not_fit_are_told_by_size():
    platform = Small(weights=False)
    with pytest.raises(UserError, match=r"weights take .*, and the device has .* free") as caught:
        platform.runner(options(platform)).load(source(), lambda *report: None)
    assert "--device" in caught.value.remedy


@pytest.mark.parametrize(("limit", "remedy"), [(40, "--max-num-batched-tokens 32"), (16, "16"), (0, "smaller")])
def test_a_step_that_does_not_fit_names_one_that_does(limit, remedy):
    with pytest.raises(UserError, match="A step of 64 tokens does not fit") as caught:
        started(Small(tokens=limit))
    assert remedy in caught.value.remedy


def test_a_cache_that_does_not_fit_names_a_smaller_one():
    platform = Small(cache=100_000)
    with pytest.raises(UserError, match=r"KV cache of .* does not fit") as caught:
        started(platform)
    flag, size = caught.value.remedy.split(",")[0].split()[1:]
    assert flag == "--kv-cache-memory-bytes"
    assert 0 < int(size) < 49 * 16 * 2 * 128


def test_what_fits_is_not_refused():
    started(Small(tokens=64, cache=1 << 24)).close()

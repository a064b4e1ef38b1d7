import pytest
import torch
from tests.runner.driver import CONFIG, ROWS, options, source, started

from anychip.errors import UserError
from anychip.ops.linear import linear
from anychip.ops.op import Kernel
from anychip.plugin.contract import Memory
from anychip.reference.platform import ReferencePlatform
from anychip.sample.state import most_bytes


class Small(ReferencePlatform):
    """A device on which products of many tokens, logits of many rows, large caches, or any weights do not fit."""

    def __init__(self, tokens=1 << 30, cache=1 << 50, weights=True, rows=1 << 30):
        super().__init__()
        self.tokens, self.cache, self.weights, self.rows = tokens, cache, weights, rows

    def kernels(self, spec):
        def limited(x, weight, bias):
            _allocate(len(x) <= (self.rows if weight.shape[0] == CONFIG["vocab_size"] else self.tokens))
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


@pytest.mark.parametrize(
    ("limits", "remedy"),
    [
        ({"tokens": 40}, "Use --max-num-batched-tokens 32."),
        ({"tokens": 16}, "Use --max-num-batched-tokens 16."),
        ({"rows": 4}, "Use --max-num-seqs 3."),
        ({"rows": 1}, "Use --max-num-seqs 1."),
        ({"tokens": 40, "rows": 4}, "Use --max-num-batched-tokens 32 and --max-num-seqs 3."),
        ({"tokens": 0}, "Not even a small one does: free memory, or use a smaller or a quantized model."),
    ],
    ids=str,
)
def test_a_step_that_does_not_fit_names_one_that_does(limits, remedy):
    with pytest.raises(UserError, match="A step of 64 tokens of 6 requests does not fit") as caught:
        started(Small(**limits))
    assert caught.value.remedy == remedy


def test_a_cache_that_does_not_fit_names_a_smaller_one():
    platform = Small(cache=100_000)
    with pytest.raises(UserError, match=r"KV cache of .* does not fit") as caught:
        started(platform)
    flag, size = caught.value.remedy.split(",")[0].split()[1:]
    assert flag == "--kv-cache-memory-bytes"
    assert 0 < int(size) < 49 * 16 * 2 * 128


def test_what_fits_is_not_refused():
    started(Small(tokens=64, cache=1 << 24)).close()


class Fixed(ReferencePlatform):
    """A device whose memory stays as it is."""

    def memory(self):
        return Memory(10**9, 2 * 10**9)


def test_what_requests_may_ask_of_the_sampler_is_kept_free():
    platform = Fixed()
    runner = platform.runner(options(platform))
    runner.load(source(), lambda *report: None)
    assert runner.measure() == Memory(10**9 - most_bytes(ROWS, CONFIG["vocab_size"]), 2 * 10**9)

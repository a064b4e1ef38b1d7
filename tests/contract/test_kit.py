"""The kit itself: a platform with one thing wrong fails the check that looks at it."""

import textwrap

import pytest
import torch
from tests.contract.wrong_platforms import ATTENTION_GONE_WRONG, DEAF, FAMILY, HEAD, KERNELS, OPS_GONE_WRONG, TAIL

from anychip.ops.registry import OPS
from anychip.sampling_params import SamplingParams
from anychip.testing.attention_checks import ATTENTION_CHECKS
from anychip.testing.check import run_check
from anychip.testing.checks import CHECKS
from anychip.testing.sampling_checks import FIELDS
from anychip.testing.subject import Subject


def with_kernel(name, function, family=""):
    """A platform whose kernel for one op is `function`, a `def kernel(...)` at module level."""
    listed = f'"{name}": Kernel(kernel)'
    listed = f"{family}, {listed}" if family else listed
    return HEAD + KERNELS.format(listed=listed, functions=textwrap.dedent(function))


def outcome(plugin, source, name, tail=TAIL):
    """What a check says of a platform."""
    plugin("dummy-broken", source + tail)
    check = next(check for check in CHECKS if check.name == name)
    with Subject("broken", steps=60) as subject:
        return run_check(check, subject)


@pytest.mark.parametrize("name", OPS_GONE_WRONG)
def test_a_wrong_kernel_fails_its_op_and_the_message_names_it(plugin, name):
    function, *words = OPS_GONE_WRONG[name]
    result = outcome(plugin, with_kernel(name, function), name)
    assert result.status == "failed"
    for word in (name, "case", *words):
        assert word in result.remark


@pytest.mark.parametrize(
    ("fault", "check"), [(fault, check) for fault, (_, _, checks) in ATTENTION_GONE_WRONG.items() for check in checks]
)
def test_wrong_attention_fails_what_looks_at_it(plugin, fault, check):
    name, function, _ = ATTENTION_GONE_WRONG[fault]
    assert outcome(plugin, with_kernel(name, function, FAMILY), check).status == "failed"


LARGE_BLOCKS = (
    HEAD
    + """
    @property
    def capabilities(self):
        return replace(super().capabilities, dtypes=("float32",), block_sizes=(64,))

    def compile(self, step, plan):
        from anychip.runner.captured import CapturedSteps, Sizes

        sizes = Sizes(single=(1, 2, 4, 8))
        return CapturedSteps(
            step, plan, self.device, self.send, lambda run: run, super().compile(step, plan), sizes
        )
"""
)


@pytest.mark.parametrize("check", [check.name for check in CHECKS if check in ATTENTION_CHECKS])
def test_attention_checks_say_something_of_large_blocks_and_captured_steps_too(plugin, check):
    result = outcome(plugin, LARGE_BLOCKS, check)
    assert result.status == "passed", result.remark


def test_each_way_that_is_chosen_among_attends_large_steps(plugin):
    """One of two is wrong, and the check says which."""
    members = """
    @property
    def capabilities(self):
        return replace(super().capabilities, dtypes=("float32",), block_sizes=(64,), kv_cache_dtypes=())

    def choices(self, spec):
        other = Broken()
        other.kernels = lambda spec: {**self.kernels(spec), "paged_attention": Kernel(kernel)}
        return {"one way": self, "another": other}
"""
    function = """
def kernel(q, cache, plan, scale, softcap=0.0, sinks=None):
    long = plan.inputs.max_query > 100
    return attention.paged_attention(q, cache, plan, scale * (1.1 if long else 1.0), softcap, sinks)
"""
    source = HEAD + members + KERNELS.format(listed=FAMILY, functions=function)
    result = outcome(plugin, source, "large steps against the reference")
    small = next(check for check in CHECKS if check.name == "paged_attention")
    assert result.status == "failed"
    assert "another, blocks of 64: paged_attention float32, 128/8 heads of 128" in result.remark
    assert "one way" not in result.remark
    with Subject("broken") as subject:
        assert run_check(small, subject).status == "passed"


def test_attention_that_sees_nothing_is_caught_by_the_control(plugin):
    source = with_kernel(
        "paged_attention",
        "def kernel(q, cache, plan, scale, softcap=0.0, sinks=None):\n    return torch.zeros_like(q)\n",
        FAMILY,
    )
    result = outcome(plugin, source, "chunked = whole")
    assert result.status == "failed"
    assert "the control, with a mistake put in" in result.remark


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("top_k", "top_k=0"),
        ("top_p", "top_p=1.0"),
        ("min_p", "min_p=0.0"),
        ("temperature", "temperature=min(sampling.temperature, 0.5)"),
        ("seed", "seed=0"),
        ("presence_penalty", "presence_penalty=0.0"),
        ("repetition_penalty", "repetition_penalty=1.0"),
        ("logit_bias", "logit_bias=()"),
        ("allowed_token_ids", "allowed_token_ids=None"),
        ("bad_words", "bad_words=()"),
        ("min_tokens", "min_tokens=0"),
    ],
)
def test_a_runner_that_ignores_a_field_fails_that_field(plugin, field, change):
    result = outcome(plugin, HEAD + DEAF.format(change=change), f"sampling: {field}")
    assert result.status == "failed"


@pytest.mark.parametrize(
    ("check", "member"),
    [
        ("captured = eager", "    def compile(self, step):\n        return lambda inputs: 1.01 * step(inputs) + 0.1\n"),
        (
            "lowered = original",
            """
    def lower(self, module, spec):
        return torch.nn.Identity() if isinstance(module, GatedMLP) else None
""",
        ),
        (
            "memory moves when allocating",
            "    def memory(self):\n        return Memory(2**30, 2**31)\n",
        ),
        ("memory is reported", "    def memory(self):\n        return Memory(2**31, 2**30)\n"),
        (
            "copies survive",
            "    def fetch(self, tensor):\n        return super().fetch(tensor.half().float())\n",
        ),
    ],
)
def test_a_wrong_member_fails_what_looks_at_it(plugin, check, member):
    assert outcome(plugin, HEAD + member, check).status == "failed"


def test_a_probe_with_side_effects_is_caught(plugin, monkeypatch):
    tail = TAIL.replace("Probe(-1)", "(torch.set_default_dtype(torch.float64), Probe(-1))[1]")
    folder = plugin("dummy-broken", HEAD + "    pass\n" + tail)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    try:
        with Subject("broken") as subject:
            check = next(check for check in CHECKS if check.name == "the probe has no side effects")
            result = run_check(check, subject)
    finally:
        torch.set_default_dtype(torch.float32)
    assert result.status == "failed"
    assert "torch's default dtype: torch.float32 -> torch.float64" in result.remark


def test_a_reference_platform_under_another_name_passes_where_the_broken_ones_fail(plugin):
    plugin("dummy-broken", HEAD + "    pass\n" + TAIL)
    looked_at = {*OPS_GONE_WRONG, *(check for _, _, checks in ATTENTION_GONE_WRONG.values() for check in checks)}
    looked_at |= {f"sampling: {field}" for field in ("top_k", "seed", "logit_bias", "bad_words")}
    with Subject("broken", steps=60) as subject:
        for check in CHECKS:
            if check.name in looked_at:
                assert run_check(check, subject).status == "passed", check.label


def test_every_op_is_checked():
    assert [check.name for check in CHECKS if check.level == 1] == list(OPS)


def test_every_sampling_field_is_checked():
    checked = {field for names in FIELDS for field in names.split(", ")}
    assert checked == set(SamplingParams.__struct_fields__)


def test_labels_are_unique():
    labels = [check.label for check in CHECKS]
    assert len(set(labels)) == len(labels)

"""The kit on this platform, and the demo model against the reference: the same tokens, drawn ones too."""

from anychip import LLM, SamplingParams
from anychip.testing import PlatformSuite

PROMPTS = ["The capital of France is", "1, 2, 3, 4, 5,", "Water boils at a temperature of", "Once upon a time"]
SHARED = "A list of the planets, from the sun outwards: Mercury, Venus, Earth, Mars, Jupiter, Saturn. The first is"
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, logprobs=2)
DRAWN = SamplingParams(temperature=0.9, top_k=50, top_p=0.95, seed=5, max_tokens=8, ignore_eos=True)
TIE = 1e-3


class TestJax(PlatformSuite):
    platform = "jax"
    steps = 60


def continued(device, prompts, params, **options):
    small = {"max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 64}
    with LLM(model="demo", device=device, dtype="float32", **{**small, **options}) as llm:
        found = [llm.generate(prompts, each, use_tqdm=False) for each in params]
        return found, llm.engine.scheduler.stats


def test_the_demo_model_says_what_the_reference_says():
    """Prompts of several lengths at once, one of them in chunks, greedy and drawn by seed."""
    prompts = [*PROMPTS, SHARED * 4]
    (greedy, drawn), _ = continued("reference", prompts, (GREEDY, DRAWN))
    (ours, ours_drawn), _ = continued("jax", prompts, (GREEDY, DRAWN))
    for one, other in zip(ours, greedy, strict=True):
        for token, wanted, scores in zip(
            *(x.outputs[0].token_ids for x in (one, other)), other.outputs[0].logprobs, strict=True
        ):
            if token != wanted:
                best, second = sorted((each.logprob for each in scores.values()), reverse=True)[:2]
                assert best - second < TIE
                break
    assert sum(a.outputs[0].token_ids == b.outputs[0].token_ids for a, b in zip(ours_drawn, drawn, strict=True)) >= 4


def test_a_cached_prefix_changes_nothing():
    (first, again), stats = continued("jax", [SHARED], (GREEDY, GREEDY))
    assert stats.prefix_hits_total > 0
    assert first[0].outputs[0].token_ids == again[0].outputs[0].token_ids

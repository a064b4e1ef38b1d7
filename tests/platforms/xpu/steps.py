"""A model's steps on a platform whose tensors are fake: a prompt beside single tokens, single tokens alone, one row."""

from tests.runner import driver

from anychip.engine.batch import RowSampling
from anychip.plugin.contract import KVGroup, KVPlan

DRAWN = RowSampling(seed=0, temperature=1.0, top_p=0.9, logprobs=3)
PROMPT = list(range(40))


def started(platform, config, **options):
    """A runner with random weights of a Llama of that config, ready for steps."""
    runner = platform.runner(driver.options(platform, **{"dtype": "bfloat16", **options}))
    info = runner.load(driver.source(**config), lambda what, done, total: None)
    runner.measure()
    layers = tuple(range(len(info.kv_specs)))
    plan = KVPlan((KVGroup(info.kv_specs[0], layers, 49),), driver.BLOCK, driver.ROWS, 128, 64)
    runner.start(plan)
    return runner


def steps(runner):
    """Results of three steps, whose rows are (1, 2, 0), (0, 1, 2) and (0,)."""
    admitted = [driver.admit(0, PROMPT), driver.admit(1, [5], DRAWN), driver.admit(2, [6])]
    batches = (
        driver.batch([(0, PROMPT, 0), (1, [5], 0), (2, [6], 0)], admitted),
        driver.batch([(0, [3], 40), (1, [5], 1), (2, [6], 1)]),
        driver.batch([(0, [4], 41)], retired=(1, 2)),
    )
    return [driver.run(runner, batch) for batch in batches]

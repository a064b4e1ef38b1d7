"""KV plans and sequences for tests of the scheduler."""

import numpy as np

from anychip.engine.batch import RowSampling
from anychip.engine.messages import Submit
from anychip.plugin.contract import KVGroup, KVPlan, KVSpec, Plane


def make_plan(*num_blocks, block_size=4, max_num_seqs=8, max_model_len=64, budget=32):
    """A plan with one group for each number of blocks, the null block included."""
    spec = KVSpec("full", (Plane("k", (1, 4), "float32"), Plane("v", (1, 4), "float32")))
    groups = tuple(KVGroup(spec, (layer,), count) for layer, count in enumerate(num_blocks))
    return KVPlan(groups, block_size, max_num_seqs, max_model_len, budget)


def submit(handle, prompt, max_tokens=4, *, sampling=None, **fields):
    """A `Submit` of a list of token ids; its salt is also its seed, by which the device tells salts apart."""
    sampling = sampling or RowSampling(seed=0)
    salt = fields.pop("cache_salt", f"{sampling.seed}")
    prompt = np.array(prompt, np.int32).tobytes()
    return Submit(handle=handle, prompt=prompt, sampling=sampling, max_tokens=max_tokens, cache_salt=salt, **fields)

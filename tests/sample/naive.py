"""A sampler in float64 numpy, one row at a time, written straight from the definition of each field."""

from functools import partial

import numpy as np

from anychip.engine.batch import AdmittedRow, RowSampling
from anychip.sample.logit_ops import ReferenceLogitOps
from anychip.sample.op import SAMPLE_OPS


def edited(logits, row: AdmittedRow, output):
    """Logits [V] after masks, bias and penalties, given the output so far."""
    params = row.sampling
    logits = logits.astype(np.float64).copy()
    prompt = list(row.prompt_token_ids) if row.prompt_token_ids is not None else []
    history = prompt + list(output)
    if params.allowed_token_ids is not None:
        forbidden = np.setdiff1d(np.arange(len(logits)), params.allowed_token_ids)
        logits[forbidden] = -np.inf
    for word in params.bad_words:
        if len(word) == 1 or history[-(len(word) - 1) :] == list(word[:-1]):
            logits[word[-1]] = -np.inf
    if len(output) < params.min_tokens:
        logits[list(params.stop_token_ids)] = -np.inf
    for token, bias in params.logit_bias:
        logits[token] += bias
    for token in set(history):
        factor = params.repetition_penalty
        logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
    for token in set(output):
        logits[token] -= params.frequency_penalty * list(output).count(token) + params.presence_penalty
    return logits


def distribution(logits, params: RowSampling):
    """Probabilities [V] after temperature, min_p, top_k and top_p; ties at a threshold are kept."""
    scaled = (logits - logits.max()) / params.temperature
    weights = np.exp(scaled)
    weights[weights < params.min_p * weights.max()] = 0
    if params.top_k:
        weights[scaled < np.sort(scaled)[::-1][min(params.top_k, len(scaled)) - 1]] = 0
    if params.top_p < 1:
        order = np.sort(weights)[::-1]
        needed = np.searchsorted(np.cumsum(order), params.top_p * order.sum())
        weights[weights < order[min(needed, len(order) - 1)]] = 0
    return weights / weights.sum()


class ReferenceOps:
    """The ops of sampling, unbound."""

    greedy = staticmethod(SAMPLE_OPS[0].reference)
    sample = staticmethod(SAMPLE_OPS[1].reference)

    def __init__(self):
        self.take_highest, self.take_drawn = (partial(op.reference, self) for op in SAMPLE_OPS[2:])


LOGIT_OPS = ReferenceLogitOps()


def admitted(row=0, prompt=(), output=(), prompt_length=None, **params) -> AdmittedRow:
    """A row as the engine admits it, with history only where it is needed."""
    sampling = RowSampling(seed=params.pop("seed", 0), **params)
    history = sampling.needs_history
    return AdmittedRow(
        row=row,
        sampling=sampling,
        prompt_length=len(prompt) if prompt_length is None else prompt_length,
        prompt_token_ids=np.array(prompt, np.int32) if history else None,
        output_token_ids=np.array(output, np.int32) if history else None,
    )

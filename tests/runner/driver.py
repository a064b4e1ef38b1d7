"""A small model on a platform, driven batch by batch as the engine would."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anychip.config import make_config
from anychip.engine.batch import SAMPLE, AdmittedRow, Batch, RowSampling
from anychip.engine.sizing import resolve_config
from anychip.plugin.contract import KVGroup, KVPlan, ModelSource

CONFIG = {
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
GREEDY = RowSampling(seed=0, temperature=0.0)
BLOCK, ROWS, BLOCKS_A_ROW = 16, 6, 8


def source(**config):
    return ModelSource("tiny", Path("/nowhere"), "safetensors", {**CONFIG, **config}, {})


def options(platform, **values):
    given = {"load_format": "dummy", "max_num_seqs": ROWS, "max_num_batched_tokens": 64, **values}
    return resolve_config(make_config(given, {}), platform.capabilities)


def started(platform, **values):
    """A runner that has loaded the tiny model and waits for batches."""
    runner = platform.runner(options(platform, **values))
    info = runner.load(source(), lambda what, done, total: None)
    runner.measure()
    blocks = ROWS * BLOCKS_A_ROW + 1
    layers = tuple(range(len(info.kv_specs)))
    runner.start(KVPlan((KVGroup(info.kv_specs[0], layers, blocks),), BLOCK, ROWS, 128, 64))
    return runner


def batch(parts, admitted=(), retired=(), scored=(), copies=(), tables=None):
    """Parts are (row, token ids, position of the first); `scored` are indices of parts whose next tokens are scored."""
    parts = sorted(parts, key=lambda part: len(part[1]) > 1)
    lengths = [len(ids) for _, ids, _ in parts]
    start = np.cumsum([0, *lengths], dtype=np.int32)
    rows = np.array([row for row, _, _ in parts], np.int32)
    if tables is None:
        tables = np.arange(1, ROWS * BLOCKS_A_ROW + 1, dtype=np.int32).reshape(ROWS, BLOCKS_A_ROW)
    logits_at, targets = [], []
    for index, (_, ids, _) in enumerate(parts):
        if index in scored:
            logits_at += range(start[index], start[index + 1] - 1)
            targets += ids[1:]
        logits_at.append(int(start[index + 1]) - 1)
        targets.append(SAMPLE)
    return Batch(
        step=0,
        token_ids=np.array([token for _, ids, _ in parts for token in ids], np.int32),
        positions=np.concatenate(
            [np.arange(first, first + len(ids), dtype=np.int32) for _, ids, first in parts] or [np.zeros(0, np.int32)]
        ),
        query_start=start,
        seq_lens=np.array([first + len(ids) for _, ids, first in parts], np.int32),
        block_tables=(tables[rows],),
        rows=rows,
        logits_at=np.array(logits_at, np.int32),
        targets=np.array(targets, np.int32),
        num_single=lengths.count(1),
        admitted=tuple(admitted),
        retired=tuple(retired),
        block_copies=tuple(copies),
    )


def admit(row, prompt, sampling=GREEDY, output=None):
    history = sampling.needs_history
    return AdmittedRow(
        row,
        sampling,
        len(prompt),
        np.array(prompt, np.int32) if history else None,
        np.array(output or [], np.int32) if history else None,
    )


def run(runner, made):
    return runner.submit(made).finish().result()


def prompt(length, seed=0):
    return np.random.default_rng(seed).integers(0, CONFIG["vocab_size"], length).tolist()


def continuation(runner, row, ids, steps, sampling=GREEDY):
    """Tokens of one request alone, each read before the next step."""
    result = run(runner, batch([(row, ids, 0)], [admit(row, ids, sampling)], [row]))
    tokens = [int(result.token_ids[0])]
    for position in range(len(ids), len(ids) + steps - 1):
        tokens.append(int(run(runner, batch([(row, [tokens[-1]], position)])).token_ids[0]))
    return tokens

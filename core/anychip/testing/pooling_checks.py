"""Level 3: vectors of an encoder and of a decoder, against the reference and against themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anychip.engine.batch import Float32
from anychip.llm import LLM
from anychip.pooling_params import PoolingParams
from anychip.testing.attention_checks import CONTROL, TOLERANCE
from anychip.testing.bench import random_tokens
from anychip.testing.check import Check, NotApplicableError, Part, require
from anychip.testing.compare import normalized_error
from anychip.testing.subject import Subject, reference_subject

RAW = PoolingParams(use_activation=False)
LENGTHS = (1, 40, 17, 64, 2, 17, 33)


def _encoder(dtype: str, subject: Subject) -> str:
    """An encoder's ragged batch against the reference and against each prompt alone; control: the next row's."""
    model = subject.encoder()
    with reference_subject() as reference:
        wanted = _vectors(reference, model, "float32")
    given = _vectors(subject, model, dtype)
    alone = _vectors(subject, model, dtype, max_num_seqs=1)
    error, apart = _error(given, wanted), _error(given, alone)
    control = _error(np.roll(given, 1, axis=0), wanted)
    limit = TOLERANCE[dtype]
    require(error <= limit, f"{dtype}: relative error {error:.3g}, tolerance {limit:.3g}")
    require(apart <= limit, f"{dtype}: a ragged batch is {apart:.3g} off its prompts alone")
    require(control > CONTROL * limit, f"{dtype}: another row's vector is only {control:.3g} off")
    return f"{dtype}: {error:.1e}"


def _chunks(dtype: str, subject: Subject) -> str:
    """A decoder's mean over a prompt in chunks, against the same in one step."""
    model, options = subject.model(), {"task": "embed", "pooling": "mean"}
    whole = _vectors(subject, model, dtype, max_num_batched_tokens=256, **options)
    chunked = _vectors(subject, model, dtype, max_num_batched_tokens=13, **options)
    error = _error(chunked, whole)
    require(error <= TOLERANCE[dtype], f"{dtype}: in chunks {error:.3g} off, tolerance {TOLERANCE[dtype]:.3g}")
    return f"{dtype}: {error:.1e}"


def _parts(check: Callable[[str, Subject], str], subject: Subject) -> tuple[Part, ...]:
    if subject.torch_platform is None:
        raise NotApplicableError("the platform brings its own runner")
    return tuple(Part(f"vectors, {dtype}", partial(check, dtype)) for dtype in subject.capabilities.dtypes)


def _vectors(subject: Subject, model: Path, dtype: str, **options: Any) -> Float32:
    """[P, W] raw vectors of prompts of several lengths."""
    prompts = [{"prompt_token_ids": random_tokens(50 + row, length)} for row, length in enumerate(LENGTHS)]
    limits = {"model": str(model), "dtype": dtype, "max_model_len": None, **options}
    with LLM(**subject.options(**limits)) as llm:
        found = llm.encode(prompts, RAW, use_tqdm=False)
        llm.engine.check_integrity()
    return np.stack([output.outputs.data for output in found])


def _error(given: Float32, wanted: Float32) -> float:
    return normalized_error(torch.from_numpy(given), torch.from_numpy(wanted))


POOLING_CHECKS = (
    Check(3, "encoder: ragged = alone = reference", partial(_parts, _encoder)),
    Check(3, "pooled in chunks = whole", partial(_parts, _chunks)),
)

"""anychip: LLM inference and serving on any chip.

The public names are loaded when first used, so that `import anychip` stays fast and brings in no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anychip.version import __version__

if TYPE_CHECKING:
    from anychip.engine.async_engine import AsyncEngine
    from anychip.engine.outputs import CompletionOutput, Logprob, RequestOutput
    from anychip.errors import EngineDeadError, RequestError, UserError
    from anychip.grammar.params import StructuredOutputsParams
    from anychip.llm import LLM
    from anychip.pooling_params import PoolingParams
    from anychip.sampling_params import SamplingParams

_HOMES = {
    "AsyncEngine": "anychip.engine.async_engine",
    "CompletionOutput": "anychip.engine.outputs",
    "EngineDeadError": "anychip.errors",
    "LLM": "anychip.llm",
    "Logprob": "anychip.engine.outputs",
    "PoolingParams": "anychip.pooling_params",
    "RequestError": "anychip.errors",
    "RequestOutput": "anychip.engine.outputs",
    "SamplingParams": "anychip.sampling_params",
    "StructuredOutputsParams": "anychip.grammar.params",
    "UserError": "anychip.errors",
}

__all__ = [
    "LLM",
    "AsyncEngine",
    "CompletionOutput",
    "EngineDeadError",
    "Logprob",
    "PoolingParams",
    "RequestError",
    "RequestOutput",
    "SamplingParams",
    "StructuredOutputsParams",
    "UserError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'anychip' has no attribute {name!r}")

"""The engine's configuration: frozen, each value with its origin, the one place that reads the environment.

A value comes from, in this order: the caller (or a flag), `ANYCHIP_<FIELD>` in the environment, the default.
A plugin's `configure` hook returns a new config; it never edits one.
"""

from __future__ import annotations

import os
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from anychip.errors import UserError

ENV_PREFIX = "ANYCHIP_"

LoadFormat = Literal["auto", "safetensors", "gguf", "dummy"]
DType = Literal["auto", "float32", "bfloat16", "float16"]
KVCacheDType = Literal["auto", "int8", "fp8"]
Scheme = Literal["int4", "int8", "fp8"]
Policy = Literal["fcfs", "priority"]
TaskChoice = Literal["auto", "generate", "embed", "classify"]
PoolingChoice = Literal["auto", "mean", "cls", "last"]
Positive = Annotated[int, msgspec.Meta(ge=1, le=10**15)]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the engine can be told; names are those vLLM users know. Sizes are tokens unless they say bytes."""

    model: str = "demo"
    """A folder, a .gguf file, a Hugging Face id, `demo`, or `demo-embeddings`."""
    revision: str | None = None
    """Branch, tag or commit of a Hugging Face id."""
    tokenizer: str | None = None
    """Where the tokenizer lies, if not with the model."""
    task: TaskChoice = "auto"
    """What the model is loaded for; `auto` goes by its architecture and by the files of sentence-transformers."""
    pooling: PoolingChoice = "auto"
    """How an embedding is made of a text's hidden states; `auto` takes what the model's files say."""
    skip_tokenizer_init: bool = False
    """Take and give token ids only."""
    load_format: LoadFormat = "auto"
    """How weights are stored; `dummy` fills random values and reads no weight file."""
    dtype: DType = "auto"
    """Type of weights and activations; `auto` takes the checkpoint's if the platform has it."""
    quantization: Scheme | None = None
    """Round matrices to this format at load, whatever the checkpoint holds."""
    quantization_group_size: Positive | None = None
    """Inputs that share a scale: 32, 64 or 128; None takes 32 for int4, and whole rows for int8."""
    quantization_symmetric: bool = False
    """Round to int4 without zero points."""
    device: str = "auto"
    """NAME or NAME:INDEX of a platform; `auto` takes the best one found."""
    plugins: tuple[str, ...] | None = None
    """Allow-list of plugin names; None loads all that are installed."""
    strict_kernels: bool = False
    """Refuse to start when an op would run on its reference implementation."""
    max_model_len: Positive | None = None
    """Longest prompt plus output; None takes the model's own limit, or what the memory allows."""
    max_num_seqs: Positive | None = None
    """Most requests running at once; None takes the platform's."""
    max_num_batched_tokens: Positive | None = None
    """Token budget of one step; None lets the platform choose."""
    block_size: Positive | None = None
    """Tokens of one KV block; None takes the platform's first choice."""
    kv_cache_memory_bytes: Positive | None = None
    """Bytes for the KV cache; None sizes it from what is free after the worst step."""
    memory_utilization: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Part of the device's memory that the engine may use in all; None takes the platform's."""
    kv_cache_dtype: KVCacheDType = "auto"
    """Type of cached keys and values; `auto` is the model's, `int8` and `fp8` take about half of bfloat16's memory."""
    enable_prefix_caching: bool = True
    """Reuse the KV blocks of equal prompt beginnings."""
    scheduling_policy: Policy = "fcfs"
    """First come first served, or by the request's `priority` (lower runs first)."""
    steps_in_flight: Positive | None = None
    """Steps scheduled before the first one's tokens are known; None takes the platform's."""
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 0
    """Base of the random numbers of requests without a seed of their own."""
    threads: Positive | None = None
    """Host threads for compute; None takes one a core this process may use, of many cores all but one."""
    threads_bind: str = "auto"
    """Processors that threads stay on, such as `0-3,8`, or `none`; `auto` binds them on several NUMA nodes."""
    runtime: str = "auto"
    """Which of several runtimes a platform has is used, by its name there."""
    native_kernels: str = "auto"
    """Which build of a platform's own compiled kernels to use, by its name there; `none` leaves them out."""
    compile_ahead: bool = True
    """Compile kernels in processes beside the start, on platforms that compile them when they are first needed."""
    cache_dir: str = "~/.cache/anychip"
    """Where the demo models and compiled kernels are kept."""
    hf_token: str | None = None
    """Access token of Hugging Face; HF_TOKEN is read too."""
    chat_template: str | None = None
    """A template file, or the template itself, in place of the model's own."""
    generation_config: Literal["auto", "none"] = "auto"
    """`none` ignores the sampling defaults in the model's generation_config.json."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe message that is printed."""
    log_format: Literal["text", "json"] = "text"
    """How messages are printed: for people, or one JSON object a line."""
    origins: dict[str, str] = {}
    """Where each value that is not a default came from: `argument`, `environment`, or a plugin's name."""

    @property
    def cache_path(self) -> Path:
        """The cache folder with `~` expanded."""
        return Path(self.cache_dir).expanduser()

    def replace(self, origin: str, **changes: Any) -> EngineConfig:
        """A new config with some values changed by `origin`, checked like the first."""
        _check_known(changes)
        values = msgspec.structs.asdict(self)
        values.update(changes)
        values["origins"] = {**self.origins, **dict.fromkeys(changes, origin)}
        return _convert(values)


FIELDS: dict[str, Any] = {
    name: hint
    for name, hint in typing.get_type_hints(EngineConfig, include_extras=True).items()
    if name in EngineConfig.__struct_fields__ and name != "origins"
}
"""Every option with its annotated type; the command line makes a flag of each."""


def make_config(options: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> EngineConfig:
    """Build a config from `options` (None means: not given) and the environment.

    Raises `UserError` for an unknown option or a bad value.
    """
    environment = os.environ if environment is None else environment
    given = {name: value for name, value in options.items() if value is not None}
    _check_known(given)
    values, origins = _from_environment(environment)
    values.update(given)
    origins.update(dict.fromkeys(given, "argument"))
    return _convert({**values, "origins": origins})


def _check_known(options: Mapping[str, Any]) -> None:
    unknown = sorted(set(options) - set(FIELDS))
    if unknown:
        raise UserError(f"Unknown option {unknown[0]!r}.", f"Known options: {', '.join(sorted(FIELDS))}.")


CALM_THREADS = {"GOMP_SPINCOUNT": "10000"}
"""Makes OpenMP threads sleep soon when they wait: spinning ones keep other processes from the processors."""


def engine_environment() -> dict[str, str]:
    """The environment of an engine process: ours, with calm threads unless it says otherwise."""
    return {**CALM_THREADS, **os.environ}


def calm_own_threads() -> None:
    """The same for an engine in this process; it has to come before torch is imported, and else does nothing."""
    for name, value in CALM_THREADS.items():
        os.environ.setdefault(name, value)


def helper_environment(folder: Path) -> dict[str, str]:
    """The environment of a process that forks others: one thread, and temporary files in `folder`."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TMPDIR": str(folder)}


def worker_environment(folder: Path) -> dict[str, str]:
    """The environment of one of several processes that compute: calm threads, and temporary files in `folder`."""
    return {**engine_environment(), "TMPDIR": str(folder)}


def _from_environment(environment: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    for name, hint in FIELDS.items():
        text = environment.get(ENV_PREFIX + name.upper())
        if text is not None:
            values[name] = tuple(text.split(",")) if _is_tuple(hint) else text
    if "hf_token" not in values and environment.get("HF_TOKEN"):
        values["hf_token"] = environment["HF_TOKEN"]
    return values, dict.fromkeys(values, "environment")


def _is_tuple(hint: Any) -> bool:
    arms = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return any(typing.get_origin(arm) is tuple for arm in arms)


def _convert(values: dict[str, Any]) -> EngineConfig:
    try:
        return msgspec.convert(values, EngineConfig, strict=False)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`")
        what = (
            f"{ENV_PREFIX}{name.upper()}" if values["origins"].get(name) == "environment" else f"Option {name or '?'}"
        )
        raise UserError(f"{what}: {text}.", "See `anychip serve --help`.") from None

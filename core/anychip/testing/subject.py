"""The platform under test, and what all its checks share."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anychip.config import make_config
from anychip.plugin.contract import Capabilities, Platform
from anychip.plugin.registry import Chosen, Registry
from anychip.testing.null import NullPlatform
from anychip.testing.tiny_encoder import write_tiny_encoder
from anychip.testing.tiny_model import MAX_MODEL_LEN, Attention, write_tiny_model

if TYPE_CHECKING:
    from anychip.engine.async_engine import AsyncEngine
    from anychip.llm import LLM
    from anychip.runner.platform import TorchPlatform

MEBIBYTE = 2**20
STEPS = 200


class Subject:
    """A platform by its device name, found through its entry point as a user would. Use it in a `with`."""

    def __init__(self, device: str, steps: int = STEPS, runtime: str | None = None) -> None:
        self.device = device
        self.runtime = runtime
        """Which of the platform's runtimes; None leaves it to the environment."""
        self.steps = steps
        """Length of the random run."""
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="anychip-conform-")))
        self._models: dict[tuple[Attention, int], Path] = {}

    def __enter__(self) -> Subject:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the device and the folder."""
        self._stack.close()

    @cached_property
    def chosen(self) -> Chosen:
        """Where the device was found. Raises `UserError`."""
        return Registry().choose(self.device)

    @cached_property
    def platform(self) -> Platform:
        """The device, opened once for all checks. Raises `UserError`."""
        return self.chosen.open(make_config({"device": self.device, "runtime": self.runtime}))

    @property
    def capabilities(self) -> Capabilities:
        """What the platform declares."""
        return self.platform.capabilities

    @property
    def computes(self) -> bool:
        """Whether it runs models at all."""
        return not isinstance(self.platform, NullPlatform)

    @property
    def torch_platform(self) -> TorchPlatform | None:
        """The platform, if it came through the wide door."""
        if not self.computes:
            return None
        from anychip.runner.platform import TorchPlatform

        return self.platform if isinstance(self.platform, TorchPlatform) else None

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """The kinds of attention that the tiny model can have here."""
        kinds: tuple[Attention, ...] = ("full", "sliding")
        return tuple(kind for kind in kinds if kind in self.capabilities.attention_kinds)

    def model(self, attention: Attention = "full", length: int = MAX_MODEL_LEN) -> Path:
        """Folder of the tiny model for sequences of up to `length` tokens."""
        kind = attention, length
        if kind not in self._models:
            self._models[kind] = write_tiny_model(self._folder / f"{attention}-{length}", *kind)
        return self._models[kind]

    def encoder(self) -> Path:
        """Folder of the tiny encoder."""
        return write_tiny_encoder(self._folder / "encoder")

    def options(self, **changes: Any) -> dict[str, Any]:
        """Engine options for the tiny model on this device, small enough to share it with others."""
        return {
            "model": str(self.model()),
            "device": self.device,
            "runtime": self.runtime,
            "load_format": "auto" if self.computes else "dummy",
            "max_model_len": MAX_MODEL_LEN,
            "max_num_seqs": 64,
            "max_num_batched_tokens": 64,
            "threads": 1,
            "kv_cache_memory_bytes": 32 * MEBIBYTE,
            "log_level": "warning",
            **changes,
        }

    @cached_property
    def llm(self) -> LLM:
        """The tiny model in this process, for all checks that need only ask."""
        from anychip.llm import LLM

        return self._stack.enter_context(LLM(**self.options(dtype=self.dtype)))

    @cached_property
    def loop(self) -> asyncio.Runner:
        """The event loop of `async_engine`."""
        return self._stack.enter_context(asyncio.Runner())

    @cached_property
    def async_engine(self) -> AsyncEngine:
        """The tiny model in an engine process of its own."""
        from anychip.engine.async_engine import AsyncEngine

        engine = self.loop.run(AsyncEngine.create(make_config(self.options(dtype=self.dtype))))
        self._stack.callback(lambda: self.loop.run(engine.close()))
        return engine

    @property
    def dtype(self) -> str:
        """The type in which results are compared token by token: float32 if the platform has it."""
        dtypes = self.capabilities.dtypes
        return "float32" if "float32" in dtypes else dtypes[0]


def reference_subject() -> Subject:
    """What others are held to, whatever the environment says of theirs."""
    return Subject("reference", runtime="auto")

"""One engine for the terminal: loaded once, asked in turn. Ctrl-C ends what goes on, and leaves no process behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from anychip.cli.loading import loading_bar
from anychip.config import EngineConfig, make_config
from anychip.engine.spawn import spawn_engine
from anychip.errors import UserError
from anychip.log import setup_logging
from anychip.sampling_params import SamplingParams

if TYPE_CHECKING:
    from anychip.engine.outputs import Delta
    from anychip.text.tokenizer import Tokenizer

Messages = list[dict[str, str]]


class Session:
    """An engine process and the event loop that talks to it."""

    def __init__(self, options: dict[str, Any]) -> None:
        config = quiet_config(options)
        setup_logging(config.log_level, config.log_format)
        process = spawn_engine(config)  # it loads its libraries while this process does
        from anychip.engine.async_engine import AsyncEngine

        self._loop = asyncio.Runner()
        try:
            with loading_bar() as bar:
                self.engine = self._loop.run(AsyncEngine.create(config, bar, process))
        except BaseException:
            self._loop.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._loop:
            self._loop.run(self.engine.close())

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; `UserError` for a model without one."""
        if self.engine.tokenizer is None:
            raise UserError("This model has no tokenizer, so it takes no text.", "Use it from Python, with token ids.")
        return self.engine.tokenizer

    @property
    def context(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return self.engine.info.max_model_len

    def encode(self, text: str) -> list[int]:
        """Token ids of a text to complete."""
        return self.tokenizer.encode(text)

    def encode_chat(self, messages: Messages) -> list[int]:
        """Token ids of a conversation that asks for an answer; `UserError` for a model without a chat template."""
        template = self.tokenizer.chat
        if template is None:
            raise UserError("This model has no chat template.", "Give one with --chat-template.")
        return self.tokenizer.encode(template.render(messages), add_special_tokens=False)

    def speak(self, prompt: list[int], params: SamplingParams, write: Callable[[str], None]) -> str | None:
        """Generate, calling `write` with each new piece of text; why it ended. Ctrl-C raises KeyboardInterrupt."""
        return self._loop.run(self._speak(prompt, params, write))

    async def _speak(self, prompt: list[int], params: SamplingParams, write: Callable[[str], None]) -> str | None:
        last: Delta | None = None
        stream = self.engine.submit(prompt, params)
        try:
            async for delta in stream:
                last = delta
                if delta.text:
                    write(delta.text)
        finally:
            stream.abort()
        return last.finish_reason if last else None


def quiet_config(options: dict[str, Any]) -> EngineConfig:
    """The config of a command whose output is the answer: it logs warnings only, unless told otherwise."""
    config = make_config(options)
    return config if "log_level" in config.origins else config.replace("command", log_level="warning")

"""The asynchronous client of an engine in a process of its own, over a socket pair. Imports no torch."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, cast

from anychip.config import EngineConfig
from anychip.engine.channel import FrameBuffer, framed
from anychip.engine.collect import Collected, Collector
from anychip.engine.detached import run_detached
from anychip.engine.input import InputProcessor, PreparedRequest, Prompt, model_tokenizer
from anychip.engine.locate import locate_model
from anychip.engine.messages import (
    Abort,
    EngineInfo,
    Failure,
    Prepared,
    Progress,
    ResetPrefixCache,
    Shutdown,
    Start,
    Stats,
    StepOutputs,
    ToEngine,
    decode_from_engine,
    encode,
)
from anychip.engine.model_files import default_sampling
from anychip.engine.outputs import RequestOutput
from anychip.engine.pooling import Pair, VectorInputs
from anychip.engine.results import Gathered
from anychip.engine.spawn import EngineProcess, spawn_engine
from anychip.engine.stream import RequestStream
from anychip.errors import EngineDeadError, UserError
from anychip.plugin.contract import ModelSource
from anychip.plugin.tasks import Task
from anychip.pooling_params import PoolingParams
from anychip.sampling_params import SamplingParams
from anychip.text.chat_template import ChatTemplate
from anychip.text.tokenizer import Tokenizer

CLOSE_SECONDS = 10.0
ProgressCallback = Callable[[str, int, int], None]


class AsyncEngine:
    """An engine process and its requests. Make one with `create`; close it with `close`."""

    source: ModelSource
    tokenizer: Tokenizer | None
    info: EngineInfo
    inputs: InputProcessor
    vectors: VectorInputs
    default_sampling: dict[str, Any]

    def __init__(self, config: EngineConfig, progress: ProgressCallback | None, engine: EngineProcess) -> None:
        self.config = config
        self.stats = Stats()
        self.prepared = Prepared()
        self.last_words = "The engine process ended."
        self._progress = progress
        self._collector = Collector()
        self._streams: dict[Collected, RequestStream] = {}
        self._listeners: list[Callable[[StepOutputs], None]] = []
        self._ready: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
        self._died = asyncio.Event()
        self._process, self._socket = engine.process, engine.socket
        self._transport: asyncio.WriteTransport | None = None

    @classmethod
    async def create(
        cls, config: EngineConfig, progress: ProgressCallback | None = None, process: EngineProcess | None = None
    ) -> AsyncEngine:
        """Start the engine process, unless it is given, and wait until it has loaded the model.

        Raises `UserError` for what the user can fix, `EngineDeadError` for the rest.
        """
        self = cls(config, progress, process or spawn_engine(config))
        try:
            loop = asyncio.get_running_loop()
            # the process imports its libraries while the model is looked up, or fetched, here
            self.source = await run_detached(partial(locate_model, config, progress or _quiet))
            await loop.create_connection(lambda: _Receiver(self), sock=self._socket)
            self._send(Start(config.replace("client", model=str(self.source.path))))
            self.tokenizer = await run_detached(partial(model_tokenizer, config, self.source))
            self.info = await self._ready
        except BaseException:
            await self.close()
            raise
        self.inputs = InputProcessor(self.source, self.tokenizer, self.info, config.seed)
        self.vectors = VectorInputs(self.source, self.inputs)
        self.default_sampling = default_sampling(config, self.source)
        return self

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The model's chat template."""
        return self.tokenizer.chat if self.tokenizer else None

    @property
    def dead(self) -> bool:
        """Whether the engine process has ended."""
        return self._died.is_set()

    @property
    def open_sequences(self) -> int:
        """Sequences that were handed to the engine and have not ended."""
        return len(self._collector)

    async def wait_dead(self) -> None:
        """Return once the engine process has ended."""
        await self._died.wait()

    async def exit_code(self) -> int:
        """What the engine process, which has to be dead, ended with: a negative number for a signal."""
        await asyncio.to_thread(self._wait)
        return int(self._process.returncode)

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str = "",
        add_special_tokens: bool = True,
    ) -> RequestStream:
        """Validate a request and hand it to the engine. Raises `RequestError` or `EngineDeadError`."""
        if self.dead:
            raise EngineDeadError(self.last_words)
        prepared = self.inputs.prepare(
            prompt, params, priority=priority, cache_salt=cache_salt, add_special_tokens=add_special_tokens
        )
        return self._start(prepared, request_id)

    def submit_vector(
        self,
        prompt: Prompt | Pair,
        params: PoolingParams,
        task: Task,
        *,
        request_id: str | None = None,
        prompt_name: str | None = None,
        priority: int = 0,
        cache_salt: str = "",
        add_special_tokens: bool = True,
    ) -> RequestStream:
        """Validate a request for a vector and hand it to the engine. Raises `RequestError` or `EngineDeadError`.

        The stream has one delta, whose `vector` is the pooled one; `vectors` turns it into an embedding or a score.
        """
        if self.dead:
            raise EngineDeadError(self.last_words)
        prepared = self.vectors.prepare(
            prompt,
            params,
            task,
            prompt_name=prompt_name,
            priority=priority,
            cache_salt=cache_salt,
            add_special_tokens=add_special_tokens,
        )
        return self._start(prepared, request_id)

    def _start(self, prepared: PreparedRequest, request_id: str | None) -> RequestStream:
        collected = Collected(request_id or f"req-{uuid.uuid4().hex}", prepared, self.tokenizer)
        stream = RequestStream(self, collected)
        self._collector.open(collected)
        self._streams[collected] = stream
        for submit in prepared.submits:
            self._send(submit)
        return stream

    async def generate(
        self, prompt: Prompt, params: SamplingParams, request_id: str | None = None, *, priority: int = 0
    ) -> AsyncIterator[RequestOutput]:
        """Yield the whole output so far each time something is added, as vLLM's engine does."""
        stream = self.submit(prompt, params, request_id=request_id, priority=priority)
        gathered = Gathered(stream.collected)
        async for delta in stream:
            gathered.add(delta)
            yield gathered.output()

    def abort(self, stream: RequestStream) -> None:
        """Stop a request; harmless when it is over."""
        collected = stream.collected
        self._streams.pop(collected, None)
        handles = self._collector.close(collected)
        if handles and not self.dead:
            self._send(Abort(handles))
        stream.wake()

    def add_listener(self, listener: Callable[[StepOutputs], None]) -> None:
        """Call `listener` once for each message of the engine, before requests see it."""
        self._listeners.append(listener)

    async def reset_prefix_cache(self) -> None:
        """Forget all cached blocks that no running request holds."""
        self._send(ResetPrefixCache())

    async def close(self) -> None:
        """End the process; open requests raise `EngineDeadError`."""
        if self._process.poll() is None and not self.dead:
            if self._ready.done() and not self._ready.cancelled():
                self._send(Shutdown())
            else:
                self._process.terminate()  # it reads no message before it has loaded
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._wait)
        self.lost("The engine was closed.")

    def receive(self, frame: bytes) -> None:
        """Take in one message of the engine, without its length."""
        message = decode_from_engine(frame)
        match message:
            case StepOutputs():
                self._take(message)
            case Progress() if self._progress:
                self._progress(message.what, message.done, message.total)
            case EngineInfo() if not self._ready.done():
                self._ready.set_result(message)
            case Prepared():
                self.prepared = message
            case Failure():
                self.lost(message.message, message)

    def lost(self, words: str, failure: Failure | None = None) -> None:
        """The process is gone: every open request fails, and says `words`. Later calls do nothing."""
        if self._died.is_set():
            return
        self.last_words = words
        self._died.set()
        self._socket.close()
        if not self._ready.done():
            self._ready.set_exception(_startup_error(words, failure))
            self._ready.exception()  # nobody may be waiting any more
        for stream in list(self._streams.values()):
            stream.wake()

    def _take(self, outputs: StepOutputs) -> None:
        self.stats = outputs.stats
        for listener in self._listeners:
            listener(outputs)
        touched, stopped = self._collector.collect(outputs)
        if stopped:
            self._send(Abort(stopped))
        for collected in touched:
            if stream := self._streams.get(collected):
                stream.wake()

    def _send(self, message: ToEngine) -> None:
        frame = framed(encode(message))
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    def _wait(self) -> None:
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Receiver(asyncio.Protocol):
    """Feeds an engine's bytes to its client."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._frames = FrameBuffer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._engine._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is one without saying so

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            self._engine.receive(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.lost("The engine process ended unexpectedly; its log says why.")


def _startup_error(words: str, failure: Failure | None) -> Exception:
    if failure is not None and not failure.detail:
        return UserError(failure.message, failure.remedy)
    return EngineDeadError(words)


def _quiet(what: str, done: int, total: int) -> None:
    return None

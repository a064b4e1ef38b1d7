"""The contract between the core and a platform. Everything a plugin may rely on is here, in `Batch`, and in the ops.

`Platform` is the narrow door: bring a `Runner` in any framework. `TorchPlatform` (anychip.runner) is the wide one:
name a torch device and override what your chip does better.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from anychip.engine.batch import Batch, Masks, StepResult
from anychip.plugin.communicator import Communicator
from anychip.plugin.tasks import SentenceFiles, Task

if TYPE_CHECKING:
    from anychip.config import EngineConfig

API_VERSION = 1
"""Version of this contract, of `Batch`, `StepResult`, `KVSpec` and of the op signatures together."""

AttentionKind = Literal["full", "sliding", "latent", "recurrent", "cross", "none"]
Progress = Callable[[str, int, int], None]
"""Called with (what, done, total) while something long goes on."""

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a device: `free` for us to take now, out of `total`."""

    free: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a platform can do, as data. The core reads it; nobody asks who the platform is."""

    dtypes: tuple[str, ...] = ("float32",)
    """Types it computes in, best first: float32, bfloat16, float16."""
    block_sizes: tuple[int, ...] = (16,)
    """Tokens of a KV block its kernels take, best first."""
    steps_in_flight: int = 1
    """Steps that may be submitted before the first one's result is read."""
    batched_tokens: int = 2048
    """Token budget of a step unless the user says otherwise."""
    max_num_seqs: int = 256
    """Requests running at once, at most, unless the user says otherwise."""
    memory_utilization: float = 0.9
    """Part of the memory the engine takes unless the user says otherwise."""
    attention_kinds: tuple[AttentionKind, ...] = ("full", "sliding")
    """Kinds of KV its attention reads."""
    weight_formats: tuple[str, ...] = ()
    """Quantized formats kept as they are: `int4`, `int8`, `fp8` as `--quantization` makes them, and `kquant`."""
    kv_cache_dtypes: tuple[str, ...] = ()
    """Types of KV cache beside the model's own: `int8` and `fp8`, with a scale for each head of each token."""
    refused_references: tuple[str, ...] = ()
    """Ops whose reference would be uselessly slow here: without a kernel, start is refused."""
    token_masks: bool = False
    """Whether `Step.finish` honours masks: without it nothing can follow a grammar."""
    collective_backend: str | None = None
    """torch.distributed's backend name for the default communicator; None: one rank only."""
    runtimes: tuple[str, ...] = ()
    """Libraries it can reach the device through, by the names that `--runtime` takes; empty where there is one."""


@dataclass(frozen=True, slots=True)
class Plane:
    """One named array of a KV cache: `shape` of one token's entry, e.g. (kv_heads, head_dim)."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token's entry."""
        size = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "uint8": 1, "float8_e4m3fn": 1}[self.dtype]
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True, slots=True)
class KVSpec:
    """What one layer caches. Layers with equal specs share a group, a block table and lengths.

    A layer of kind `none` caches nothing: it sees the step's own tokens only, as in an encoder.
    """

    kind: AttentionKind
    """What of the past a token sees."""
    planes: tuple[Plane, ...]
    """`k` and `v`, and others a kind needs; empty where nothing is cached."""
    window: int | None = None
    """Tokens a sliding layer sees, the current one included."""
    causal: bool = True
    """Whether a token sees none after it; if not, a prompt has to run whole in one step."""

    @property
    def coded(self) -> bool:
        """Whether keys and values are codes: each `NAME` then has its scales in a plane `NAME_scale`."""
        return any(plane.name.endswith("_scale") for plane in self.planes)

    @property
    def bytes_per_token(self) -> int:
        """Bytes one layer keeps for a token."""
        return sum(plane.bytes_per_token for plane in self.planes)


@dataclass(frozen=True, slots=True)
class KVGroup:
    """Layers that share a block table: `layers` are indices into `ModelInfo.kv_specs`."""

    spec: KVSpec
    layers: tuple[int, ...]
    num_blocks: int
    """Blocks to allocate, NULL_BLOCK included."""


@dataclass(frozen=True, slots=True)
class KVPlan:
    """What the core decided over all groups and ranks; the runner allocates it."""

    groups: tuple[KVGroup, ...]
    block_size: int
    """Tokens of a block."""
    max_num_seqs: int
    """Requests that run at once, at most: rows are numbered below it."""
    max_model_len: int
    """Tokens of the longest sequence."""
    max_num_batched_tokens: int
    """Tokens of the largest step."""

    @property
    def bytes(self) -> int:
        """Bytes of all caches."""
        return sum(
            group.num_blocks * self.block_size * group.spec.bytes_per_token * len(group.layers) for group in self.groups
        )


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the runner says of the model it has loaded."""

    kv_specs: tuple[KVSpec, ...]
    """One a layer, in order."""
    vocab_size: int
    max_model_len: int
    """Positions the model was made for."""
    weight_bytes: int = 0
    """Bytes that the weights take on the device."""
    dtype: str = "float32"
    notes: tuple[str, ...] = ()
    """Lines for the start-up log: what fell back, which library is in use."""
    ops: tuple[tuple[str, str, str], ...] = ()
    """(op, how it runs, why not by a kernel) for each op, for people who look."""
    tasks: tuple[Task, ...] = ("generate",)
    """What it can be asked for."""
    vector_size: int = 0
    """Values of a pooled vector: an embedding's dimensions, a classifier's labels; 0 if it generates."""
    pools_all: bool = False
    """Whether a vector needs every token of its prompt computed, so that no cached prefix may stand in for some."""

    @property
    def whole_prompts(self) -> bool:
        """Whether a prompt has to run whole in one step."""
        return any(not spec.causal for spec in self.kv_specs)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model lies, resolved on this machine."""

    name: str
    """As the user gave it."""
    path: Path
    """A folder, or a .gguf file."""
    kind: Literal["safetensors", "gguf"]
    config: Mapping[str, Any]
    """Content of config.json, or the same made from GGUF metadata."""
    generation_config: Mapping[str, Any]
    """Content of generation_config.json, or the same made from GGUF metadata; empty without any."""
    model_class: str = ""
    """`module:Class` of the plugin that registered this model_type, if one did."""
    sentence: SentenceFiles | None = None
    """What the files of sentence-transformers beside the model say, if it has some."""


class Pending(ABC, Generic[T_co]):
    """A value the device is still working on."""

    @abstractmethod
    def result(self) -> T_co:
        """Wait for it. A device error is raised here."""


class Ready(Pending[T_co]):
    """A value that is there already."""

    def __init__(self, value: T_co) -> None:
        self._value = value

    def result(self) -> T_co:
        """The value."""
        return self._value


@dataclass(frozen=True, slots=True)
class Late:
    """What the host knew only after the forward was submitted."""

    masks: Masks


class Step(ABC):
    """A forward pass under way."""

    @abstractmethod
    def finish(self, late: Late | None = None) -> Pending[StepResult]:
        """Sample. Called once a step, in order."""


@dataclass(frozen=True, slots=True)
class Control:
    """An order to every rank between two steps: adapters, weights, sleep. `kind` says which."""

    kind: str
    arguments: Mapping[str, Any]


class Runner(ABC):
    """Runs one model on one rank's devices."""

    @abstractmethod
    def load(self, source: ModelSource, progress: Progress) -> ModelInfo:
        """Bring the weights to the device. Raises `UserError` for what the user can fix."""

    @abstractmethod
    def measure(self) -> Memory:
        """Memory left after the worst step (the full token budget) has run once."""

    @abstractmethod
    def start(self, plan: KVPlan) -> None:
        """Allocate the caches and warm up."""

    @abstractmethod
    def submit(self, batch: Batch) -> Step:
        """Start a forward pass; returns before the device is done and keeps no reference to the batch's arrays."""

    def prepare(self) -> bool:
        """Make one thing that a step to come would wait for, in a moment without work; False where nothing is left."""
        return False

    def compilations(self) -> int:
        """Programs that were compiled for shapes of steps before serving; where there are any, none is afterwards."""
        return 0

    def control(self, request: Control) -> Pending[None]:
        """Carry out an order between steps. By default every kind is refused."""
        from anychip.errors import UserError

        raise UserError(f"This platform's runner does not know the order {request.kind!r}.")

    def close(self) -> None:  # noqa: B027 (nothing to give back is fine)
        """Give back memory; further calls are a bug."""


class Platform(ABC):
    """One kind of hardware, opened on the devices of one rank."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do, as data; the defaults promise little."""
        return Capabilities()

    @abstractmethod
    def memory(self) -> Memory:
        """Free and total bytes now."""

    @abstractmethod
    def runner(self, config: EngineConfig) -> Runner:
        """The platform's model runner. `config` has every None that matters filled in."""

    def communicator(self, group: Sequence[int]) -> Communicator:
        """Collectives among the ranks of `group`; a platform with one rank has none."""
        from anychip.errors import UserError

        raise UserError(
            "This platform declares no collectives.", "Run on one device, or use a platform that lists a backend."
        )

"""The library's calls as a step makes them, noted so that the library can make them again by itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NOTHING, CONSTANT, INPUT, RESULT, INTEGER, NUMBER, LIST = range(7)
"""Words of an argument, as in program.h."""


@dataclass(slots=True)
class NotedCall:
    """One call: `words` are its arguments, which refer to `tensors` and `numbers`."""

    name: str
    words: list[int] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)

    def repeats(self, other: NotedCall) -> bool:
        """Whether `other` is the same call, of the very same constants."""
        same = (self.name, self.words, self.numbers) == (other.name, other.words, other.numbers)
        return same and [*map(id, self.tensors)] == [*map(id, other.tensors)]


class Notes(TorchDispatchMode):
    """While it is entered, notes the calls of the operators in `namespace`; `stranger` names the first of any other.

    Tensors that are neither an input nor some call's result are taken for constants.
    """

    def __init__(self, namespace: str, inputs: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[NotedCall] = []
        self.stranger = ""
        self._namespace = namespace
        # Kept, so that no tensor takes the identity of one before.
        self._known: dict[int, tuple[torch.Tensor, tuple[int, ...]]] = {}
        for number, tensor in enumerate(inputs):
            self._know(tensor, INPUT, number)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is ever compiled; to make sure of that, torch would import its whole compiler."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and note it."""
        result = func(*args, **(kwargs or {}))
        if func.namespace != self._namespace or kwargs:
            self.stranger = self.stranger or str(func)
            return result
        call = NotedCall(func._schema.name.split("::")[1])
        for argument in args:
            self._write(argument, call)
        results = result if isinstance(result, tuple) else (result,)
        for number, tensor in enumerate(results):
            self._know(tensor, RESULT, len(self.calls), number)
        self.calls.append(call)
        return result

    def words_of(self, tensors: Iterable[torch.Tensor]) -> list[int] | None:
        """Words for what a step leaves; None if one of the tensors is neither result nor input."""
        known = [self._known.get(id(tensor)) for tensor in tensors]
        return None if None in known else [word for found in known if found is not None for word in found[1]]

    def _know(self, tensor: torch.Tensor | None, *words: int) -> None:
        if tensor is not None:
            self._known[id(tensor)] = tensor, words

    def _write(self, argument: Any, call: NotedCall) -> None:
        match argument:
            case None:
                call.words.append(NOTHING)
            case torch.Tensor() if id(argument) in self._known:
                call.words += self._known[id(argument)][1]
            case torch.Tensor():
                call.words += (CONSTANT, len(call.tensors))
                call.tensors.append(argument)
            case int():
                call.words += (INTEGER, argument)
            case float():
                call.words += (NUMBER, len(call.numbers))
                call.numbers.append(argument)
            case list() | tuple():
                call.words += (LIST, len(argument))
                for part in argument:
                    self._write(part, call)
            case _:
                self.stranger = self.stranger or f"{call.name} of {argument!r}"

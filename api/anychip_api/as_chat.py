"""Requests of other protocols in the form of a chat, and their answers as blocks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from anychip.errors import RequestError
from anychip_api.answer import Answer, Head
from anychip_api.blocks import Blocks, Change
from anychip_api.conversation import start_chat
from anychip_api.errors import invalid_fields
from anychip_api.fields import check_extra_fields
from anychip_api.generation import Generation
from anychip_api.merge import Deltas
from anychip_api.reader import Reading
from anychip_api.sampling import renamed
from anychip_api.schemas import ChatRequest, SamplingRequest
from anychip_api.service import Service


def shared_fields(body: SamplingRequest) -> dict[str, Any]:
    """The fields that a chat has under the same names."""
    return {name: getattr(body, name) for name in SamplingRequest.model_fields}


def chat_request(fields: Mapping[str, Any], names: Mapping[str, str]) -> ChatRequest:
    """The chat with these fields; raises `RequestError` about one of them, by its name in `names`."""
    try:
        chat = ChatRequest.model_validate(fields)
        check_extra_fields(chat.model_extra or {}, strict=True)
    except ValidationError as error:
        raise renamed(invalid_fields(error), names) from None
    except RequestError as error:
        raise renamed(error, names) from None
    return chat


async def start_as_chat(
    service: Service, fields: Mapping[str, Any], names: Mapping[str, str], request_id: str
) -> tuple[Generation, Reading]:
    """Begin to answer a chat with these fields; raises `RequestError` as `chat_request` does."""
    chat = chat_request(fields, names)
    try:
        return await start_chat(service, chat, request_id)
    except RequestError as error:
        raise renamed(error, names) from None


class BlocksAnswer(Answer):
    """An answer of one choice, made of blocks."""

    def __init__(self, generation: Generation, head: Head, stream: bool, reading: Reading) -> None:
        super().__init__(generation, head, stream)
        self.blocks = Blocks(reading.reader())

    @abstractmethod
    def change(self, change: Change) -> bytes:
        """The events for a change of the blocks."""

    def add(self, deltas: Deltas) -> None:
        """Keep what came."""
        for _, delta in deltas:
            self.blocks.add(delta)

    def events(self, deltas: Deltas) -> bytes:
        """What came, as events."""
        return b"".join(self.change(change) for _, delta in deltas for change in self.blocks.add(delta))

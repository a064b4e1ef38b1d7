"""`anychip chat`."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Annotated

import typer

from anychip.cli.fields import engine_fields
from anychip.cli.flags import Values, with_flags
from anychip.cli.sampling import sampling_fields, sampling_params
from anychip.cli.session import Messages, Session
from anychip.cli.terminal import writer
from anychip.errors import UserError

HELP = "/reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer."


@with_flags(sampling=sampling_fields(), engine=engine_fields())
def chat(
    system: Annotated[str | None, typer.Option(help="A system message before the talk.", show_default=False)] = None,
    *,
    sampling: Values,
    engine: Values,
) -> None:
    """Talk with a model in the terminal; without --model it is `demo`."""
    with contextlib.suppress(ImportError):  # some builds of Python have no line editing
        importlib.import_module("readline")
    opening: Messages = [{"role": "system", "content": system}] if system else []
    with Session(engine) as session:
        print(f"{session.engine.source.name}. {HELP}", file=sys.stderr)
        _talk(session, opening, sampling)


def _talk(session: Session, opening: Messages, sampling: Values) -> None:
    messages = list(opening)
    while (said := _listen()) is not None:
        if said == "/exit":
            return
        if said == "/reset":
            messages = list(opening)
        elif said.startswith("/"):
            print(HELP, file=sys.stderr)
        elif said:
            _exchange(session, messages, said, sampling)


def _listen() -> str | None:
    """The next line, None at the end of input; Ctrl-C at the prompt gives an empty line."""
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return None
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return ""


def _exchange(session: Session, messages: Messages, said: str, sampling: Values) -> None:
    """One question and its answer, added to `messages`; a question that does not fit is taken back."""
    messages.append({"role": "user", "content": said})
    try:
        messages.append({"role": "assistant", "content": _answer(session, messages, sampling)})
    except UserError as error:
        messages.pop()
        print(f"anychip: {error.message} {error.remedy}".rstrip(), file=sys.stderr)


def _answer(session: Session, messages: Messages, sampling: Values) -> str:
    """What the model says, written as it comes; Ctrl-C keeps what was said until then."""
    ids = session.encode_chat(messages)
    room = session.context - len(ids)
    params = sampling_params(sampling, session.engine.default_sampling, temperature=0.7, room=room)
    spoken: list[str] = []
    show = writer(sys.stdout)

    def write(text: str) -> None:
        spoken.append(text)
        show(text)

    try:
        session.speak(ids, params, write)
    except KeyboardInterrupt:
        show(" [stopped]")
    print(flush=True)
    return "".join(spoken)

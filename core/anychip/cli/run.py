"""`anychip run`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from anychip.cli.fields import engine_fields
from anychip.cli.flags import Values, with_flags
from anychip.cli.sampling import sampling_fields, sampling_params
from anychip.cli.terminal import writer
from anychip.errors import UserError


@with_flags(sampling=sampling_fields(), engine=engine_fields())
def run(
    prompt: Annotated[
        str | None, typer.Argument(help="A question; without it, standard input.", show_default=False)
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Complete the text, without the model's chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="A system message first.", show_default=False)] = None,
    *,
    sampling: Values,
    engine: Values,
) -> None:
    """Ask one question, or complete a text; the answer goes to standard output as it is made."""
    text = _read(prompt)
    from anychip.cli.session import Session

    with Session(engine) as session:
        if raw or session.tokenizer.chat is None:
            ids = session.encode(text)
        else:
            before = [{"role": "system", "content": system}] if system else []
            ids = session.encode_chat([*before, {"role": "user", "content": text}])
        room = session.context - len(ids)
        params = sampling_params(sampling, session.engine.default_sampling, temperature=0.0, room=room)
        reason = session.speak(ids, params, writer(sys.stdout))
        print(flush=True)
    if reason == "length" and "max_tokens" not in sampling:
        print(f"anychip: stopped after {params.max_tokens} tokens; --max-tokens sets the limit.", file=sys.stderr)


def _read(prompt: str | None) -> str:
    if prompt is None and sys.stdin.isatty():
        raise UserError("There is no prompt.", 'Write one: anychip run "..."; or use `anychip chat`.')
    text = _read_input() if prompt is None else prompt
    if not text.strip():
        raise UserError("The prompt is empty.", "Write a question, or a text to complete.")
    return text


def _read_input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise UserError("Standard input is no text in UTF-8.", "Convert it first, for example with iconv.") from None

"""Errors that reach a person: a sentence and what to do about it."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can fix; the command line prints it without a traceback and exits with 2.

    `message` says what is wrong in one sentence, `remedy` what to do about it.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.message = message
        self.remedy = remedy


class RequestError(UserError):
    """One request is wrong: the server answers 400 and every other request goes on.

    `param` names the offending field, as in OpenAI's error object.
    """

    def __init__(self, message: str, param: str | None = None, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.param = param


class EngineDeadError(Exception):
    """The engine process ended; every open request fails with this and no new one is taken."""

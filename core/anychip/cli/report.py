"""How a command ends: a user's mistake is a sentence and status 2, Ctrl-C is status 130, a bug keeps its traceback."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable

from anychip.errors import EngineDeadError, UserError

USER_ERROR = 2
BUG = 1
INTERRUPTED = 130
"""What a shell reports for a program that SIGINT ended."""
_PIPE_CLOSED = 141


def reported(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command so that it ends in this way."""

    @functools.wraps(command)
    def call(*arguments: object, **options: object) -> None:
        status = ended(lambda: command(*arguments, **options))
        if status:
            sys.exit(status)

    return call


def ended(work: Callable[[], None]) -> int:
    """Do the work; the exit status. An exception that is a bug is raised."""
    try:
        work()
    except UserError as error:
        print(f"anychip: {error.message} {error.remedy}".rstrip(), file=sys.stderr)
        return USER_ERROR
    except EngineDeadError as error:  # the engine's process has printed its own traceback
        print(f"anychip: {error}", file=sys.stderr)
        return BUG
    except BrokenPipeError:
        _discard_output()
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _discard_output() -> None:
    """The reader of our output has gone: let the interpreter's last flush find no broken pipe."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)

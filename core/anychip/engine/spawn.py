"""The engine's process and our end of its socket pair. Imports little, so that a command can start it first of all."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from anychip.config import engine_environment


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """A process that waits for `Start`, and ends when the socket is closed."""

    process: subprocess.Popen[bytes]
    socket: socket.socket


def spawn_engine(modules: Sequence[str] = ()) -> EngineProcess:
    """Start the process. It imports its libraries, and the `modules` it is likely to need, while the caller goes on."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "anychip.engine.process", str(theirs.fileno()), *modules]
    process = subprocess.Popen(
        command,
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        env=engine_environment(),
        process_group=0,  # the client decides what Ctrl-C ends
    )
    theirs.close()
    ours.setblocking(False)
    return EngineProcess(process, ours)

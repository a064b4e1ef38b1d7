"""The engine's process and our end of its socket pair. Imports little, so that a command can start it first of all."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from dataclasses import dataclass

from anychip.config import EngineConfig, engine_environment


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """A process that waits for `Start`, and ends when the socket is closed."""

    process: subprocess.Popen[bytes]
    socket: socket.socket


def spawn_engine(config: EngineConfig) -> EngineProcess:
    """Start the process. It imports its libraries and opens the device of `config` while the caller goes on."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "anychip.engine.process", str(theirs.fileno())]
    process = subprocess.Popen(
        command,
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        env=engine_environment(),
        process_group=0,  # the client decides what Ctrl-C ends
    )
    theirs.close()
    from anychip.engine.channel import framed  # what these need to be imported is imported there meanwhile
    from anychip.engine.messages import Open, encode

    with contextlib.suppress(OSError):  # it has ended: whoever reads hears so
        ours.sendall(framed(encode(Open(config))))
    ours.setblocking(False)
    return EngineProcess(process, ours)

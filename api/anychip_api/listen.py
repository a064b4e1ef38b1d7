"""The listening socket, taken before anything is loaded."""

from __future__ import annotations

import errno
import resource
import socket

from anychip.errors import UserError

_BACKLOG = 2048
_MOST_FILES = 65536


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address; raises `UserError` naming the flag to change."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise UserError(f"The host {host!r} has no address.", "Choose another with --host.") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _explained(error, host, port) from None
    return listener


def listen(listener: socket.socket) -> None:
    """Begin to take connections; two servers that bound the same port at the same time part here."""
    host, port = listener.getsockname()[:2]
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        raise _explained(error, host, port) from None


def raise_file_limit() -> None:
    """Let this process have as many connections as the system grants it; the usual 1024 are soon used up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def address_of(listener: socket.socket) -> str:
    """`host:port` as it goes into a URL."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _explained(error: OSError, host: str, port: int) -> UserError:
    if error.errno == errno.EADDRINUSE:
        return UserError(
            f"Port {port} of {host} is in use by another program.", "End that program, or choose another with --port."
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return UserError(f"This user may not listen on port {port}.", "Choose one above 1023 with --port.")
    if error.errno == errno.EADDRNOTAVAIL:
        return UserError(f"The address {host} does not belong to this machine.", "Choose another with --host.")
    return UserError(f"Cannot listen on {host} port {port}: {error.strerror}.", "Change --host or --port.")

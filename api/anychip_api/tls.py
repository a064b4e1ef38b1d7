"""The certificate of an HTTPS server, read before anything else is loaded."""

from __future__ import annotations

import ssl
from pathlib import Path

from anychip.errors import UserError
from anychip_api.options import ServerOptions


def tls_context(options: ServerOptions) -> ssl.SSLContext | None:
    """The context of an HTTPS server, None for plain HTTP; raises `UserError` naming the flag to change."""
    if options.ssl_certfile is None:
        if options.ssl_keyfile is not None:
            raise UserError("A key without a certificate was given.", "Add --ssl-certfile.")
        return None
    for flag, name in (("--ssl-certfile", options.ssl_certfile), ("--ssl-keyfile", options.ssl_keyfile)):
        if name is not None and not Path(name).is_file():
            raise UserError(f"There is no file {name}.", f"Change {flag}.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(options.ssl_certfile, options.ssl_keyfile, password=_no_password)
    except (ssl.SSLError, OSError) as error:
        raise UserError(
            f"The certificate cannot be used: {error}.",
            "Check that --ssl-certfile and --ssl-keyfile are PEM files that belong together, the key without password.",
        ) from None
    return context


def _no_password() -> str:
    return ""  # rather than asking on the terminal

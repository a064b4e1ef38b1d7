"""What reads the bytes of a connection: HTTP/1.1, whatever else a client offers to speak."""

from __future__ import annotations

from array import array
from typing import Protocol

from httptools import HttpParserUpgrade, HttpRequestParser

OFFER = b"upgrade"
"""The header by which a client offers another protocol. Java's own client offers HTTP/2 with every request."""


class Reader(Protocol):
    """Who is told what was read."""

    parser: Parser
    url: bytes
    headers: list[tuple[bytes, bytes]]


class Parser(HttpRequestParser):
    """Takes up no offer, as the protocol allows. httptools ends such a request with its head, and forgets its body.

    The reader hears of the request when its head is read once more, without the offer.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self.set_dangerous_leniencies(lenient_data_after_close=True)
        self._reader = reader

    @property
    def offered(self) -> bool:
        """Whether the head just read is to be read once more."""
        return self.should_upgrade() and any(name == OFFER for name, _ in self._reader.headers)

    def feed_data(self, data: bytes | bytearray | memoryview | array[int]) -> None:
        """Read some bytes."""
        try:
            super().feed_data(data)
        except HttpParserUpgrade as offer:
            if not self.offered:
                raise
            self._reader.parser = Parser(self._reader)
            self._reader.parser.feed_data(self._head() + bytes(data)[offer.args[0] :])

    def _head(self) -> bytes:
        first = b"%s %s HTTP/%s" % (self.get_method(), self._reader.url, self.get_http_version().encode())
        headers = (b"%s: %s" % header for header in self._reader.headers if header[0] != OFFER)
        return b"\r\n".join([first, *headers, b"", b""])

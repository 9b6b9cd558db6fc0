"""uvicorn's protocol, bounded: a request whose head or body does not come to an end is ended.

uvicorn itself waits for ever for the rest of a request, and keeps every header that comes. A sweep once a second looks
at all connections, so that a request costs two assignments and no timer.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 32_768
MAX_SECONDS = 15.0
SWEEP = 1.0

TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b"
)
TOO_LARGE = TOO_SLOW.replace(b"408 Request Timeout", b"431 Request Header Fields Too Large")


def closing(template: bytes, status: int, title: str, detail: str) -> bytes:
    body = (
        f'{{"type": "urn:allocator:Refused", "title": "{title}", "status": {status}, "error": "Refused", '
        f'"detail": "{detail}", "request": ""}}'
    ).encode()
    return template % (len(body), body)


SLOW = closing(TOO_SLOW, 408, "Request Timeout", f"a request must arrive within {MAX_SECONDS:g} seconds")
LARGE = closing(
    TOO_LARGE, 431, "Request Header Fields Too Large", f"the head of a request has at most {MAX_HEAD} bytes"
)


class BoundedProtocol(HttpToolsProtocol):
    """`since` is when the request began that has not arrived as a whole, None between requests."""

    sweeper: asyncio.TimerHandle | None = None
    now = 0.0
    """The time of the last sweep, or of the last connection."""

    since: float | None
    head: int | None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        BoundedProtocol.now = monotonic()
        self.since, self.head = BoundedProtocol.now, 0
        if BoundedProtocol.sweeper is None:
            self.sweep_later()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.since, self.head = BoundedProtocol.now, 0

    def on_headers_complete(self) -> None:
        self.head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.since = None
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.head is not None and self.since is not None:
            self.head += len(data)
            if self.head > MAX_HEAD:
                self.end(LARGE)

    def end(self, answer: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(answer)
        self.transport.close()

    # -- all connections of this worker

    def sweep_later(self) -> None:
        BoundedProtocol.sweeper = self.loop.call_later(SWEEP, self.sweep)

    def sweep(self) -> None:
        BoundedProtocol.now = monotonic()
        BoundedProtocol.sweeper = None
        for connection in list(self.connections):
            if isinstance(connection, BoundedProtocol):
                connection.end_if_slow()
        if self.connections:
            self.sweep_later()

    def end_if_slow(self) -> None:
        if self.since is not None and BoundedProtocol.now - self.since > MAX_SECONDS:
            self.end(SLOW)

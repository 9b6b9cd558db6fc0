"""uvicorn's protocol, bounded: a request whose head or body does not come to an end is ended.

uvicorn itself waits for ever for the rest of a request, and keeps every header that comes. A sweep once a second looks
at all connections instead of a timer for each, so that a request costs next to nothing more.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from allocator.service.forms import MAX_BODY

MAX_HEAD = 32_768
MAX_UNENDED = MAX_BODY + MAX_HEAD
MAX_SECONDS = 15.0
FAREWELL = 1.0
"""Seconds for a client to answer that a connection is closed: over TLS the loop would wait for half a minute."""
SWEEP = 1.0


def closing(status: int, title: str, detail: str) -> bytes:
    """A whole answer, for where there is no request yet that could be answered."""
    body = (
        f'{{"type": "urn:allocator:Refused", "title": "{title}", "status": {status}, "error": "Refused", '
        f'"detail": "{detail}", "request": ""}}'
    )
    head = f"HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


SLOW = closing(408, "Request Timeout", f"a request must arrive within {MAX_SECONDS:g} seconds")
LARGE = closing(431, "Request Header Fields Too Large", f"the head of a request has at most {MAX_HEAD} bytes")


class BoundedProtocol(HttpToolsProtocol):
    """A connection; `cycle` is uvicorn's, one for each request whose head has arrived."""

    sweeper: asyncio.TimerHandle | None = None

    unended = 0
    """Bytes that came since the head of the last request was whole: its body, and the beginning of the next."""
    counted: Any = None
    """The request after which they came."""
    since: float | None = None
    """When the sweep first saw that this connection makes no headway."""
    headway: Any = None
    """What it had come to by then."""
    closing: float | None = None
    """When the sweep first saw that this connection was closed here."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if BoundedProtocol.sweeper is None:
            self.sweep_later()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not self.counted:
            self.counted, self.unended = self.cycle, 0
            return
        self.unended += len(data)
        if self.unended > (MAX_UNENDED if self.is_answering() else MAX_HEAD):
            self.end(LARGE)

    def is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def end(self, answer: bytes) -> None:
        """Say why, unless an answer is under way, and hang up."""
        if self.is_answering() or self.transport.get_write_buffer_size():
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()

    # -- all connections of this worker

    def sweep_later(self) -> None:
        BoundedProtocol.sweeper = self.loop.call_later(SWEEP, self.sweep)

    def sweep(self) -> None:
        BoundedProtocol.sweeper = None
        now = monotonic()
        for connection in list(self.connections):
            if isinstance(connection, BoundedProtocol):
                connection.look(now)
        if self.connections:
            self.sweep_later()

    def look(self, now: float) -> None:
        """End what waits too long: for the rest of a request, for its answer to be read, for a farewell."""
        unread = self.transport.get_write_buffer_size()
        idle = self.timeout_keep_alive_task is not None
        if not unread and self.transport.is_closing():
            self.await_farewell(now)
        elif not unread and (idle or self.is_answering()):
            self.since = None
        elif self.since is None or self.headway != (self.cycle, unread):
            self.since, self.headway = now, (self.cycle, unread)
        elif now - self.since > MAX_SECONDS:
            self.end(SLOW)

    def await_farewell(self, now: float) -> None:
        if self.closing is None:
            self.closing = now
        elif now - self.closing >= FAREWELL:
            self.transport.abort()

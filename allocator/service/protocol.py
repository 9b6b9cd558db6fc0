"""uvicorn's protocol, bounded: a request whose head or body does not come to an end is ended.

uvicorn itself waits for ever for the rest of a request, and keeps every header that comes. A sweep once a second looks
at all connections instead of a timer for each, so that a request costs next to nothing more.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 32_768
MAX_SECONDS = 15.0
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
    """`since` is when the sweep first saw that the connection waits for the rest of a request, after `after`."""

    sweeper: asyncio.TimerHandle | None = None

    since: float | None = None
    after: Any = None
    head = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if BoundedProtocol.sweeper is None:
            self.sweep_later()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            self.head = 0
            return
        self.head += len(data)
        if self.head > MAX_HEAD:
            self.end(LARGE)

    def waits(self) -> bool:
        """Whether a request has begun, or a connection, and not come to its end; not one that is being answered."""
        return self.timeout_keep_alive_task is None and (self.cycle is None or self.cycle.response_complete)

    def end(self, answer: bytes) -> None:
        if not self.transport.is_closing():
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
        if not self.waits():
            self.since = None
        elif self.since is None or self.after is not self.cycle:
            self.since, self.after = now, self.cycle
        elif now - self.since > MAX_SECONDS:
            self.end(SLOW)

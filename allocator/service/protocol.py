"""uvicorn's protocol with bounds on connections, and on the lines, bytes and seconds of a request's head.

uvicorn has no setting for these: it waits for ever for the rest of a head and keeps every header, and its
`limit_concurrency` refuses honest requests while unfinished ones stay. A sweep once a second looks at all connections
instead of a timer for each, so that a request costs next to nothing more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import cache
from http import HTTPStatus
from itertools import count
from time import monotonic
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from allocator.service.parameters import MAX_BODY
from allocator.service.problems import CONTENT_TYPE, Busy, HttpRefusal, body_of, headers_of

MAX_HEAD = 16_384
MAX_LINES = 100
"""Header lines of a request; each costs some two hundred bytes, however short it is."""
PIECE = 4096
MAX_UNENDED = MAX_BODY + 262_144
"""What one read of the event loop brings comes on top of a body, so that the application can still refuse it."""
MAX_SECONDS = 15.0
MAX_CONNECTIONS = 10_000
"""Of one worker; an idle one costs four kilobytes."""
MAX_PARTIAL = 500
"""Connections of one worker that have sent a part of a head. An honest head arrives in one or two pieces."""
FAREWELL = 1.0
"""Seconds for a client to answer that a connection is closed: over TLS the loop would wait for half a minute."""
SWEEP = 1.0


def closing(status: int, detail: str) -> bytes:
    """A whole answer, for where there is no request yet that could be answered."""
    refusal = Busy(detail) if status == 503 else HttpRefusal(status, detail)
    body = body_of(refusal, "")
    headers = {"content-type": CONTENT_TYPE, "connection": "close", **headers_of(refusal), "content-length": len(body)}
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


SLOW = closing(408, f"a request must arrive within {MAX_SECONDS:g} seconds")
LARGE = closing(431, f"the head of a request has at most {MAX_HEAD} bytes and {MAX_LINES} header lines")
CROWDED = closing(503, "too many requests arrive in pieces; send this one again")
MALFORMED = closing(400, "this is not HTTP/1.1")

connection_numbers = count()


@cache
def most_connections() -> int:
    """As many as there may be; fewer where this process may not open so many files."""
    try:
        import resource
    except ImportError:  # not on this system
        return MAX_CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files * 3 // 4)


class BoundedProtocol(HttpToolsProtocol):
    """A connection; `cycle` is uvicorn's, one for each request whose head has arrived."""

    sweeper: asyncio.TimerHandle | None = None
    partial: ClassVar[dict[BoundedProtocol, None]] = {}
    """Connections of this worker that have sent a part of a head, the oldest first."""

    number = 0
    """Greater than those of older connections."""
    in_head = False
    """A head has begun and is not complete."""
    unended = 0
    """Bytes of the request that came last: of its head, and of its body."""
    since: float | None = None
    """When the sweep first saw that this connection makes no headway."""
    headway: Any = None
    """What it had come to by then."""
    closing: float | None = None
    """When the sweep first saw that this connection was closed here."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.begun: deque[Any] = deque()
        """All requests that are not answered yet, of which uvicorn knows the last alone."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.number = next(connection_numbers)
        if len(self.connections) > most_connections():
            self.make_room()
        if BoundedProtocol.sweeper is None:
            self.sweep_later()

    def connection_lost(self, exc: Exception | None) -> None:
        """An answer that is still written to a closed connection would be a mistake of the service's."""
        self.partial.pop(self, None)
        super().connection_lost(exc)
        for cycle in self.begun:
            cycle.disconnected = True
            cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE):  # so that not all of a long head is parsed before it is refused
            super().data_received(data[start : start + PIECE])
            self.unended += PIECE if start + PIECE < len(data) else len(data) - start
            if self.in_head or self.partial:
                self.bound_head()
            if self.transport.is_closing():
                return
        if self.unended > (MAX_HEAD if self.in_head or not self.is_answering() else MAX_UNENDED):
            # The rest of a body after its answer: whatever is said would be read as that of the next request.
            self.end(LARGE if self.in_head or self.cycle is None else b"")

    def bound_head(self) -> None:
        """Of unfinished heads, end one of too many lines, and the oldest of too many."""
        if not self.in_head:
            self.partial.pop(self, None)
        elif len(self.headers) > MAX_LINES:
            self.end(LARGE)
        else:
            self.partial[self] = None
            if len(self.partial) > MAX_PARTIAL:
                next(iter(self.partial)).end(CROWDED)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.in_head, self.unended = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Leave out trailers: uvicorn appends them to the headers, without a bound, where one could be a token."""
        if self.in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.in_head = False
        if len(self.headers) > MAX_LINES:
            raise ValueError  # the parser stops, and uvicorn calls `send_400_response`
        super().on_headers_complete()
        while self.begun and self.begun[0].response_complete:
            self.begun.popleft()
        self.begun.append(self.cycle)

    def send_400_response(self, msg: str) -> None:
        self.end(LARGE if len(self.headers or ()) > MAX_LINES else MALFORMED)

    def make_room(self) -> None:
        """End the oldest hundredth of the connections, those first that never sent a request."""
        others = [one for one in self.connections if isinstance(one, BoundedProtocol) and one is not self]
        waiting = [one for one in others if not one.is_answering()]
        waiting.sort(key=lambda one: (one.cycle is not None, one.number))
        for one in waiting[: 1 + len(waiting) // 100]:
            one.transport.abort()

    def is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def end(self, answer: bytes) -> None:
        """Say why, unless an answer is under way, and hang up."""
        self.partial.pop(self, None)
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

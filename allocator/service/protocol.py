"""uvicorn's protocol with limits on connections, and on the lines, bytes and seconds of a request's head.

uvicorn has no such settings. It waits for ever for the rest of a head and keeps every header, and its
`limit_concurrency` refuses honest requests while slow ones stay. One sweep per second checks all connections. It costs
less than a timer for each. And uvicorn takes the body of a request that offers an upgrade for the next request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import cache
from time import monotonic
from typing import Any, ClassVar

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from allocator.service.error_responses import Busy, HttpRefusal, body_of, head_of, headers_of
from allocator.service.parameters import MAX_BODY
from allocator.service.repeated_requests import MAX_BYTES, REPEATS, WHOLE, Repeat, Repeats

MAX_HEAD = 16_384
"""The `MAX_PARTIAL` incomplete heads of a worker take at most 8 MB together."""
MAX_LINES = 100
"""Header lines of a request; even a short one takes about 200 bytes of memory."""
CHUNK = 4096
"""Bytes parsed at once: a head that is too long is refused after these, not after a whole read of 256 KB."""
MAX_UNENDED = MAX_BODY + 262_144
"""A body plus one read of the event loop, so that the application can still answer a body that is too large."""
MAX_SECONDS = 15.0
"""For a client to send a head or to read a response; uvicorn would wait for ever."""
MAX_CONNECTIONS = 10_000
"""Per worker; an idle connection takes 9 KB."""
MAX_WAITING = 50
"""Requests of a connection that wait for the answer to the one before; each takes 2 KB and its bytes."""
MAX_PARTIAL = 500
"""Connections per worker with an incomplete head. An honest head arrives in one or two chunks."""
CLOSE_SECONDS = 1.0
"""Seconds that a client has to confirm a close. Over TLS, the event loop would wait for half a minute."""
SWEEP = 1.0
"""Seconds, and the precision of the limits in seconds."""


def closing(status: int, detail: str) -> bytes:
    """Encode a whole response for a connection without a complete request."""
    refusal = Busy(detail) if status == 503 else HttpRefusal(status, detail)
    body = body_of(refusal, "")
    headers = {"connection": "close", **headers_of(refusal), "content-length": str(len(body))}
    return b"%b\r\n%b" % (head_of(status, headers), body)


SLOW = closing(408, f"a request must arrive within {MAX_SECONDS:g} seconds")
LARGE = closing(431, f"the head of a request may have at most {MAX_HEAD} bytes and {MAX_LINES} header lines")
CROWDED = closing(503, "too many connections have sent only a part of a request; retry")
MALFORMED = closing(400, "this is not HTTP/1.1")


@cache
def max_connections() -> int:
    """`MAX_CONNECTIONS`, or less if this process may open fewer files; a quarter is left for databases and logs."""
    try:
        import resource
    except ImportError:  # on Windows
        return MAX_CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files * 3 // 4)


class BoundedProtocol(HttpToolsProtocol):
    """A connection. `cycle` is uvicorn's object for a request whose head has arrived."""

    sweeper: asyncio.TimerHandle | None = None
    partial: ClassVar[dict[BoundedProtocol, None]] = {}
    """Connections with an incomplete head, oldest first; at most `MAX_PARTIAL` in a worker."""

    used = 0.0
    """Monotonic seconds of the last bytes from the client: what was idle longest is closed first."""
    in_head = False
    """The head of a request is incomplete, so `MAX_HEAD` limits its bytes."""
    unended = 0
    """Bytes of the latest request, counted by chunks: `MAX_HEAD` and `MAX_UNENDED` limit them."""
    since: float | None = None
    """Monotonic seconds of the first sweep without progress; `MAX_SECONDS` later the connection is closed."""
    progress: Any = None
    """Request and unread bytes at that sweep; a change of either starts the time anew."""
    closing: float | None = None
    """Monotonic seconds of the first sweep after we closed; the client has `CLOSE_SECONDS` to confirm."""

    repeats: Repeats | None = None
    """None where each request must be parsed."""
    repeat: Repeat | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.repeats = self.app_state.get(REPEATS)
        self.begun: deque[Any] = deque()
        """All unanswered requests; uvicorn knows only the latest."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.used = monotonic()
        if len(self.connections) > max_connections():
            self.make_room()
        if BoundedProtocol.sweeper is None:
            self.sweep_later()

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark all requests as disconnected: writing a response to a closed connection would log an error."""
        self.partial.pop(self, None)
        self._unset_keepalive_if_required()  # after a reset, uvicorn's timer would keep all of this in memory
        super().connection_lost(exc)
        for cycle in self.begun:
            cycle.disconnected = True
            cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        # Asked before the parser gets the bytes, which end the pause between two requests.
        repeats = self.repeats if len(data) <= MAX_BYTES and self.is_between_requests() else None
        self.used = monotonic()
        if repeats and (answer := repeats.answer(self.repeat, data, self.server_state.default_headers)):
            self.transport.write(answer)
            return
        self.parse(data)
        if repeats and self.may_come_again(data) and (repeat := Repeat(data)).agrees(self.headers):
            self.repeat = self.cycle.scope[WHOLE] = repeat  # type: ignore[literal-required]

    def is_between_requests(self) -> bool:
        """Tell whether the next byte begins a request: the last one is answered, its body has come, and can be read."""
        return self.is_idle() and not self.cycle.more_body and not self.flow.write_paused

    def is_idle(self) -> bool:
        """Tell whether nothing of the next request is here. uvicorn's timer starts beside the beginning of one too."""
        return self.timeout_keep_alive_task is not None and not self.in_head

    def may_come_again(self, data: bytes) -> bool:
        """Tell whether this was one POST without a body, on a connection that stays open."""
        is_one = data.endswith(b"\r\n\r\n") and not self.in_head and not self.cycle.more_body
        return is_one and self.cycle.keep_alive and self.cycle.scope["method"] == "POST"

    def parse(self, data: bytes) -> None:
        for start in range(0, len(data), CHUNK):  # to refuse a long head before all of it is parsed
            self.feed(data[start : start + CHUNK])
            self.unended += CHUNK if start + CHUNK < len(data) else len(data) - start
            if self.in_head or self.partial:
                self.bound_head()
            if self.transport.is_closing():
                return
        is_short = self.in_head or self.pipeline or not self.is_answering()
        if self.unended > (MAX_HEAD if is_short else MAX_UNENDED):
            # After the response, send nothing: the client would take it for the response to its next request.
            self.end(LARGE if self.in_head or self.cycle is None else b"")

    def feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as offer:
            # This parser takes what follows for another protocol, so a new parser gets the request without the offer.
            head = self.head_without_offer()
            self.parser = HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn
            self.feed(head)
            self.feed(data[offer.args[0] :])
        except HttpParserError:
            self.refuse()

    def head_without_offer(self) -> bytes:
        parser = self.parser
        first = b"%b %b HTTP/%b\r\n" % (parser.get_method(), self.url, parser.get_http_version().encode())
        lines = (b"%b: %b\r\n" % (name, value) for name, value in self.headers if name != b"upgrade")
        return b"%b%b\r\n" % (first, b"".join(lines))

    def refuse(self) -> None:
        """Answer what is not HTTP, also where the application was about to answer its head."""
        cycle = self.cycle
        if self.is_answering() and cycle.more_body and not (cycle.response_started or self.pipeline):
            cycle.response_complete = cycle.disconnected = True
            cycle.message_event.set()
        self.end(LARGE if len(self.headers or ()) > MAX_LINES else MALFORMED)

    def bound_head(self) -> None:
        """End a head with too many lines, and the oldest of too many incomplete heads."""
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
        """Ignore trailers. uvicorn would append them to the headers, without a limit, and one could be a token."""
        if self.in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.in_head = False
        is_offer = self.parser.should_upgrade()
        is_tunnel = is_offer and self.parser.get_method() == b"CONNECT"
        if len(self.headers) > MAX_LINES or len(self.pipeline) >= MAX_WAITING or is_tunnel:
            raise ValueError  # the parser stops with `HttpParserError`
        if is_offer:
            return
        self._unset_keepalive_if_required()
        super().on_headers_complete()
        # Pipelined requests are answered in order, so those in front are answered first.
        while self.begun and self.begun[0].response_complete:
            self.begun.popleft()
        self.begun.append(self.cycle)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection. uvicorn does not know of the repeated requests."""
        left = self.used + self.timeout_keep_alive - monotonic()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def make_room(self) -> None:
        """Close a hundredth of the idle connections: first those without a request, then those idle the longest."""
        others = [one for one in self.connections if isinstance(one, BoundedProtocol) and one is not self]
        waiting = [one for one in others if not one.is_answering()]
        waiting.sort(key=lambda one: (one.cycle is not None, one.used))
        for one in waiting[: 1 + len(waiting) // 100]:
            # Not `close`, which waits until the client has read what was sent to it.
            one.transport.abort()

    def is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def end(self, answer: bytes) -> None:
        """Close the connection with `answer`, or without it while a response is in progress."""
        self.partial.pop(self, None)
        if self.is_answering() or self.transport.get_write_buffer_size():
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()

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
        """Close a connection that waits too long: for a request, for its response to be read, for the close."""
        unread = self.transport.get_write_buffer_size()
        if not unread and self.transport.is_closing():
            self.await_close(now)
        elif not unread and (self.is_idle() or self.is_answering()):
            self.since = None
        elif self.since is None or self.progress != (self.cycle, unread):
            self.since, self.progress = now, (self.cycle, unread)
        elif now - self.since > MAX_SECONDS:
            self.end(SLOW)

    def await_close(self, now: float) -> None:
        if self.closing is None:
            self.closing = now
        elif now - self.closing >= CLOSE_SECONDS:
            self.transport.abort()

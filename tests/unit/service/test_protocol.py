"""Connections that come to no end, with time as an argument."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from allocator.service.protocol import (
    CROWDED,
    LARGE,
    MAX_HEAD,
    MAX_LINES,
    MAX_PARTIAL,
    MAX_SECONDS,
    SLOW,
    BoundedProtocol,
)


class Transport:
    """Records what is done to it."""

    def __init__(self) -> None:
        self.said = b""
        self.unread = 0
        self.ended = ""

    def write(self, data: bytes) -> None:
        self.said += data

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return bool(self.ended)

    def get_write_buffer_size(self) -> int:
        return self.unread


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> BoundedProtocol:
    """One that was just made; what uvicorn does with its data is nothing here."""
    monkeypatch.setattr(BoundedProtocol, "feed", lambda self, data: None)
    monkeypatch.setattr(BoundedProtocol.__mro__[1], "on_message_begin", lambda self: None)
    monkeypatch.setattr(BoundedProtocol, "partial", {})
    return connected()


def connected(together: set[Any] | None = None) -> BoundedProtocol:
    made = BoundedProtocol.__new__(BoundedProtocol)
    made.transport, made.cycle, made.timeout_keep_alive_task = Transport(), None, None  # type: ignore[assignment]
    made.headers, made.connections = [], set() if together is None else together
    made.connections.add(made)
    made.begun, made.pipeline = deque(), deque()
    return made


class Request:
    def __init__(self, answered: bool) -> None:
        self.response_complete = answered


class Cycle:
    """One request, as uvicorn makes it once its head has arrived."""

    def __init__(self) -> None:
        self.response_complete = self.disconnected = False
        self.message_event = asyncio.Event()


def test_every_request_that_is_not_answered_hears_that_its_client_is_gone(connection, monkeypatch):
    """An answer that is written to a closed connection is an error of uvloop's, and would count as our mistake."""
    theirs = BoundedProtocol.__mro__[1]
    monkeypatch.setattr(theirs, "connection_lost", lambda self, error: None)
    monkeypatch.setattr(theirs, "on_headers_complete", lambda self: setattr(self, "cycle", Cycle()))
    connection.parser = SimpleNamespace(should_upgrade=lambda: False)
    cycles = []
    for answered in (True, False, False, False):
        connection.on_headers_complete()
        cycles.append(connection.cycle)
        connection.cycle.response_complete = answered
    connection.connection_lost(None)

    assert [cycle.disconnected for cycle in cycles] == [False, True, True, True]
    assert len(connection.begun) == 3


def looks(connection: BoundedProtocol, *times: float) -> Transport:
    for now in times:
        connection.look(now)
    return connection.transport  # type: ignore[return-value]


def test_a_request_that_does_not_come_to_its_end_is_ended(connection):
    assert looks(connection, 100.0, 100.0 + MAX_SECONDS).ended == ""
    transport = looks(connection, 100.1 + MAX_SECONDS)

    assert transport.ended == "closed"
    assert transport.said == SLOW
    assert transport.said.startswith(b"HTTP/1.1 408 Request Timeout\r\n")


def test_a_connection_that_is_closed_here_is_ended_when_the_client_says_nothing(connection):
    connection.transport.close()

    assert looks(connection, 5.0).ended == "closed"
    assert looks(connection, 6.0).ended == "aborted"


def test_a_client_that_does_not_read_its_answer_is_hung_up_on(connection):
    connection.cycle, connection.transport.unread = Request(answered=False), 5000
    looks(connection, 0.0, 10.0)
    connection.transport.unread = 4000  # it reads after all
    assert looks(connection, 16.0, 30.0).ended == ""

    assert looks(connection, 32.0).ended == "aborted"


def test_a_head_is_bounded(connection):
    for _ in range(MAX_HEAD // 1024):
        connection.data_received(b"x" * 1024)
    assert connection.transport.ended == ""
    connection.data_received(b"x")

    assert connection.transport.ended == "closed"
    assert connection.transport.said == LARGE


def test_a_head_behind_a_request_that_is_being_answered_is_bounded_too(connection):
    connection.cycle = Request(answered=False)
    connection.on_message_begin()
    for _ in range(MAX_HEAD // 1024):
        connection.data_received(b"x" * 1024)
    assert connection.transport.ended == ""
    for _ in range(2):
        connection.data_received(b"x" * 1024)

    assert connection.transport.ended == "aborted"


def test_the_lines_of_a_head_are_bounded_before_it_ends(connection):
    connection.in_head, connection.headers = True, [(b"a", b"b")] * MAX_LINES
    connection.data_received(b"a:b\r\n")
    assert connection.transport.ended == ""
    connection.headers.append((b"a", b"b"))
    connection.data_received(b"a:b\r\n")

    assert connection.transport.said == LARGE


def test_of_too_many_unfinished_heads_the_oldest_is_ended(connection):
    several = [connection, *(connected() for _ in range(MAX_PARTIAL))]
    for one in several:
        one.in_head = True
        one.data_received(b"a")

    assert [one.transport.ended for one in several] == ["closed", *[""] * MAX_PARTIAL]
    assert connection.transport.said == CROWDED
    several[1].in_head = False  # it is complete
    several[1].data_received(b"a")
    several.append(connected())
    several[-1].in_head = True
    several[-1].data_received(b"a")
    assert {one.transport.ended for one in several[1:]} == {""}


def test_of_too_many_connections_those_idle_the_longest_are_ended_after_those_without_a_request(connection):
    together: set[Any] = set()
    busy, idle, working, old, fresh = (connected(together) for _ in range(5))
    busy.cycle = idle.cycle = Request(answered=True)
    working.cycle, busy.used = Request(answered=False), 1.0
    ended = []
    for _ in range(3):
        fresh.make_room()
        ended += [one for one in together if one.transport.ended]
        together.difference_update(ended)

    assert ended == [old, idle, busy]
    assert (working.transport.ended, fresh.transport.ended) == ("", "")

"""Kept connections: requests in pieces, offers of an upgrade, bytes that are no HTTP, tokens that are revoked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from support.processes.patience import until
from support.service.guarded import Guarded
from support.service.kept_connection import Connection, post
from support.service.served import Served

from allocator.service.auth import REFRESH

KNOWN_WITHIN = 30.0
"""Seconds within which a service has read the tokens again, on any machine that runs the tests."""

OFFERS = (
    ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA"),
    ("Connection: keep-alive, upgrade", "Upgrade: websocket"),
)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def put(tag: str, token: str, body: bytes, *lines: str) -> bytes:
    head = (f"PUT /v1/tags/{tag} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *lines)
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


def test_requests_that_come_together_or_in_pieces_have_an_answer_each(guarded, connection, tag):
    request, other = post(tag, guarded.admin), post(f"{tag}-other", guarded.admin)
    drawn = [connection.draw(request) for _ in range(5)]
    for together in ((request,) * 3, (request,) * 3, (request, other, request)):
        connection.send(*together)
        drawn += [int(json.loads(body)["ids"][0]) for _, _, body in (connection.read() for _ in together)]
    for byte in request + request:
        connection.send(bytes([byte]))
    drawn += [int(json.loads(connection.read()[2])["ids"][0]) for _ in range(2)]
    drawn.append(connection.draw(request))

    assert sorted(drawn) == [1, *range(1, 17)]  # and the first one of the other tag


def test_a_body_with_the_bytes_of_a_request_is_none(guarded, connection, tag):
    """A request without a token is answered before its body is read."""
    request = post(tag, guarded.admin)
    assert [connection.draw(request) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert connection.ask(post(tag, "", f"Content-Length: {2 * len(request)}"))[0] == 401
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert b"ids" not in rest_of(connection, request, request, last)
    with closing(Connection(guarded.service)) as another:
        assert another.draw(request) == 6


def rest_of(connection: Connection, *more: bytes) -> bytes:
    """What comes after these bytes until the service closes the connection, as it may do after a body that it left."""
    try:
        connection.send(*more)
        return connection._received.read()
    except (BrokenPipeError, ConnectionResetError):
        return b""


@pytest.mark.parametrize(("offer", "filled"), [(OFFERS[0], False), (OFFERS[1], True)], ids=["in pieces", "at once"])
def test_the_body_of_an_offered_upgrade_is_no_request(guarded, connection, tag, offer, filled):
    """Behind a proxy, its last bytes and the next caller's request would make a request with that caller's token."""
    begun = f"POST /v1/tags/{tag}-chosen/ids HTTP/1.1\r\nX: ".encode()
    body = begun.rjust(5000) if filled else begun
    head = post(tag, "", *offer, f"Content-Length: {len(body)}")
    assert connection.ask(head + body if filled else head)[0] == 401
    answered = rest_of(connection, *([] if filled else [body]), post(tag, guarded.admin, "Connection: close"))
    assert f"{tag}-chosen".encode() not in answered


def test_an_offered_upgrade_is_ignored(guarded, connection, tag):
    """Clients that could speak HTTP/2, such as Java's, offer it with each first request."""
    request = put(tag, guarded.admin, b'{"step": 100}', *OFFERS[0])
    for at in (len(request), len(request) - 5, 60):
        connection.send(request[:at])
        connection.send(request[at:])
        status, _, body = connection.read()
        assert status in (200, 201), body
        assert json.loads(body)["step"] == 100
    drawn = post(tag, guarded.admin, *OFFERS[1])
    connection.send(drawn, drawn, HEALTH)
    assert [connection.read()[0] for _ in range(3)] == [200, 200, 200]
    chunked = request.replace(b'Content-Length: 13\r\n\r\n{"step": 100}', b"Transfer-Encoding: chunked\r\n\r\n")
    assert connection.ask(chunked + b'd\r\n{"step": 100}\r\n0\r\n\r\n')[0] == 200


@contextmanager
def drawing(service: Served, *requests: bytes) -> Iterator[list[list[int]]]:
    """Clients that send one request again and again. Yields the statuses of each."""
    statuses: list[list[int]] = [[] for _ in requests]
    over = threading.Event()

    def draw(request: bytes, found: list[int]) -> None:
        with closing(Connection(service)) as connection:
            while not over.is_set():
                found.append(connection.ask(request)[0])

    threads = [threading.Thread(target=draw, args=pair) for pair in zip(requests, statuses, strict=True)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_revoked_token_is_refused_with_the_next_reading_while_it_and_others_draw(tmp_path, tag):
    """A token that is revoked after it shows when the service has read the tokens."""
    guarded = Guarded(str(tmp_path))
    guarded.service.put(f"/v1/tags/{tag}", token=guarded.admin, json={})
    requests = [post(tag, guarded.make("revoked")), post(tag, guarded.make("valid")), post(tag)]
    later = post(tag, guarded.make("later"))
    numbers = {one.name: one.number for one in guarded.tokens.list()}
    with (
        guarded.service as service,
        closing(Connection(service)) as kept,
        drawing(service, *requests, later) as statuses,
    ):
        assert until(lambda: min(map(len, statuses)) > 100 and statuses[3][-1] == 200, KNOWN_WITHIN)
        assert [set(one) for one in statuses[:3]] == [{200}, {200}, {401}]
        assert {kept.ask(requests[0])[0] for _ in range(5)} == {200}
        guarded.tokens.revoke(numbers["revoked"])
        guarded.tokens.revoke(numbers["later"])
        assert until(lambda: statuses[3][-1] == 401, KNOWN_WITHIN, every=0.001)
        assert [kept.ask(one)[0] for one in requests] == [401, 200, 401]
        assert until(lambda: [one[-1] for one in statuses] == [401, 200, 401, 401], KNOWN_WITHIN)
    guarded.database.close()
    assert set(statuses[1]) == {200}
    assert REFRESH <= 1.0  # seconds between two readings, which leaves one of two for the reading

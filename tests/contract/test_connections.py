"""What a client sends beside plain requests: offers of an upgrade, many requests at once, bytes that are no HTTP."""

from __future__ import annotations

import json

import pytest
from support.service.kept_connection import Connection, post

from allocator.service.protocol import MAX_WAITING

OFFERS = (
    ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA"),
    ("Connection: keep-alive, upgrade", "Upgrade: websocket"),
)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def put(tag: str, token: str, body: bytes, *lines: str) -> bytes:
    head = (f"PUT /v1/sequences/{tag} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *lines)
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


def rest_of(connection: Connection) -> bytes:
    """What comes until the service closes the connection, or resets it."""
    try:
        return connection._received.read()
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(("offer", "filled"), [(OFFERS[0], False), (OFFERS[1], True)], ids=["in pieces", "at once"])
def test_the_body_of_an_offered_upgrade_is_no_request(guarded, connection, tag, offer, filled):
    """Behind a proxy, its last bytes and the next caller's request would make a request with that caller's token."""
    begun = f"POST /v1/sequences/{tag}-chosen/ids HTTP/1.1\r\nX: ".encode()
    body = begun.rjust(5000) if filled else begun
    head = post(tag, "", *offer, f"Content-Length: {len(body)}")
    assert connection.ask(head + body if filled else head)[0] == 401
    if not filled:
        connection.send(body)
    assert json.loads(connection.ask(post(tag, guarded.admin))[2]) == {"tag": tag, "ids": ["1"]}


def test_an_offered_upgrade_is_ignored(guarded, connection, tag):
    """Clients that could speak HTTP/2, such as Java's, offer it with each first request."""
    request = put(tag, guarded.admin, b'{"step": 100}', *OFFERS[0])
    for at in (len(request), len(request) - 5, 60):
        connection.send(request[:at])
        connection.send(request[at:])
        status, _, body = connection.read()
        assert status in (200, 201), body
        assert json.loads(body)["step"] == 100
    chunked = request.replace(b'Content-Length: 13\r\n\r\n{"step": 100}', b"Transfer-Encoding: chunked\r\n\r\n")
    assert connection.ask(chunked + b'd\r\n{"step": 100}\r\n0\r\n\r\n')[0] == 200
    drawn = post(tag, guarded.admin, *OFFERS[1])
    connection.send(drawn, drawn, HEALTH)
    assert [connection.read()[0] for _ in range(3)] == [200, 200, 200]


def test_a_few_requests_may_wait_on_a_connection_and_no_more(connection):
    connection.send(HEALTH * MAX_WAITING)
    assert {connection.read()[0] for _ in range(MAX_WAITING)} == {200}

    connection.send(HEALTH * 10_000)
    assert rest_of(connection).count(b"HTTP/1.1 200") < 10_000


@pytest.mark.parametrize("line", ["Transfer-Encoding: gzip", "Transfer-Encoding: chunked\r\n\r\nno length"])
def test_a_body_that_is_no_http_is_refused_with_words(guarded, connection, tag, line):
    status, headers, body = connection.ask(put(tag, guarded.admin, b"", line).replace(b"Content-Length: 0\r\n", b""))

    assert (status, headers["connection"]) == (400, "close")
    assert json.loads(body)["detail"] == "this is not HTTP/1.1"

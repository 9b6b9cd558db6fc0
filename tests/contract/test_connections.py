"""Kept connections: requests in pieces, offers of an upgrade, bytes that are no HTTP, tokens that are revoked."""

import json
import socket
from collections.abc import Callable
from itertools import product

import pytest
from support.service.served import Connection, Served, post


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
    with Connection(guarded.service) as another:
        assert another.draw(request) == 6


def rest_of(connection: Connection, *more: bytes) -> bytes:
    """What comes after these bytes until the service closes the connection, as it may do after a body that it left."""
    try:
        connection.send(*more)
        return connection._received.read()
    except (BrokenPipeError, ConnectionResetError):
        return b""


def test_the_body_of_an_offered_upgrade_is_no_request(guarded, connection, tag):
    """Behind a proxy, its last bytes and the next caller's request would make a request with that caller's token."""
    body = f"POST /v1/tags/{tag}-chosen/ids HTTP/1.1\r\nX: ".encode()
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA")
    assert connection.ask(post(tag, "", *offer, f"Content-Length: {len(body)}"))[0] == 401
    answered = rest_of(connection, body, post(tag, guarded.admin, "Connection: close"))
    assert f"{tag}-chosen".encode() not in answered


# -- what is no HTTP, or too much of it


@pytest.fixture
def embedded(served: Callable[..., Served]) -> Served:
    return served("sqlite")


def test_a_body_of_a_hundred_megabytes_is_refused_unread(embedded, tag):
    known = f"POST /v1/tags/{tag}/ids HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n"
    assert talk(embedded, known) == 413
    assert embedded.put(f"/v1/tags/{tag}", body=b" " * 100_000).status == 413
    chunked = f"PUT /v1/tags/{tag} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert talk(embedded, chunked + "fffff\r\n" + "x" * 0xFFFFF + "\r\n") == 413


def test_what_is_no_http_is_refused(embedded):
    assert talk(embedded, "POST /v1/meteor HTTP/1.1\r\nHost: localhost\r\n" + "X-Long: " + "y" * 400_000) == 431
    no_host = "POST /v1/meteor HTTP/1.1\r\nContent-Length: 0"
    versions = [f"POST /v1/meteor HTTP/{version}\r\nHost: localhost" for version in ("0.9", "2.0", "9.9")]
    for raw in ("\x00\x01\x02", "GET", "G" * 100, no_host, *versions):
        assert (talk(embedded, raw + "\r\n\r\n"), raw) == (400, raw)


def test_a_head_that_names_two_hosts_or_two_tokens_is_refused(embedded):
    embedded.post("/v1/meteor")  # its next request takes the short way
    lines = ("POST /v1/meteor", "GET /healthz", "GET /nowhere", "POST /v1/meteor?count=2")
    for line, double in product(lines, ("Host: evil", "host: localhost", "Authorization: a\r\nAuthorization: b")):
        head = f"{line} HTTP/1.1\r\nHost: localhost\r\n{double}\r\nContent-Length: 0\r\n\r\n"
        assert talk(embedded, head) == 400, (line, double)


def test_what_follows_a_body_is_no_header(embedded):
    request = "POST /v1/meteor HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    for trailer in ("Host: localhost", "X-Forwarded-For: 192.0.2.1"):
        assert talk(embedded, f"{request}{trailer}\r\n\r\n") == 200, trailer


def test_nothing_after_a_chunked_body_gets_an_answer(embedded):
    """The server takes a request after the last two ends for trailers, so the one after that would answer for it."""
    lines = "POST /v1/meteor HTTP/1.1\r\nHost: localhost\r\n"
    plain = f"{lines}Content-Length: 0\r\n\r\n"
    for end in ("0\r\n\r\n", "0\r\n\n", "0\r\nA: b\n\r\n"):
        with socket.create_connection(("127.0.0.1", embedded.port), timeout=10) as connection:
            connection.sendall(f"{plain}{lines}Transfer-Encoding: chunked\r\n\r\n{end}{plain}{plain}".encode())
            said = connection.makefile("rb").read()

        assert said.count(b"HTTP/1.1 200 ") == 2, end


def talk(service: Served, text: str) -> int:
    """Send this, and return the status that comes back."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        try:
            connection.sendall(text.encode("latin-1"))
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has answered already
        found = connection.recv(65536)
    return int(found.split()[1])

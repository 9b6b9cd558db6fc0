"""Kept connections: bodies that are left unread, and heads that say two things."""

import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import product

import pytest
from support.service.served import Served


def talk(service: Served, text: str) -> str:
    """Send this, and return what comes back until the service closes the connection."""
    said = b""
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # it has answered already
            connection.sendall(text.encode())
        with suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                said += piece
    return said.decode()


def test_a_body_that_was_left_unread_is_no_request(guarded, service, tag):
    """A request without a token is answered before its body is read.

    The body of an offered upgrade may end in the middle of a head: behind a proxy, the next caller's request would be
    the rest of it.
    """
    head = "POST /v1/tags/{}/ids HTTP/1.1\r\nHost: localhost\r\n"
    known = f"Authorization: Bearer {guarded.admin}\r\nConnection: close\r\n\r\n"
    chosen = head.format(f"{tag}-chosen")
    offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
    for more, body in (("", chosen + known), (offer, f"{chosen}X: ")):
        unread = f"{head.format(tag)}{more}Content-Length: {len(body)}\r\n\r\n{body}"
        said = talk(service, unread + head.format(tag) + known)
        assert (said[9:12], f"{tag}-chosen" in said) == ("401", False), more


@pytest.fixture
def embedded(served: Callable[..., Served]) -> Served:
    return served("sqlite")


def test_a_body_or_query_that_is_too_large_is_refused(embedded, tag):
    put, chunk = f"PUT /v1/tags/{tag} HTTP/1.1\r\nHost: localhost\r\n", "x" * 0xFFFFF
    for rest in ("Content-Length: 104857600\r\n\r\n", f"Transfer-Encoding: chunked\r\n\r\nfffff\r\n{chunk}\r\n"):
        assert talk(embedded, put + rest)[9:12] == "413", rest[:20]
    query = f"GET /v1/tags?after={'a' * 4096} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert talk(embedded, query)[9:12] == "414"


def test_a_head_without_a_host_or_with_two_hosts_or_tokens_is_refused(embedded):
    embedded.post("/v1/meteor")  # its next request takes the short way
    host, token = "Host: localhost\r\n", "Authorization: a\r\n"
    odd = ("", f"{host}Host: evil\r\n", f"{host}host: localhost\r\n", f"{host}{token}{token}")
    for line, names in product(("POST /v1/meteor", "POST /v1/meteor?count=2", "GET /healthz", "GET /nowhere"), odd):
        head = f"{line} HTTP/1.1\r\n{names}Connection: close\r\nContent-Length: 0\r\n\r\n"
        assert talk(embedded, head)[9:12] == "400", (line, names)


def test_nothing_after_a_chunked_body_gets_an_answer(embedded):
    """The server takes a request after the last two ends for trailers, so the one after that would answer for it."""
    lines = "POST /v1/meteor HTTP/1.1\r\nHost: localhost\r\n"
    plain = f"{lines}Content-Length: 0\r\n\r\n"
    for end in ("0\r\n\r\n", "0\r\n\n", "0\r\nA: b\n\r\n"):
        said = talk(embedded, f"{plain}{lines}Transfer-Encoding: chunked\r\n\r\n{end}{plain}{plain}")

        assert said.count("HTTP/1.1 200 ") == 2, end

"""Requests that come again byte by byte, which are answered without being parsed."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from support.processes.patience import until
from support.service.guarded import Guarded
from support.service.kept_connection import Connection, post
from support.service.served import Served

from allocator.service.auth import REFRESH

KNOWN_WITHIN = 30.0
"""Seconds within which a service has read the tokens again, on any machine that runs the tests."""


def test_a_repeated_request_has_the_answer_of_a_parsed_one(guarded, connection, tag):
    request = post(tag, guarded.admin)
    answers = [connection.ask(request) for _ in range(20)]

    assert [json.loads(body) for _, _, body in answers] == [{"tag": tag, "ids": [str(n)]} for n in range(1, 21)]
    assert {status for status, _, _ in answers} == {200}
    assert len({tuple(sorted(headers)) for _, headers, _ in answers}) == 1
    assert {headers["cache-control"] for _, headers, _ in answers} == {"no-store"}
    assert len({headers["x-request-id"] for _, headers, _ in answers}) == 20


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
    request, other = post(tag, guarded.admin), post(f"{tag}-other", guarded.admin)
    assert [connection.draw(request) for _ in range(5)] == [1, 2, 3, 4, 5]
    head = post(tag, "", f"Content-Length: {2 * len(request)}")
    assert connection.ask(head)[0] == 401
    connection.send(request)
    connection.send(request)

    assert json.loads(connection.ask(other)[2])["tag"] == f"{tag}-other"
    assert connection.draw(request) == 6


def test_the_end_of_a_head_is_no_request(guarded, connection, tag):
    """The first request is answered when the head of the next one has begun: its rest may look like another request."""
    request, victim = post(tag, guarded.admin), post(f"{tag}-other", guarded.admin)
    begun = f"POST /v1/sequences/{tag}/ids HTTP/1.1\r\nX: ".encode()
    assert connection.draw(victim) == connection.draw(request) == 1
    for _ in range(20):
        connection.send(request + begun)
        assert json.loads(connection.read()[2])["tag"] == tag
        connection.send(victim)  # the value of X, and the rest of this head
        assert json.loads(connection.read()[2])["tag"] == tag
        connection.send(victim)
        assert json.loads(connection.read()[2])["tag"] == f"{tag}-other"


def test_no_connection_answers_for_another(guarded, service, connection, tag):
    """Nobody without a token gets an id by bytes that were the rest of somebody's request."""
    rest = b"\r\nAccept: */*\r\n\r\n"
    whole = post(tag, guarded.admin)
    for _ in range(20):
        connection.send(whole + whole[:-4])
        connection.read()
        connection.send(rest)
        assert connection.read()[0] == 200
        with closing(Connection(service)) as other:
            assert other.ask(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 200
            other.send(rest)
            other.socket.shutdown(socket.SHUT_WR)
            assert b" 200 " not in other._received.read()


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


class WithLeaf(Guarded):
    def prepare(self) -> None:
        self.make("leaf")


def test_a_revoked_token_is_refused_with_the_next_reading_while_it_and_others_draw(tmp_path, tag):
    """Leaf's route, whose token is revoked after it, shows when the service has read the tokens."""
    guarded = WithLeaf(str(tmp_path), "--compat", "leaf", "--compat-token", "leaf")
    requests = [post(tag, guarded.make("revoked")), post(tag, guarded.make("valid")), post(tag)]
    leaf = f"GET /api/segment/get/{tag} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    numbers = {one.name: one.number for one in guarded.tokens.list()}
    with (
        guarded.service as service,
        closing(Connection(service)) as kept,
        drawing(service, *requests, leaf) as statuses,
    ):
        assert until(lambda: min(map(len, statuses)) > 100 and statuses[3][-1] == 200, KNOWN_WITHIN)
        assert [set(one) for one in statuses[:3]] == [{200}, {200}, {401}]
        assert {kept.ask(requests[0])[0] for _ in range(5)} == {200}
        guarded.tokens.revoke(numbers["revoked"])
        guarded.tokens.revoke(numbers["leaf"])
        assert until(lambda: statuses[3][-1] == 401, KNOWN_WITHIN, every=0.001)
        assert [kept.ask(one)[0] for one in requests] == [401, 200, 401]
        assert until(lambda: [one[-1] for one in statuses] == [401, 200, 401, 401], KNOWN_WITHIN)
    guarded.database.close()
    assert set(statuses[1]) == {200}
    assert REFRESH == 2.0  # seconds between two readings

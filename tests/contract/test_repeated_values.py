"""Requests that come again but for the values of some headers, which are answered without being parsed.

Most hold for parsed requests too, so none depends on how often the service reads its tokens.
"""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from support.service.kept_connection import Connection, post

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba9{:04x}-01"


@pytest.mark.parametrize(("name", "valid"), [("X-Request-Id: ", True), ("X-REQUEST-ID:\t", False)])
def test_a_request_with_an_id_of_its_own_gets_that_id_back(guarded, connection, tag, name, valid):
    given = [f"own-{n % 20}/{'x' * n}" for n in range(40)]
    given += given[-1:] * 5
    requests = [
        post(tag, guarded.admin if valid else "", f"Traceparent: {TRACE.format(n)}", name + one, "tracestate: a=1")
        for n, one in enumerate(given)
    ]
    answers = [connection.ask(request) for request in requests]
    for together in (1, len(requests)):
        for first in range(0, len(requests), together):
            connection.send(*requests[first : first + together])
            answers += [connection.read() for _ in range(together)]
    bodies = [json.loads(body) for _, _, body in answers]

    assert [headers["x-request-id"] for _, headers, _ in answers] == given * 3
    assert len({tuple(sorted(headers)) for _, headers, _ in answers}) == 1
    if valid:
        assert [body["ids"] for body in bodies] == [[str(n)] for n in range(1, 1 + len(answers))]
    else:
        assert [(body["error"], body["request"]) for body in bodies] == [("AccessDenied", one) for one in given * 3]


def test_of_two_ids_the_last_one_comes_back(guarded, connection, tag):
    for lines in (["mine", "last"], ["a", "b"], ["not one", "c"], ["d", "not one"]):
        request = post(tag, guarded.admin, *(f"X-Request-Id: {one}" for one in lines))
        found = [connection.ask(request)[1]["x-request-id"] for _ in range(3)]
        assert found == lines[1:] * 3 if lines[1] != "not one" else len(set(found)) == 3


@pytest.mark.parametrize("header", ["X-Request-Id", "traceparent"])
def test_a_value_is_no_way_into_a_request(guarded, service, tag, header):
    """Each begins and ends as the request before it, and what lies between changes the meaning."""
    around = post(tag, guarded.admin, f"{header}: |", "X: y").split(b"|")
    victim = post(f"{tag}-other", guarded.admin)
    cases = {
        b"a\r\nHost: y": [400],
        b"a\r\nAuthorization: Bearer other": [400],
        b"a\r\nContent-Length: 70000": [413],
        b"a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + victim[:-2] + b"X: ": [200, 200],
        b"a\r\n\r\n" + victim[:-2] + b"X: ": [200, 200],
        b"a\r\nContent-Length: 2\r\n\r\n{}" + victim[:-2] + b"X: ": [200, 200],
        b"a\n\n" + victim[:-2] + b"X: ": [400],
        b"a\r\n b": [400],
        b"a\rb": [400],
        b"a\nb": [400],
        b"a\0b": [400],
    }
    for value, statuses in cases.items():
        with closing(Connection(service)) as connection:
            assert [connection.ask(value.join(around))[0] for value in (b"a", b"b", b"a")] == [200] * 3
            connection.send(value.join(around))
            answers = [connection.read() for _ in statuses]
            assert ([answer[0] for answer in answers], value) == (statuses, value)
            if len(answers) == 2:
                assert json.loads(answers[1][2])["tag"] == f"{tag}-other"


def test_what_else_differs_is_read_anew(guarded, service, connection, tag):
    name = "X-Request-Id: {}"
    assert [connection.draw(post(tag, guarded.admin, name.format(n))) for n in range(3)] == [1, 2, 3]
    other = f"{tag}-other"
    assert json.loads(connection.ask(post(other, guarded.admin, name.format(3)))[2])["tag"] == other
    assert connection.ask(post(other, guarded.admin + "x", name.format(4)))[0] == 401
    for lines in (("Host: y", name.format(5)), (name.format(6), "Host: y"), (name.format(7), "authorization: x")):
        connection.draw(post(tag, guarded.admin, name.format(5)))
        assert connection.ask(post(tag, guarded.admin, *lines))[0] == 400
    begun = post(tag, guarded.admin, name.format("begun"))
    for byte in begun:
        connection.send(bytes([byte]))
    assert connection.read()[1]["x-request-id"] == "begun"
    connection.draw(begun)
    connection.send(begun[:-30])
    connection.send(begun[-30:])
    assert connection.read()[1]["x-request-id"] == "begun"

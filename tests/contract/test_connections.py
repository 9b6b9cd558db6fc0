"""Kept connections: requests in pieces, offers of an upgrade, bytes that are no HTTP, tokens that are revoked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from stat import S_IMODE

import pytest
from click.testing import CliRunner
from support.distinct import distinct
from support.processes.patience import until
from support.service.guarded import Guarded
from support.service.kept_connection import Connection, post
from support.service.served import START_SECONDS, Served

from allocator import Allocator
from allocator.cli import main
from allocator.errors import AccessDenied, DatabaseUnavailable, InvalidDatabase, InvalidSetting
from allocator.service.auth import REFRESH
from allocator.service.server import check_access
from allocator.service.settings import ServeSettings

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


# -- the service on a Unix socket, and its clients


ONE = pytest.mark.parametrize("kind", ["sqlite"])
"""A socket is the same before each database."""
FILE = "Ids of the Shop.sock"
"""With capitals and spaces, which the host of a URL cannot hold."""


@pytest.fixture
def served(fresh: str, tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """The socket of a service, and its process."""
    path = tmp_path / FILE
    command = [sys.executable, "-m", "allocator", "serve", "--open", "--url", fresh, "--uds", f"unix://{path}"]
    in_image = {**os.environ, "ALLOCATOR_HOST": "0.0.0.0"}
    with subprocess.Popen(command, cwd=tmp_path, env=in_image) as process:
        assert until(lambda: answers(path), START_SECONDS, hopeless=lambda: process.poll() is not None)
        yield path, process
        process.terminate()


def answers(path: Path) -> bool:
    with suppress(DatabaseUnavailable), Allocator(f"unix://{path}") as ids:
        ids.ping()
        return True
    return False


@ONE
def test_ids_come_over_it_and_its_file_goes_at_the_end(served, tag):
    path, process = served
    with Allocator(f"unix://{path}") as ids, Allocator(["unix:///none.sock", f"unix://{path}"]) as others:
        drawn = [*ids.next_ids(tag, 50), *others.next_ids(tag, 50)]
        assert distinct(drawn) == 100
        assert ids.tags.get(tag).name == tag
    assert S_IMODE(path.stat().st_mode) == 0o660
    process.send_signal(signal.SIGTERM)
    process.wait(START_SECONDS)

    assert not path.exists()


@ONE
def test_only_the_socket_of_a_service_that_was_killed_is_replaced(served, fresh, tmp_path, tag):
    path, process = served
    again = ["serve", "--open", "--url", fresh, "--uds", str(path)]
    refused = subprocess.run(
        [sys.executable, "-m", "allocator", *again], capture_output=True, text=True, timeout=START_SECONDS, check=False
    )
    assert refused.returncode == 1
    assert f"cannot listen on {path}: Address already in use" in refused.stderr
    process.kill()
    assert until(lambda: not answers(path), START_SECONDS)
    assert path.is_socket()

    with subprocess.Popen([sys.executable, "-m", "allocator", *again], cwd=tmp_path) as second:
        assert until(lambda: answers(path), START_SECONDS, hopeless=lambda: second.poll() is not None)
        second.terminate()


@ONE
def test_a_client_needs_a_token_once_there_is_one(served, fresh, tag):
    path, _ = served
    made = CliRunner().invoke(main, ["tokens", "create", "shop", "--tags", tag, "--url", fresh])
    secret = next(word for word in made.output.split() if word.startswith("allocator_"))

    with Allocator(f"unix://{path}") as stranger:
        assert until(lambda: is_refused(stranger, tag), START_SECONDS)
    with Allocator(f"unix://{path}", token=secret) as ids:
        assert ids.next_id(tag) > 0
    variables = {"ALLOCATOR_DATABASE_URL": f"unix:///none.sock UNIX://{path}", "ALLOCATOR_TOKEN": secret}
    drawn = CliRunner().invoke(main, ["next", tag], env=variables)
    assert drawn.output.strip().isdigit(), drawn.output


def is_refused(ids: Allocator, tag: str) -> bool:
    try:
        ids.reserve(tag, 1)
    except AccessDenied:
        return True
    return False


def test_no_service_there_is_named(tmp_path):
    said = r"unix:///.*/none\.sock did not answer: FileNotFoundError: \[Errno 2\] No such file or directory$"
    with Allocator(f"unix://{tmp_path}/none.sock", timeout=0.5) as ids, pytest.raises(DatabaseUnavailable, match=said):
        ids.next_id("order")


def test_an_address_that_names_no_socket_is_refused():
    said = "^a Unix socket is written unix:///run/allocator/ids.sock, in at most 107 bytes, got '"
    for address in ("unix://run/ids.sock", "unix:/run/ids.sock", "unix:///", "unix:///a\nb", f"unix:///{'é' * 54}"):
        with pytest.raises(InvalidDatabase, match=said):
            Allocator(address)


def test_it_takes_the_place_of_a_host_and_port():
    for other in ("--port 8000", "--host 127.0.0.1", "--certificate a --key b"):
        refused = CliRunner().invoke(main, ["serve", "--url", "sqlite:///x", "--uds", "ids.sock", *other.split()])

        assert refused.exit_code == 2
        assert f"--uds and {other.split()[0]} exclude each other" in refused.output


@ONE
def test_without_a_token_the_message_names_the_socket(fresh):
    said = r"nobody could use the service on /run/ids\.sock; create one .* allocator serve --open$"
    with pytest.raises(InvalidSetting, match=said):
        check_access(ServeSettings((fresh,), host="0.0.0.0", uds="/run/ids.sock"))

"""Kept connections: bodies that are left unread, heads that say two things, and the service on a Unix socket."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from stat import S_IMODE

import pytest
from support.distinct import distinct
from support.kit import SQLITE, run
from support.processes.patience import until
from support.service.served import START_SECONDS, Served

from allocator import Allocator
from allocator.errors import AccessDenied, DatabaseUnavailable


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


def test_a_body_that_is_too_large_is_refused_unread(embedded, tag):
    put, chunk = f"PUT /v1/tags/{tag} HTTP/1.1\r\nHost: localhost\r\n", "x" * 0xFFFFF
    for rest in ("Content-Length: 104857600\r\n\r\n", f"Transfer-Encoding: chunked\r\n\r\nfffff\r\n{chunk}\r\n"):
        assert talk(embedded, put + rest)[9:12] == "413", rest[:20]


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


# -- the service on a Unix socket, and its clients


FILE = "Ids of the Shop.sock"
"""With capitals and spaces, which the host of a URL cannot hold."""


@pytest.fixture
def at_socket(fresh: str, tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
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


@SQLITE
def test_ids_come_over_it_and_its_file_goes_at_the_end(at_socket, fresh, tag):
    path, process = at_socket
    both = ["unix:///none.sock", f"unix://{path}"]
    with Allocator(both[1]) as ids, Allocator(both) as others:
        drawn = [*ids.next_ids(tag, 50), *others.next_ids(tag, 50)]
        secret = run(fresh, "tokens", "create", "shop", "--tags", tag, "--json").json["secret"]
        assert until(lambda: is_refused(ids, tag), START_SECONDS)
    said = run(f"{both[0]} UNIX://{path}", "next", tag, ALLOCATOR_TOKEN=secret)
    assert distinct([*drawn, int(said.out)]) == 101
    with Allocator(both[0]) as none, pytest.raises(DatabaseUnavailable, match="none.sock did not answer: FileNotFound"):
        none.next_id(tag)
    assert S_IMODE(path.stat().st_mode) == 0o660
    process.send_signal(signal.SIGTERM)
    process.wait(START_SECONDS)

    assert not path.exists()


def is_refused(ids: Allocator, tag: str) -> bool:
    try:
        ids.reserve(tag, 1)
    except AccessDenied:
        return True
    return False


@SQLITE
def test_only_the_socket_of_a_service_that_was_killed_is_replaced(at_socket, fresh, tmp_path, tag):
    path, process = at_socket
    again = [sys.executable, "-m", "allocator", "serve", "--open", "--url", fresh, "--uds", str(path)]
    refused = subprocess.run(again, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert refused.returncode == 1
    assert f"cannot listen on {path}: Address already in use" in refused.stderr
    process.kill()
    assert until(lambda: not answers(path), START_SECONDS)
    assert path.is_socket()

    with subprocess.Popen(again, cwd=tmp_path) as second:
        assert until(lambda: answers(path), START_SECONDS, hopeless=lambda: second.poll() is not None)
        second.terminate()

"""The service on a Unix socket, and its clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE

import pytest
from click.testing import CliRunner
from support.distinct import distinct
from support.processes.patience import until
from support.service.served import START_SECONDS

from allocator import Allocator
from allocator.cli import main
from allocator.errors import AccessDenied, DatabaseUnavailable, InvalidDatabase, InvalidSetting
from allocator.service.server import check_access
from allocator.service.settings import ServeSettings

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

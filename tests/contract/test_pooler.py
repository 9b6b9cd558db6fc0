"""Ids through a real PgBouncer in transaction mode: each statement may reach another connection."""

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url
from support.distinct import distinct
from support.kit import ON_POSTGRES
from support.servers.throwaway import free_port, started

from allocator import Allocator

SETTINGS = """
[databases]
{server.database} = host={server.host} port={server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 2
"""
"""To the server: fewer than clients, so that each is used by many."""


@pytest.fixture
def pooler(fresh: str) -> Iterator[str]:
    """The URL of a database through the pooler."""
    binary = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if binary is None:
        pytest.skip("no pgbouncer on this machine")
    server, folder, port = make_url(fresh), Path(tempfile.mkdtemp(prefix="allocator-pooler-")), free_port()
    (folder / "users").write_text(f'"{server.username}" "{server.password}"\n')
    (folder / "settings").write_text(SETTINGS.format(server=server, port=port, folder=folder))
    place = server.set(host="127.0.0.1", port=port)
    url = place.set(drivername="postgresql").render_as_string(False)
    process = started([binary, folder / "settings"], folder, lambda: answers(url))
    yield place.render_as_string(hide_password=False)
    process.terminate()
    process.wait(20)
    shutil.rmtree(folder, ignore_errors=True)


def answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


@ON_POSTGRES
def test_ids_of_every_kind(pooler):
    with Allocator(pooler, step=1) as ids, Allocator(pooler, step=1) as others, ThreadPoolExecutor(8) as pool:

        def draw(number: int) -> tuple[object, ...]:
            of = others if number % 2 else ids
            return of.next_id("order"), of.reserve("block", 5)[0], of.ticket("job"), of.meteor(), of.snowflake()

        found = list(pool.map(draw, range(60)))

    assert [distinct(each) for each in zip(*found, strict=True)] == [60] * 5

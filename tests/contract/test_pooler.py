"""Ids and numbers through a real PgBouncer in transaction mode: each statement may reach another connection."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, make_url
from support.distinct import distinct
from support.kit import ON_POSTGRES
from support.servers.throwaway import free_port, started

from allocator import Allocator, Numbers
from allocator.errors import DatabaseRefused

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


CLIENTS, TIMES = 8, 60
pytestmark = ON_POSTGRES


def at_once(act: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(act, range(TIMES)))


def test_ids_of_every_kind(pooler):
    with Allocator(pooler, step=1) as ids, Allocator(pooler, step=1) as others:

        def draw(number: int) -> tuple[object, ...]:
            of = others if number % 2 else ids
            return of.next_id("order"), of.reserve("block", 5)[0], of.ticket("job"), of.meteor(), of.snowflake()

        found = at_once(draw)

    assert [distinct(each) for each in zip(*found, strict=True)] == [TIMES] * 5


def test_what_it_refuses_is_no_outage(pooler):
    place = make_url(pooler)
    for wrong, sentence in (
        (
            place.update_query_dict({"options": "-c search_path=public"}),
            "is a pooler that refuses an argument .*options",
        ),
        (place.set(database="nowhere"), "there is no such database"),
        (place.set(username="nobody_here"), "refuses the login"),
        (place.update_query_dict({"sslmode": "require"}), "do not agree on TLS"),
    ):
        with Allocator(wrong) as ids, pytest.raises(DatabaseRefused, match=sentence):
            ids.next_id("order")


def test_numbers_while_every_third_transaction_is_rolled_back(pooler):
    """The psycopg of an application must not prepare statements, which this PgBouncer does not know of."""
    engine = create_engine(pooler, pool_size=CLIENTS, connect_args={"prepare_threshold": None})
    cases = Numbers("case")

    def draw(number: int) -> int | None:
        with engine.connect() as connection:
            drawn = cases.next(connection, "a").n
            if number % 3 == 0:
                connection.rollback()
                return None
            connection.commit()
            return drawn

    drawn = [one for one in at_once(draw) if one is not None]
    engine.dispose()

    assert sorted(drawn) == list(range(1, TIMES - TIMES // 3 + 1))

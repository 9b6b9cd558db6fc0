"""Before the first id: `ping`, `create_tables`, and how much a process asks of its database, counted at the driver."""

from collections.abc import Callable

import pymysql
import pytest
from pymysql.constants import CLIENT
from sqlalchemy import create_engine, make_url
from support.distinct import distinct
from support.faults.meanwhile import meanwhile
from support.faults.wire import counted
from support.kit import OF_THE_RULE, ON_MYSQL, ON_POSTGRES, SQLITE, on
from support.servers.administrator import execute
from support.servers.fleets import bare

from allocator import Allocator
from allocator.database.tables import VERSION_TABLE
from allocator.database.verbs import segments
from allocator.errors import DatabaseUnavailable, InvalidSetting, SchemaDamaged, SchemaOutOfDate

ACTS: tuple[tuple[int, Callable[[Allocator], object]], ...] = (
    (2, lambda ids: ids.next_id("there")),
    (2, lambda ids: ids.reserve("there", 1)),
    (5, lambda ids: ids.next_id("made")),
    (5, lambda ids: ids.tags.create("created")),
    (5, lambda ids: ids.snowflake()),
    (4, lambda ids: ids.meteor()),
    (3, lambda ids: ids.ticket("there")),
)
"""How much each may ask; what a failover could have forgotten asks also where the rows are from."""
THEIRS = 9
"""What SQLAlchemy and its driver ask at the first connect of a process, at most, and the ends of a transaction."""


def test_a_process_asks_little_before_its_first_id(fresh):
    with Allocator(fresh) as before:
        before.next_id("there"), before.ticket("there")
    # MySQL sets its session. SQLite reads back what it committed, without a round trip.
    more = {"postgresql": 0}.get(make_url(fresh).get_backend_name(), 1)
    for most, draw in ACTS:
        with counted(fresh) as asked, Allocator(fresh) as ids:
            draw(ids)

        ours = [words for words in asked if "allocator_" in words]
        assert 2 <= len(ours) <= most + more, asked
        assert len(asked) - len(ours) <= THEIRS, asked


@ON_POSTGRES
def test_who_looks_at_rows_asks_nothing_that_a_standby_refuses(fresh):
    with Allocator(fresh) as before:
        before.next_id("there")

    with counted(fresh) as asked, Allocator(fresh) as ids:
        assert ids.tags.list()

    assert not [words for words in asked if "pg_current_wal_lsn" in words]


@ON_MYSQL
def test_a_proxy_may_greet_as_the_other_of_mysql_and_mariadb(fresh, kind):
    url = make_url(fresh)
    place = dict(host=url.host, port=url.port, user=url.username, password=url.password, database=url.database)

    def through_proxy() -> pymysql.Connection:
        connection = pymysql.connect(**place, client_flag=CLIENT.FOUND_ROWS)
        connection.server_version = {"mysql": "10.11.6-MariaDB (proxy)", "mariadb": "8.0.30 (proxy)"}[kind]
        return connection

    with Allocator(create_engine(url, creator=through_proxy)) as ids:
        assert [ids.next_id("order"), ids.ticket("job")] == [1, 1]
        assert distinct([ids.meteor(), ids.snowflake()]) == 2


@SQLITE
def test_tables_that_another_thread_made_meanwhile_are_looked_at_again(database, monkeypatch):
    fetch = segments.fetch_snapshot

    def be_early(*_: object) -> None:
        raise SchemaOutOfDate("none of the tables for ids yet")

    meanwhile(monkeypatch, segments, "fetch_snapshot", be_early)
    database.snapshot()
    assert segments.fetch_snapshot is fetch


@ON_MYSQL
def test_a_table_without_transactions_is_refused(fresh):
    draws = {"allocator_segment": "next_id", "allocator_number": "next_id", "allocator_ticket": "ticket"}
    for table, draw in draws.items():
        execute(fresh, f"ALTER TABLE {table} ENGINE = MyISAM")
        undo = f"ALTER TABLE {table} ENGINE = InnoDB"
        with Allocator(fresh) as ids, pytest.raises(SchemaDamaged, match=f"undo it: {undo}"):
            getattr(ids, draw)("order")
        execute(fresh, undo)


# -- `ping` and `create_tables`


@OF_THE_RULE
def test_a_ping_draws_nothing(face, place, tag):
    ids = face(place)
    ids.ping()
    ids.ping()

    assert ids.next_id(tag) == 1


def test_each_call_says_what_is_missing_until_the_tables_are_made(face, kind, empty):
    ids = face(empty)
    if kind != "sqlite":  # which makes its own
        for call in (ids.ping, lambda: ids.next_id("order"), lambda: ids.reserve("order", 1), ids.tags.list):
            with pytest.raises(SchemaOutOfDate, match="has none of the tables for ids yet; run: allocator db upgrade"):
                call()
    ids.create_tables()
    ids.create_tables()
    ids.ping()
    assert face(empty).next_id("order") == 1  # the first one asks again after a second
    execute(empty, "DROP TABLE allocator_segment")
    with pytest.raises(SchemaOutOfDate, match="allocator_segment.*allocator db upgrade"):
        face(empty).ping()


def test_a_revision_that_is_ahead_is_refused_also_beside_ours(fresh, database):
    execute(fresh, f"INSERT INTO {VERSION_TABLE} VALUES ('zz')")

    with pytest.raises(SchemaOutOfDate, match="revision zz, which is newer than .* upgrade the package"):
        database.snapshot()


@on("sqlite", of="fleet_kind")  # whose shards are of this test alone
def test_a_ping_of_a_fleet_is_answered_by_one(fleet):
    urls = fleet(2)
    with Allocator(shards=urls) as ids:
        ids.ping()
        execute(bare(urls[0]), "DROP TABLE allocator_shard")
        ids.ping()
        execute(bare(urls[1]), "DROP TABLE allocator_shard")
        with pytest.raises(SchemaOutOfDate):
            ids.ping()


def test_a_ping_of_nobody_and_a_service_that_makes_no_tables(face):
    for address in ("postgresql+psycopg://127.0.0.1:9/none", "http://127.0.0.1:9"):
        with pytest.raises(DatabaseUnavailable):
            face(address, timeout=0.5).ping()
    with pytest.raises(InvalidSetting, match="a client of a service cannot create tables"):
        face("http://127.0.0.1:9").create_tables()

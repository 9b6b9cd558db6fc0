"""How much a process asks of its database before its first id, counted on the wire."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pymysql
import pytest
from pymysql.constants import CLIENT
from sqlalchemy import create_engine, make_url
from support.distinct import distinct
from support.faults.message_counter import counted
from support.servers.administrator import execute

from allocator import Allocator
from allocator.database.schema.tables import VERSION_TABLE
from allocator.database.store import Database
from allocator.database.verbs import start
from allocator.errors import SchemaDamaged, SchemaOutOfDate

ACTS: tuple[tuple[int, Callable[[Allocator], object]], ...] = (
    (2, lambda ids: ids.next_id("there")),
    (2, lambda ids: ids.reserve("there", 1)),
    (5, lambda ids: ids.next_id("made")),
    (4, lambda ids: ids.snowflake()),
    (4, lambda ids: ids.meteor()),
    (4, lambda ids: ids.ticket("there")),
)
"""How much each may ask; what a failover could have forgotten asks also where the rows are from. The first ticket comes
last: it makes a row that others would read."""
THEIRS = 7
"""What SQLAlchemy and its driver ask at the first connect of a process, at most."""


@pytest.mark.statements
def test_a_process_asks_little_before_its_first_id(fresh):
    with Allocator(fresh) as before:
        before.next_id("there")
    # MySQL sets its session. SQLite reads back what it committed, without a round trip.
    more = {"postgresql": 0}.get(make_url(fresh).get_backend_name(), 1)
    for most, draw in ACTS:
        with counted(fresh) as (url, asked), Allocator(url) as ids:
            draw(ids)

        ours = [words for words in asked.messages if "allocator_" in words]
        assert 2 <= len(ours) <= most + more, asked.messages
        assert len(asked.messages) - len(ours) <= THEIRS, asked.messages


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_who_looks_at_rows_asks_nothing_that_a_standby_refuses(fresh):
    with Allocator(fresh) as before:
        before.next_id("there")

    with counted(fresh) as (url, asked), Allocator(url) as ids:
        assert ids.tags.list()

    assert not [words for words in asked.messages if "pg_current_wal_lsn" in words]


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
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


@pytest.mark.statements
def test_a_second_revision_is_an_error_and_no_loop(fresh):
    execute(fresh, f"INSERT INTO {VERSION_TABLE} VALUES ('zz')")

    with closing(Database(fresh)) as database, pytest.raises(SchemaOutOfDate, match="revision zz, which is newer"):
        database.check_schema()


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_tables_that_another_thread_made_meanwhile_are_looked_at_again(fresh, monkeypatch):
    with closing(Database(fresh)) as database:
        run, late = database.run, [SchemaOutOfDate("none of the tables for ids yet")]

        def run_late(verb, *said) -> object:
            if verb is start.fetch and late:
                error = late.pop()
                database.check_sound()
                raise error
            return run(verb, *said)

        monkeypatch.setattr(database, "run", run_late)

        database.check_schema()

    assert late == []


# -- what the start does not look at, and would give an id twice


INSERT = "INSERT INTO allocator_segment (tag, max_value, step, max_step, id_limit, server_run) VALUES"
WORKER = "'1/41/5/5/12', 1288834974657, '{0}', 1, '', 0"


def copied(url: str, table: str, *changes: str) -> None:
    """A table without its keys, as a tool that copies rows makes it."""
    execute(url, f"CREATE TABLE bare AS SELECT * FROM {table}", f"DROP TABLE {table}", *changes)
    execute(url, f"ALTER TABLE bare RENAME TO {table}")


@pytest.mark.statements
def test_a_tag_with_a_second_row_is_refused_also_where_one_alone_could_be_claimed_from(fresh):
    with Allocator(fresh) as before:
        before.next_id("order")
    copied(fresh, "allocator_segment")
    for second in ("500, 1, 1, 9000, 'elsewhere'", "9000, 1, 1, 9000, ''"):
        execute(fresh, f"{INSERT} ('order', {second})")
        with Allocator(fresh) as ids, pytest.raises(SchemaDamaged):
            ids.next_id("order")
        execute(fresh, f"DELETE FROM allocator_segment WHERE max_value = {second.partition(',')[0]}")


@pytest.mark.statements
def test_two_leases_of_one_worker_are_refused(fresh):
    rows = ", ".join(f"(7, {WORKER.format(holder)})" for holder in "ab")
    copied(fresh, "allocator_worker", f"INSERT INTO bare VALUES {rows}")

    with Allocator(fresh) as ids, pytest.raises(SchemaDamaged):
        ids.snowflake()


@pytest.mark.parametrize("kind", ["sqlite", "mysql", "mariadb"], indirect=True)
def test_a_counter_of_tickets_without_its_key_is_refused(fresh, kind):
    """Without it SQLite and MySQL draw the first ticket again; on PostgreSQL the statement itself fails."""
    copied(fresh, "allocator_ticket" if kind == "sqlite" else "allocator_ticket_counter")

    with Allocator(fresh, tickets="count") as ids, pytest.raises(SchemaDamaged, match="primary key|NOT NULL"):
        ids.ticket("job")


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_a_table_without_transactions_is_refused(fresh):
    execute(fresh, "ALTER TABLE allocator_segment ENGINE = MyISAM")

    with Allocator(fresh) as ids, pytest.raises(SchemaDamaged, match="is kept by MyISAM, and must be by InnoDB"):
        ids.next_id("order")

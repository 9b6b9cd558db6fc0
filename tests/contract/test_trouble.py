"""Damaged tables, lost connections, unknown commits: never an id twice, always one clear sentence."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.pool import StaticPool
from support.distinct import distinct
from support.faults.wire import Wire
from support.kit import ON_MYSQL, ON_POSTGRES, ON_SERVERS, SERVERS, SQLITE, database_of
from support.processes.patience import patiently, until
from support.rules import rule
from support.servers.administrator import SEEN_EACH, administrator, execute, opened, waits
from support.servers.fleets import claim_tickets

from allocator import Allocator
from allocator.database import mysql
from allocator.database.sqlite import SQLite as FileDialect
from allocator.database.store import Database
from allocator.database.verbs import segments
from allocator.errors import (
    DatabaseRefused,
    DatabaseUnavailable,
    InvalidDatabase,
    MaxValueWentBack,
    SchemaDamaged,
)
from allocator.schemes.shared.residues import Residue
from allocator.schemes.tag import Tag

INSERT = "INSERT INTO allocator_segment (tag, max_value, step, max_step, id_limit) VALUES"


def without_key(url: str, value_type: str = "BIGINT") -> None:
    """The table as somebody may have made it by hand."""
    execute(
        url,
        "DROP TABLE allocator_segment",
        f"CREATE TABLE allocator_segment (tag VARCHAR(64), max_value {value_type}, step BIGINT, max_step BIGINT, "
        "id_limit BIGINT, shard_offset BIGINT DEFAULT 1, shard_step BIGINT DEFAULT 1, "
        "move BIGINT DEFAULT 0, failover_gap BIGINT DEFAULT 0, skipped BIGINT DEFAULT 0, "
        "claimed_at BIGINT DEFAULT 0)",
    )


def small_column(url: str, tag: str) -> None:
    """A tag that is near the end of a column of 32 bits, and whose limit does not say so."""
    without_key(url, "INT")
    execute(url, f"{INSERT} ('{tag}', 2147483600, 20, 20, 9223372036854775807)")


def calls(ids: Any, tag: str) -> tuple[Callable[[], object], ...]:
    return lambda: ids.next_id(tag), lambda: ids.reserve(tag, 1), ids.tags.list


# -- the schema


# -- a table altered by hand


@rule(7)
def test_a_value_that_was_lowered_stops_the_tag(sync, fresh, tag):
    ids = sync(fresh, step=100, max_step=100, failover_gap=0)  # or SQLite, which notices by itself, would skip it
    before = ids.next_ids(tag, 150)
    execute(fresh, f"UPDATE allocator_segment SET max_value = 50 WHERE tag = '{tag}'")
    with pytest.raises(MaxValueWentBack, match=f"raise it above every id in use .allocator tags repair {tag}"):
        before.extend(ids.next_id(tag) for _ in range(1000))

    assert distinct(before) >= 150
    for call in (lambda: ids.next_id(tag), lambda: ids.reserve(tag, 1)):
        with pytest.raises(MaxValueWentBack):
            call()


def test_a_row_that_was_deleted_is_not_made_again(sync, fresh, tag):
    ids = sync(fresh)
    ids.next_id(tag)
    execute(fresh, "DELETE FROM allocator_segment")

    with pytest.raises(MaxValueWentBack, match=rf"row is gone .* up to 10\. .*tags create {tag} --start-after N\)"):
        ids.reserve(tag, 1)


def test_a_second_row_that_a_running_process_meets_is_refused(sync, fresh, tag):
    ids = sync(fresh)
    ids.reserve(tag, 1)
    without_key(fresh)
    key = "(SELECT move FROM allocator_shard)"
    columns = "tag, max_value, step, max_step, id_limit, move"
    row = f"INSERT INTO allocator_segment ({columns}) SELECT '{tag}', 500, 10, 10, 1000, {key}"
    execute(fresh, row, row)

    with pytest.raises((SchemaDamaged, DatabaseUnavailable), match="see: allocator db check|Multiple rows were found"):
        ids.reserve(tag, 1)


def test_a_deadlock_is_tried_again(url, tag, monkeypatch):
    with Allocator(url) as ids:
        ids.reserve(tag, 1)
        answers = [True, True, False]
        monkeypatch.setattr("allocator.database.store.is_contended", lambda error, dialect: answers.pop(0))
        claim = segments.claim

        def deadlocked(connection, dialect, *claimed):
            if answers[0]:
                connection.exec_driver_sql("SELECT no_such_column FROM allocator_segment")
            return claim(connection, dialect, *claimed)

        monkeypatch.setattr(segments, "claim", deadlocked)

        assert ids.reserve(tag, 1) == range(2, 3)


@SQLITE
def test_an_answer_that_begins_with_an_id_that_was_seen_is_not_served(sync, fresh, monkeypatch):
    ids = sync(fresh)
    ids.reserve("order", 5)
    monkeypatch.setattr(segments, "claim", lambda *_: 9)
    with pytest.raises(SchemaDamaged, match="a claim of 5 ids above 5 returned 9"):
        ids.reserve("order", 5)


@rule(4)
@ON_SERVERS
def test_the_pool_of_the_users_engine_may_be_used_up(sync, url, tag):
    with opened(url, pool_size=1, max_overflow=0, pool_timeout=0.2) as engine, engine.connect():
        assert sync(engine).next_id(tag) == 1


SHARED: dict[str, dict[str, Any]] = {
    "one connection": {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}},
    "one for each thread": {"connect_args": {"check_same_thread": False}},
}


def test_an_engine_of_a_memory_that_threads_may_share_is_used(face, tag):
    for name, options in SHARED.items():
        ids = face(create_engine("sqlite://", **options))
        assert [ids.next_id(tag), *ids.reserve(tag, 2), len(ids.tags.list())] == [1, 11, 12, 1], name


def test_an_engine_that_cannot_be_used_is_a_clear_error(face, tmp_path, tag, caplog):
    """One of which each connection is for one thread, as SQLAlchemy makes it for a memory; and a hook that fails."""
    memory, hooked = create_engine("sqlite://"), create_engine(f"sqlite:///{tmp_path}/ids.db")

    @event.listens_for(hooked, "do_connect")
    def fetch_token(*_: object) -> None:
        raise KeyError("token")

    for engine, error, sentence in (
        (memory, InvalidDatabase, "for the thread that made it; give the URL, or .*check_same_thread"),
        (hooked, DatabaseRefused, "cannot be used: KeyError: 'token'"),
    ):
        ids = face(engine)
        for call in calls(ids, tag):
            with pytest.raises(error, match=sentence):
                call()
        ids.close()
    assert caplog.records == []


ODD = "cannot be used: .*(sslmode|nosuch|timeout|keepalives|port).*; check the URL and its arguments"
OF_PYMYSQL = ("sslmode=require", "charset=nope", "read_timeout=abc", "connect_timeout=abc")
OF_PSYCOPG = ("sslmode=bogus", "nosuch=1", "connect_timeout=abc", "keepalives=no", "port=99999")
NO_DATABASE = {
    "nonsense": "this is not a database URL",
    "sqlite": "this is not a database URL",
    "oracle://u:s3cret@h/x": "known are sqlite, postgresql, mysql, mariadb",
    "postgresql+nosuch://u:s3cret@h/x": "names a driver that SQLAlchemy does not know",
    5: "a database is a URL or a SQLAlchemy Engine, got int",
    **{
        f"{kind}+mysqlconnector://u:s3cret@127.0.0.1/x": f"cannot use; give a URL that begins with {kind}.pymysql://"
        for kind in ("mysql", "mariadb")
    },
    **{f"mysql+pymysql://u:s3cret@127.0.0.1:1/x?{argument}": "cannot be used" for argument in OF_PYMYSQL},
    **{f"postgresql+psycopg://u:s3cret@127.0.0.1:1/x?{argument}": ODD for argument in OF_PSYCOPG},
}


def test_what_names_no_database_or_an_argument_that_its_driver_does_not_take_is_a_clear_error(tag, subtests):
    """Trying again would never help."""
    for url, sentence in NO_DATABASE.items():
        with subtests.test(url=url):
            with pytest.raises((ValueError, DatabaseRefused), match=sentence) as refused:
                Allocator(url).next_id(tag)
            assert "s3cret" not in str(refused.value)


@ON_POSTGRES
def test_a_search_path_without_a_schema_is_refused(empty):
    sentence = "no schema has been selected .*; check that the search_path"
    url = f"{empty}?options=-csearch_path%3Dnowhere"
    with closing(Database(url)) as database, pytest.raises(DatabaseRefused, match=sentence):
        database.upgrade_schema()


@ON_SERVERS
def test_a_column_too_small_gives_no_id_twice(sync, fresh, tag):
    small_column(fresh, tag)
    ids = sync(fresh)
    drawn = []
    with pytest.raises(SchemaDamaged, match="see: allocator db check"):
        drawn.extend(ids.next_id(tag) for _ in range(200))

    assert distinct(drawn) >= 20


@ON_MYSQL
def test_control_without_strict_mode_a_small_column_repeats_ids(fresh, tag):
    """What the strict mode of our sessions and the check for warnings prevent."""
    small_column(fresh, tag)
    with administrator(fresh) as connection:
        connection.execute(text("SET SESSION sql_mode = ''"))
        claim = text("UPDATE allocator_segment SET max_value = LAST_INSERT_ID(max_value + 100)")
        claimed = [connection.execute(claim).lastrowid for _ in range(3)]

    assert claimed[1] == claimed[2]


@ON_MYSQL
@pytest.mark.parametrize("gone", ["SESSION", "warned"])
def test_each_guard_against_a_small_column_is_enough(fresh, tag, monkeypatch, gone):
    """Our sessions are strict whatever the server's are, and a value that was clipped comes with a warning."""
    small_column(fresh, tag)
    lax = {"SESSION": "SET SESSION innodb_lock_wait_timeout = {half}", "warned": lambda result: False}
    monkeypatch.setattr(mysql, gone, lax[gone])
    with (
        Allocator(f"{fresh}?init_command=SET SESSION sql_mode = ''") as ids,
        pytest.raises(SchemaDamaged, match="Out of range|came with a warning"),
    ):
        ids.reserve(tag, 100)


@rule(6)
@SQLITE
def test_the_table_itself_refuses_an_overflow(fresh):
    """Of the value, which is a REAL then, and of the limit."""
    for value, limit in (("9223372036854775807 + 1", "9223372036854775807"), ("1", "9223372036854775807 + 1")):
        with pytest.raises(Exception, match="CHECK constraint failed"):
            execute(fresh, f"{INSERT} ('x', {value}, 1, 1, {limit})")


# -- connections


@rule(3)
@pytest.mark.parametrize("kind", SERVERS, indirect=True)
@pytest.mark.parametrize("how", ["claim", "ticket", "claimed ticket"])
def test_a_claim_and_a_ticket_are_one_round_trip(sync, fresh, how):
    if how == "claimed ticket":
        claim_tickets(fresh)
    with Wire(fresh) as wire:
        ids = sync(wire.url, step=5, max_step=5)
        draw = partial(ids.reserve, "order", 1) if how == "claim" else partial(ids.ticket, "order")
        draw()
        wire.reset()
        for _ in range(20):
            draw()

        assert wire.round_trips == 20
        ids.close()


@ON_SERVERS
def test_a_connection_that_went_stale_costs_the_caller_nothing(face, url, tag):
    with Wire(url) as wire:
        ids = face(wire.url, step=5, max_step=5)
        drawn = ids.next_ids(tag, 10)
        wire.cut()
        drawn += ids.next_ids(tag, 50)
        wire.cut()
        drawn += ids.reserve(tag, 5)

        assert distinct(drawn)
        assert sorted(drawn) == drawn
        ids.close()


@rule(1)
@ON_SERVERS
def test_an_answer_that_never_comes_is_given_up_in_time_and_burns_the_range(face, url, tag):
    """Rule 1: the commit has happened, and nobody knows; the same ids must not be claimed again or adopted.

    Of a URL, and of an engine; on a connection that is open, and on a new one, which would hold a thread for long.
    """
    with Wire(url) as wire:
        engine = create_engine(wire.url)
        ids = face(wire.url if face.name == "sync" else engine, timeout=2)
        first = ids.reserve(tag, 10)
        wire.deaf = True
        with pytest.raises(DatabaseUnavailable, match=r"(did not answer within|is not available|no answer within)"):
            ids.reserve(tag, 10)
        assert wire.said.wait(5)
        with closing(Database(wire.url, timeout=1)) as other, pytest.raises(DatabaseUnavailable):
            other.run(segments.fetch, tag)
        with closing(Database(url, timeout=2)) as free:  # for whom nothing is locked
            claimed = free.claim_segment(tag, 10, {})
        wire.deaf = False
        wire.cut()
        later = patiently(lambda: ids.reserve(tag, 10))

        assert distinct([*first, *claimed, *later]) == 30
        assert min(*claimed, *later) > first[-1] + 10
        ids.close()
        engine.dispose()


@ON_SERVERS
def test_a_lock_held_by_somebody_ends_in_an_error_and_not_in_a_hang(sync, url, kind, tag):
    ids = sync(url, timeout=2.0)
    ids.reserve(tag, 1)
    with opened(url) as engine, engine.connect() as connection:
        connection.execute(text("UPDATE allocator_segment SET step = step WHERE tag = :tag"), {"tag": tag})
        connection.execute(text("UPDATE allocator_segment SET step = step + 1 WHERE tag = :tag"), {"tag": tag})
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable):
                ids.reserve(tag, 1)
        with engine.connect() as watcher:  # the statements given up are ended in the server too
            assert until(lambda: not waits(kind, watcher), every=SEEN_EACH)
        connection.rollback()

    assert ids.reserve(tag, 1) == range(2, 3)


def test_the_durability_of_sqlite_is_full(tmp_path):
    with Allocator(f"sqlite:///{tmp_path}/ids.db") as ids:
        database = database_of(ids)
        level = database.run(lambda connection, _: connection.exec_driver_sql("PRAGMA synchronous").scalar())

    assert level == 3  # EXTRA


@rule(1)
@ON_POSTGRES
def test_a_commit_that_comes_with_a_warning_is_burnt(sync, fresh, tag):
    """Rule 1. As when synchronous replication is cancelled: the server says success, and a warning."""
    ids = sync(fresh)
    first = ids.reserve(tag, 10)
    execute(
        fresh,
        "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE WARNING 'canceling wait for synchronous replication'; RETURN NEW; END $$",
        "CREATE TRIGGER warn BEFORE UPDATE ON allocator_segment FOR EACH ROW EXECUTE FUNCTION warn()",
    )
    with pytest.raises(DatabaseUnavailable, match="came with a warning, so what it claimed is burnt: canceling wait"):
        ids.reserve(tag, 10)
    execute(fresh, "DROP TRIGGER warn ON allocator_segment")

    assert ids.reserve(tag, 10)[0] == first[-1] + 11


# -- what is not committed is not served


@rule(1)
@pytest.mark.parametrize("use", ["next_id", "ticket"])
def test_a_commit_that_is_refused_leaves_nothing_open(sync, tmp_path, tag, use):
    """SQLite refuses a COMMIT while somebody reads for longer than we wait; ids must not come out of what is open."""
    file = tmp_path / "ids.db"
    sync(f"sqlite:///{file}").next_id("other")  # so that the tables are there
    ids, other = sync(f"sqlite:///{file}", timeout=0.3), sync(f"sqlite:///{file}")
    draw = getattr(ids, use)
    execute(f"sqlite:///{file}", "PRAGMA journal_mode = DELETE")
    with closing(sqlite3.connect(file)) as reader, closing(sqlite3.connect(file, isolation_level=None)) as writer:
        rows = reader.execute("SELECT * FROM sqlite_master")
        next(rows)
        with pytest.raises(DatabaseUnavailable):
            draw(tag)
        assert until(lambda: may_write(writer)), "the claim has ended too"
        rows.close()
    found = patiently(lambda: draw(tag))

    assert distinct([found, later := getattr(other, use)(tag)])
    assert use == "next_id" or later > found


def may_write(connection: sqlite3.Connection) -> bool:
    with suppress(sqlite3.OperationalError):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
        return True
    return False


@rule(1)
def test_a_claim_that_failed_takes_nothing_that_is_in_the_row(tmp_path, tag):
    """Rule 1: what the row says by then is another's range."""
    url = f"sqlite:///{tmp_path}/ids.db"
    with Allocator(url) as ids:
        assert ids.reserve(tag, 10) == range(1, 11)
    ours = Database(url, timeout=0.2)
    writer = sqlite3.connect(f"{tmp_path}/ids.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnavailable):
        ours.claim_segment(tag, 10, {})
    writer.close()

    assert ours.claim_segment(tag, 10, {}) == range(11, 21)
    ours.close()


def test_a_folder_that_is_changed_later_changes_nothing(sync, tmp_path, tag, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ids = sync("sqlite:///ids.db")
    assert ids.ticket(tag) == 1
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert [ids.ticket(tag), ids.next_id(tag)] == [2, 1]
    assert not list((tmp_path / "elsewhere").iterdir())


@SQLITE
def test_a_row_of_no_fleet_stops_the_process_that_saw_one(fresh, tag):
    """As a database that was restored to before the fleet was made."""
    with closing(Database(fresh)) as database:
        database.create_tag(Tag(tag))
        with pytest.raises(MaxValueWentBack, match="this process claimed ids up to 5000"):
            database.claim_segment(tag, 5, {Residue(2, 2): 5000})


READ_ONLY = {
    "postgres": "SET default_transaction_read_only = on",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
}


@ON_SERVERS
def test_a_server_that_may_not_write_any_more_is_left(sync, url, kind, tag):
    """As after a failover: the old primary still answers on the connections that are open, and refuses to write."""
    engine = create_engine(url)
    opened: list[object] = []

    @event.listens_for(engine, "connect")
    def keep(connection, record):
        opened.append(connection)

    ids = sync(engine)
    drawn = list(ids.reserve(tag, 5))  # and nothing that goes on beside the test
    for connection in opened:
        with connection.cursor() as cursor:
            cursor.execute(READ_ONLY[kind])
        connection.commit()
    before = len(opened)
    drawn += ids.reserve(tag, 5)
    engine.dispose()

    assert drawn == list(range(1, 11))
    assert len(opened) == before + 1


@ON_POSTGRES
def test_a_server_that_does_not_call_itself_postgresql_is_used(sync, fresh, tag):
    """As CockroachDB, of which SQLAlchemy says that it could not determine the version."""
    execute(
        fresh,
        "SET allow_system_table_mods = on",
        "ALTER FUNCTION pg_catalog.version() RENAME TO version_in_truth",
        "CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql AS "
        "$$ SELECT 'CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu)' $$",
    )

    assert sync(fresh).next_id(tag) == 1


LOCKED = r"is locked by another process, .*: waited [\d.]+ seconds; end the transaction"


def test_a_locked_file_is_called_locked_also_by_a_call_behind_one_that_waits_for_it(tmp_path):
    path = f"{tmp_path}/ids.db"
    with closing(Database(f"sqlite:///{path}", 0.3)) as database:
        database.upgrade_schema()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(DatabaseUnavailable, match=LOCKED):
                database.run(segments.fetch_all)
        with FileDialect().alone(path, time.monotonic() + 5), pytest.raises(DatabaseUnavailable, match=LOCKED):
            database.run(segments.fetch_all)

"""The ledger: each claim is written with who made it, in its transaction; and never stops ids that it need not stop."""

from __future__ import annotations

import os
import platform
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from rig.sql import execute, values
from rig.wire import Wire
from sqlalchemy import create_engine, event
from sqlalchemy.exc import DBAPIError

import allocator
from allocator import (
    Allocator,
    AllocatorError,
    DatabaseUnavailable,
    Exhausted,
    InvalidId,
    InvalidSetting,
    LedgerSettings,
    MaxValueWentBack,
    MeteorSettings,
    SchemaDamaged,
    SchemaOutOfDate,
)
from allocator.backend import databases_at
from allocator.database.recorder import Recorder
from allocator.database.store import Database
from allocator.schemes.lane import ALL
from allocator.schemes.layout import Layout
from allocator.schemes.ledger import DAY, Author
from allocator.tracing import trace

REQUIRED = LedgerSettings(required=True)
SERVERS = pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"], indirect=True)


def asked(url: str, number: object, tag: str | None = None, meteor: MeteorSettings | None = None):
    with databases_at([url], 5.0) as databases:
        return trace(databases, number, tag, meteor)


def test_every_id_leads_to_the_process_that_got_it(face, fresh):
    began = int(time.time()) - 2
    ids = face(fresh, ledger=True, step=10, max_step=10)
    drawn = ids.next_ids("order", 35)
    for number in drawn[::9]:
        (entry,) = asked(fresh, number).entries
        assert entry.author == Author(platform.node(), os.getpid(), allocator.__version__)
        assert (entry.tag, len(entry.ids)) == ("order", 10)
        assert began <= entry.claimed_s <= time.time() + 2


def test_entries_are_the_claims_without_a_gap_or_an_overlap(fresh):
    """Several processes, several threads: what the entries say together is what the row says."""
    with (
        closing(Allocator(fresh, ledger=True, step=7, max_step=7)) as one,
        closing(Allocator(fresh, ledger=True)) as two,
    ):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda ids: ids.next_ids("order", 50), [one, two] * 4))
        one.reserve("order", 1234)
    (last,) = values(fresh, "SELECT max_value FROM allocator_segment WHERE tag = 'order'")
    found, number = [], 1
    with databases_at([fresh], 5.0) as databases:
        while number <= last:
            (entry,) = trace(databases, number, "order").entries
            found.append(entry.ids)
            number = entry.ids[-1] + 1

    assert [ids for part in found for ids in part] == list(range(1, last + 1))
    assert values(fresh, "SELECT count(*) FROM allocator_ledger") == [len(found)]


def test_ids_of_several_tags_are_told_apart(fresh):
    with closing(Allocator(fresh, ledger=True)) as ids:
        for tag in ("a", "b", "c"):
            ids.reserve(tag, 100)

    assert [entry.tag for entry in asked(fresh, 50).entries] == ["a", "b", "c"]
    assert [entry.tag for entry in asked(fresh, 50, "b").entries] == ["b"]
    assert asked(fresh, 101).entries == []
    assert asked(fresh, 50, "d").entries == []


@pytest.mark.parametrize("fleet_kind", ["postgres", "mysql", "mariadb", "mixed"], indirect=True)
def test_a_shard_that_is_away_is_named_and_the_others_tell_what_they_know(shards):
    urls = shards(2)
    with Wire(urls[0]) as wire:
        given = [wire.url, urls[1]]
        with closing(Allocator(shards=given, ledger=True, step=10, max_step=10)) as ids:
            drawn, meteor = [ids.next_id("order") for _ in range(40)], ids.meteor()
        wire.refuse()
        with databases_at(given, 3.0) as databases:
            told = {number: trace(databases, number) for number in (*drawn[::7], meteor)}
        with databases_at([wire.url], 3.0) as databases, pytest.raises(DatabaseUnavailable):
            trace(databases, drawn[0])
        wire.accept()
        with databases_at(given, 3.0) as databases:
            whole = trace(databases, meteor)

    assert {number % 2 for number in told} == {0, 1}
    assert all(bool(told[number].entries) == (number % 2 == 0) for number in drawn[::7])  # those of the second shard
    assert [len(one.silent) for one in told.values()] == [1] * len(told)
    assert (told[meteor].node, whole.node is not None, whole.silent) == (None, True, [])


def test_without_a_ledger_nothing_is_written(fresh):
    with closing(Allocator(fresh)) as ids:
        ids.next_id("order")

    assert values(fresh, "SELECT count(*) FROM allocator_ledger") == [0]
    assert asked(fresh, 1).entries == []


def test_a_claim_that_brings_nothing_writes_nothing(fresh):
    with closing(Allocator(fresh, ledger=REQUIRED, limit=100, step=10, max_step=10)) as ids:
        ids.reserve("order", 100)
        for _ in range(2):
            with pytest.raises(Exhausted):
                ids.reserve("order", 1)

    assert values(fresh, "SELECT upto FROM allocator_ledger") == [100]


def test_nor_does_it_write_what_the_claim_before_it_brought(fresh):
    me = Author("h", 1, "v")
    with closing(Allocator(fresh)) as ids:
        ids.tags.create("order")
    with closing(Database(fresh)) as database, database.engine.connect() as connection:
        database.dialect.before(connection)
        assert database.dialect.claim_recorded(connection, me, 5.0, "order", 10, ALL, 0) == 10
        assert database.dialect.claim_recorded(connection, me, 5.0, "another", 10, ALL, 0) is None

    assert values(fresh, "SELECT tag FROM allocator_ledger") == ["order"]


def test_a_claim_that_leaves_a_margin_out_is_of_its_ids_alone(fresh):
    with closing(Allocator(fresh, ledger=True)) as ids:
        ids.reserve("order", 10)
        execute(fresh, "UPDATE allocator_segment SET epoch = 'elsewhere'")
        block = ids.reserve("order", 10)
    (entry,) = asked(fresh, block[0]).entries

    assert entry.ids == block
    assert block[0] > 10**9
    assert asked(fresh, block[0] - 1).entries == []


# -- one round trip


@SERVERS
def test_it_stays_one_statement_and_one_round_trip(fresh):
    statements = []
    with closing(Database(fresh)) as database:
        claim = ("order", 10, ALL, 0)
        execute(
            fresh,
            "INSERT INTO allocator_segment (tag, max_value, step, max_step, id_limit) VALUES ('order', 0, 1, 1, 1000)",
        )
        database.run(database.dialect.claim_recorded, Author("h", 1, "v"), 5.0, *claim)  # connected, and as far as that
        event.listen(database.engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
        database.run(database.dialect.claim_recorded, Author("h", 1, "v"), 5.0, *claim)

    assert len(statements) == 1


# -- a ledger in trouble


def test_a_ledger_that_cannot_be_written_does_not_stop_ids(face, fresh, caplog):
    ids = face(fresh, ledger=True, step=10, max_step=10)
    first = ids.next_id("order")
    execute(fresh, "ALTER TABLE allocator_ledger RENAME TO away")
    rest = ids.next_ids("order", 50)

    assert [first, *rest] == list(range(1, 52))
    assert "claims go on without it for 60 seconds" in caplog.text


def test_nor_does_one_that_is_not_there_stop_who_begins_now(fresh):
    execute(fresh, "DROP TABLE allocator_ledger")
    with closing(Allocator(fresh)) as ids, closing(Allocator(fresh, ledger=True)) as with_ledger:
        assert [ids.next_id("order"), with_ledger.next_id("order")] == [1, 1001]
    with closing(Allocator(fresh, ledger=REQUIRED)) as ids, pytest.raises(SchemaOutOfDate):
        ids.next_id("order")


@SERVERS
def test_a_connection_that_was_lost_meanwhile_is_none_of_its_ledger(fresh, kind, caplog):
    """As after a restart: the claim is sent again at once, with its entry."""
    with closing(Allocator(fresh, ledger=True, step=10, max_step=10)) as ids:
        ids.reserve("order", 10)
        end_connections(fresh, kind)
        ids.reserve("order", 10)

    assert values(fresh, "SELECT upto FROM allocator_ledger ORDER BY upto") == [10, 20]
    assert "cannot be written" not in caplog.text


def end_connections(url: str, kind: str) -> None:
    """All but the one that ends them."""
    if kind == "postgres":
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
        values(url, f"{others} pg_backend_pid()")
        return
    named = "information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    execute(url, *(f"KILL {number}" for number in values(url, f"SELECT id FROM {named}")))


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_a_server_that_another_one_has_followed_is_left(fresh, monkeypatch):
    """It refuses to write, and would answer on these connections for good."""
    with closing(Database(fresh)) as database, closing(Allocator(fresh)) as ids:
        ids.next_id("order")
        claim = (Author("h", 1, "v"), 5.0, "order", 10, ALL, 0)
        database.run(database.dialect.claim_recorded, *claim)
        monkeypatch.setattr(type(database.dialect), "misplaced", {"1146"})  # as if a missing table were such a refusal
        execute(fresh, "DROP TABLE allocator_ledger")
        with database.engine.connect() as connection, pytest.raises(DBAPIError) as refused:
            database.dialect.claim_recorded(connection, *claim)

    assert refused.value.connection_invalidated


def test_one_that_is_required_does(face, fresh):
    ids = face(fresh, ledger=REQUIRED, step=10, max_step=10)
    ids.next_id("order")
    execute(fresh, "ALTER TABLE allocator_ledger RENAME TO away")
    with pytest.raises(AllocatorError):
        ids.next_ids("order", 50)
    (claimed,) = values(fresh, "SELECT max_value FROM allocator_segment")
    entries = values(fresh, "SELECT max(upto) FROM away")

    assert entries == [claimed], "what was claimed has its entry, and the claim without one was undone"


DROPS = {
    "sqlite": (
        "CREATE TRIGGER parted BEFORE INSERT ON allocator_ledger BEGIN SELECT RAISE(IGNORE); END",
        "DROP TRIGGER parted",
    ),
    "postgres": (
        (
            "CREATE FUNCTION parted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
            "CREATE TRIGGER parted BEFORE INSERT ON allocator_ledger FOR EACH ROW EXECUTE FUNCTION parted()"
        ),
        "DROP TRIGGER parted ON allocator_ledger",
    ),
}
"""A trigger that keeps entries from the table, and away with it; others than these two know no such."""
DROPPING = pytest.mark.parametrize("kind", list(DROPS), indirect=True)


@DROPPING
def test_nor_does_one_whose_trigger_drops_the_entries(face, fresh, kind, caplog):
    """As where it is parted by a trigger. What was claimed for an entry in vain is claimed anew, and not left out."""
    execute(fresh, DROPS[kind][0])
    ids = face(fresh, ledger=True, step=10, max_step=10)

    assert ids.next_ids("order", 50) == list(range(1, 51))
    assert caplog.text.count("claims go on without it for 60 seconds") == 1
    assert "allocator_ledger kept no entry of a claim of tag 'order'" in caplog.text


@DROPPING
def test_one_that_is_required_and_drops_the_entries_claims_nothing(fresh, kind):
    with closing(Allocator(fresh, ledger=REQUIRED, step=10, max_step=10)) as ids:
        ids.reserve("order", 10)
        execute(fresh, DROPS[kind][0])
        for _ in range(2):
            with pytest.raises(SchemaDamaged, match="kept no entry of a claim of tag 'order'"):
                ids.reserve("order", 10)
        assert values(fresh, "SELECT max_value FROM allocator_segment WHERE tag = 'order'") == [10]
        execute(fresh, DROPS[kind][1])
        assert ids.reserve("order", 10) == range(11, 21)


@DROPPING
def test_a_claim_that_matches_no_row_is_none_of_the_trigger(fresh, kind):
    with closing(Allocator(fresh, ledger=REQUIRED, limit=10)) as ids:
        ids.reserve("order", 10)
        execute(fresh, DROPS[kind][0])
        with pytest.raises(Exhausted):
            ids.reserve("order", 1)


@contextmanager
def held(url: str, words: str):
    """A transaction of somebody else that keeps a lock."""
    engine = create_engine(url)
    with engine.connect() as connection:
        connection.exec_driver_sql(words)
        try:
            yield
        finally:
            connection.exec_driver_sql("UNLOCK TABLES") if words.endswith("WRITE") else connection.rollback()
    engine.dispose()


@SERVERS
def test_one_that_is_locked_does_not_stop_ids_for_longer_than_the_timeout(fresh, kind):
    lock = (
        "LOCK TABLE allocator_ledger IN ACCESS EXCLUSIVE MODE"
        if kind == "postgres"
        else "LOCK TABLES allocator_ledger WRITE"
    )
    with closing(Allocator(fresh, ledger=True, step=10, max_step=10, timeout=4.0)) as ids:
        ids.next_id("order")
        with held(fresh, lock):
            drawn = ids.next_ids("order", 50)

    assert sorted(set(drawn)) == drawn


def test_an_outage_of_the_database_is_none_of_its_ledger(tmp_path):
    """Else the claims of the first minute after an outage would have no entries."""
    claim = ("order", 10, ALL, 0, None)
    asked_for = []

    class Away(Database):
        def run_within(self, seconds, verb, *given, **more):
            asked_for.append(verb.__name__)
            raise DatabaseUnavailable("away")

    recorder = Recorder(LedgerSettings(), lambda *call: None)
    with closing(Away(f"sqlite:///{tmp_path}/ids.db", 1.0)) as database:
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable):
                recorder.claim(database, *claim)

    assert asked_for == ["claim_recorded", "claim_within"] * 2


@SERVERS
def test_ids_of_which_there_is_an_entry_are_not_claimed_again(fresh):
    """As when somebody set the row back, and nobody is left who has seen more."""
    with closing(Allocator(fresh, ledger=True)) as ids:
        ids.reserve("order", 100)
    execute(fresh, "UPDATE allocator_segment SET max_value = 0")
    with closing(Allocator(fresh, ledger=True)) as ids, pytest.raises(MaxValueWentBack):
        ids.reserve("order", 100)


# -- what is old


def test_entries_are_kept_for_as_long_as_was_said(fresh):
    with closing(Allocator(fresh, ledger=True)) as ids:
        for _ in range(4):
            ids.reserve("order", 10)
    now = int(time.time())
    for number, age in enumerate((91 * DAY, 90.5 * DAY, 89 * DAY), 1):
        execute(fresh, f"UPDATE allocator_ledger SET claimed_s = {int(now - age)} WHERE upto = {10 * number}")
    swept = threading.Event()
    with closing(Allocator(fresh, ledger=LedgerSettings(keep_days=90))) as ids:
        recorder = ids._backend.database._recorder
        sweep = recorder.sweep
        recorder.sweep = lambda database: (sweep(database), swept.set())
        ids.reserve("order", 10)
        assert swept.wait(30)

    assert values(fresh, "SELECT upto FROM allocator_ledger ORDER BY upto") == [30, 40, 50]


def test_many_old_entries_are_deleted_a_few_at_a_time(fresh, monkeypatch):
    monkeypatch.setattr("allocator.database.ledger.AT_ONCE", 3)
    with closing(Allocator(fresh, ledger=True)) as ids:
        for _ in range(9):
            ids.reserve("order", 10)
    execute(fresh, "UPDATE allocator_ledger SET claimed_s = upto WHERE upto <= 50")
    execute(fresh, "UPDATE allocator_ledger SET claimed_s = 60 WHERE upto > 50 AND upto <= 70")
    left = []
    with closing(Database(fresh)) as database:
        while database.run(database.dialect.sweep_ledger, 10**6):
            left += values(fresh, "SELECT count(*) FROM allocator_ledger")

    assert left == [6, 4, 2]


def test_of_what_is_asked_nonsense_is_refused(url):
    for nonsense in ("", "abc", "-1", "0", str(2**63), "1.5", "4df2dcec2cdcd20936a8b817", "٣", "0" * 29 + "19" * 30):
        with pytest.raises(InvalidId, match="a claimed id is a whole number from 1 to 9223372036854775807, got"):
            asked(url, nonsense)


def test_a_meteor_leads_to_the_process_that_registered_its_node(fresh):
    with closing(Allocator(fresh)) as ids:
        number = ids.meteor()
    node = asked(fresh, number).node

    assert node is not None
    assert (node.host, node.process) == (platform.node(), os.getpid())
    assert asked(fresh, 5016762319896585).node is None  # of node 0, which nobody has


def test_a_meteor_of_another_format_is_read_as_that(fresh):
    """In the usual one it would be of another node, or of none."""
    other = MeteorSettings(1735689600, Layout(sign=1, second=31, node=18, sequence=11, random=3))
    for settings in (None, None, other):
        with closing(Allocator(fresh, meteor=settings)) as ids:
            number = ids.meteor()
    found = asked(fresh, number, meteor=other)
    usual = asked(fresh, number).node

    assert found.node is not None
    assert found.node.number == 3
    assert abs(found.at.timestamp() - time.time()) < 60
    assert found.meteor == other
    assert usual is None or usual.number != 3
    with pytest.raises(InvalidSetting, match="epoch must be 0 to"):
        asked(fresh, number, meteor=MeteorSettings(-1))


def test_a_number_whose_random_field_no_meteor_has_is_none(fresh):
    with closing(Allocator(fresh)) as ids:
        number = ids.meteor()

    assert asked(fresh, number | 7).node is None


def test_a_client_of_a_service_cannot_ask_for_one():
    with pytest.raises(InvalidSetting, match="the ledger is kept by the service"):
        Allocator("http://127.0.0.1:1", ledger=True)

"""Tickets of one database and of a fleet, on every database, on a mixture, and through both faces."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial

import pytest
from sqlalchemy import create_engine, make_url
from support.distinct import distinct
from support.faults.ill_databases import changed
from support.faults.tcp_proxy import Wire
from support.processes.patience import until
from support.servers.administrator import execute, values
from support.servers.databases import with_schema
from support.servers.fleets import growing, on_one_of_each, on_servers, once, statements

from allocator import Allocator
from allocator.database.mysql import dialect as mysql
from allocator.database.store import Database
from allocator.errors import (
    AllocatorError,
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    InvalidTag,
    MaxValueWentBack,
    SchemaDamaged,
    ShardMisconfigured,
)
from allocator.runtime.thread_pool import Work, result_of
from allocator.runtime.waiting import wait_for

PATIENCE = 60.0

on_each = pytest.mark.parametrize("fleet_kind", ["sqlite", "postgres", "mysql", "mariadb"], indirect=True)
on_mysql = pytest.mark.parametrize("fleet_kind", ["mysql", "mariadb"], indirect=True)


@pytest.mark.statements
@on_each
@statements
def test_a_single_database_gives_1_2_3(face, shards, statement):
    (url,) = shards(1)
    ids = face(url, tickets=statement)

    assert [1, 2, 3] == [ids.ticket("job") for _ in range(3)]
    # By the original statement all types share a counter; the other one has a row for each.
    assert ids.ticket("order") == (4 if statement == "replace" else 1)
    assert ids.ticket("job") == (5 if statement == "replace" else 4)
    assert face(url).ticket("job") > 4
    assert ids.next_id("tag") == 1


@pytest.mark.statements
@once
@on_each
def test_types_are_told_apart_byte_by_byte(face, shards):
    ids = face(shards(1)[0], tickets="count")

    assert [1, 1, 1] == [ids.ticket(kind) for kind in ("job", "Job", "job.")]
    with pytest.raises(InvalidTag, match="a tag is 1 to 64 of"):
        ids.ticket(".floor")


@pytest.mark.statements
@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("rows", "taken"),
    [
        ("DELETE FROM allocator_ticket", "INSERT INTO allocator_ticket (type) VALUES ('job') RETURNING id"),
        (
            "INSERT INTO allocator_ticket (id, type) VALUES (10, 'job'), (5000, 'order')",
            "UPDATE allocator_ticket SET id = 5001 WHERE type = 'job' RETURNING id",
        ),
    ],
    ids=["the first of a type", "as the sequence passes the rows that it is behind"],
)
def test_the_ticket_of_another_transaction_is_not_given_again(fresh, rows, taken):
    """A draw that waits for the row sees it as it is then, but the greatest ticket as it was when it began."""
    execute(fresh, rows)
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'speculative token')"
    engine = create_engine(fresh)
    with Allocator(fresh) as ids, ThreadPoolExecutor(1) as pool, engine.connect() as other:
        other_ticket = other.exec_driver_sql(taken).scalar()
        drawing = pool.submit(ids.ticket, "job")
        assert until(lambda: values(fresh, waits) == [1], PATIENCE)
        other.commit()
        with suppress(MaxValueWentBack):
            distinct([other_ticket, drawing.result()])
    engine.dispose()


@once
@on_servers
def test_a_ticket_is_one_round_trip(face, shards):
    (url,) = shards(1)
    for statement in ("replace", "count"):
        execute(url, "DELETE FROM allocator_shard")
        execute(url, "DELETE FROM allocator_ticket")
        with Wire(url) as wire:
            ids = face(wire.url, tickets=statement)
            ids.ticket("job")
            wire.reset()
            for _ in range(20):
                ids.ticket("job")
            assert wire.round_trips == 20
            ids.close()


@once
@statements
def test_each_shard_gives_its_own(face, shards, statement):
    """As in the source: of three, DB1 gives 1, 4, 7, 10, 13 and DB2 gives 2, 5, 8, 11, 14."""
    ids = face(shards=shards(3), tickets=statement)
    drawn = [ids.ticket("job") for _ in range(15)]

    assert drawn[0::3] == [1, 4, 7, 10, 13]
    assert drawn[1::3] == [2, 5, 8, 11, 14]
    assert drawn[2::3] == [3, 6, 9, 12, 15]


@on_one_of_each
@statements
def test_two_allocators_get_no_ticket_twice(face, shards, statement):
    urls = shards(2)
    one, two = face(shards=urls, tickets=statement), face(shards=urls[::-1])
    drawn = [ids.ticket("job") for _ in range(20) for ids in (one, two, two)]

    assert distinct(drawn) == 60


@pytest.mark.statements
@on_each
@statements
def test_sixteen_connections_on_one_type(shards, statement):
    (url,) = shards(1)
    each = 40
    allocators = [Allocator(url, tickets=statement, timeout=30) for _ in range(16)]
    try:
        with ThreadPoolExecutor(16) as pool:
            jobs = [pool.submit(lambda ids=ids: [ids.ticket("job") for _ in range(each)]) for ids in allocators]
            drawn = [ticket for job in jobs for ticket in job.result()]
    finally:
        for ids in allocators:
            ids.close()

    assert distinct(drawn) == 16 * each


@once
@on_each
def test_tickets_of_another_server_do_not_begin_again_by_another_statement(face, shards):
    """Its row was written elsewhere: tickets that were drawn there may be forgotten here."""
    url = with_schema(shards(1)[0])
    face(url).next_id("order")
    execute(url, "UPDATE allocator_shard SET server = 'other'")
    for tickets in ("count", "replace"):
        with pytest.raises(ShardMisconfigured, match="allocator shards trust"):
            face(url, tickets=tickets).ticket("job")


@once
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_tags_that_were_used_first_leave_statement_and_fleet_to_the_first_ticket(face, fresh):
    ids = face(fresh, tickets="count", fleet="europe")
    assert [ids.next_id("order"), ids.ticket("job"), ids.ticket("job")] == [1, 1, 2]
    with pytest.raises(ShardMisconfigured, match="draws tickets by the statement 'count', and 'replace' is asked for"):
        face(fresh, tickets="replace").ticket("job")


@pytest.mark.statements
@once
@on_each
def test_a_database_that_forgot_tickets_is_stopped(face, shards, fleet_kind):
    (url,) = shards(1)
    ids = face(url, timeout=5)
    drawn = [ids.ticket("job") for _ in range(5)]
    execute(
        url,
        "DELETE FROM allocator_ticket",
        {
            "sqlite": "UPDATE sqlite_sequence SET seq = 0 WHERE name = 'allocator_ticket'",
            "postgres": "ALTER TABLE allocator_ticket ALTER COLUMN id RESTART WITH 1",
        }.get(fleet_kind, "ALTER TABLE allocator_ticket AUTO_INCREMENT = 1"),
    )
    for _ in range(2):
        with pytest.raises(MaxValueWentBack, match="allocator shards trust"):
            ids.ticket("job")
    with growing([url]) as growth, closing(Database(url)) as database:
        growth.trust(database, 50, above=max(drawn))
    time.sleep(0.5)

    assert ids.ticket("job") > max(drawn)


@once
@on_servers
def test_numbers_that_are_not_the_shards_own_are_burnt(face, shards, fleet_kind, monkeypatch, caplog):
    """As when the numbering was changed on the server behind our back."""
    urls = shards(2)
    ids = face(shards=urls)
    drawn = [ids.ticket("job") for _ in range(4)]
    if fleet_kind == "postgres":
        execute(urls[0], "ALTER TABLE allocator_ticket ALTER COLUMN id SET INCREMENT BY 1 RESTART WITH 100")
    else:
        monkeypatch.setattr(mysql.MySQL, "number_as", lambda self, connection, numbering: None)
        execute(urls[0], "ALTER TABLE allocator_ticket AUTO_INCREMENT = 100")
    ids = face(shards=urls)
    with suppress(ShardMisconfigured):
        drawn.extend(ids.ticket("job") for _ in range(6))

    assert "is not of this shard, which has offset 1, step 2" in caplog.text
    assert distinct(drawn)


@on_mysql
def test_the_servers_own_increment_does_not_matter(shards, fleet_kind):
    (url,) = shards(1)
    seven, one = "SET GLOBAL auto_increment_increment = 7", "SET GLOBAL auto_increment_increment = 1"
    with changed(url, seven, one), Allocator(url) as ids:
        drawn = [ids.ticket("job") for _ in range(5)]

    assert drawn == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_a_table_that_would_repeat_tickets_is_refused(fresh):
    for damage, sentence in (
        ("ENGINE = MyISAM", "is kept by MyISAM, and must be by InnoDB"),
        ("ENGINE = InnoDB, DROP INDEX type", r"must have a unique key on \(type\)"),
    ):
        execute(fresh, f"ALTER TABLE allocator_ticket {damage}")
        with Allocator(fresh) as ids, pytest.raises(SchemaDamaged, match=sentence):
            ids.ticket("job")


@once
@pytest.mark.parametrize("fleet_kind", ["postgres"], indirect=True)
def test_a_user_that_may_not_number_the_table_is_refused_before_anything_is_written(face, shards):
    urls = shards(2)
    role = f"app_{os.getpid()}"
    execute(urls[0], f"CREATE ROLE {role} LOGIN PASSWORD 'app'")
    try:
        for url in urls:
            execute(url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
        as_app = [make_url(url).set(username=role, password="app").render_as_string(False) for url in urls]
        with pytest.raises(DatabaseRefused, match="takes the owner of the table"):
            face(shards=as_app).ticket("job")
        assert face(shards=urls).ticket("job") == 1
        assert {face(shards=as_app).ticket("job") % 2 for _ in range(2)} == {1}
        assert face(as_app[0]).next_id("order") > 0
    finally:
        for url in urls:
            execute(url, f"DROP OWNED BY {role}")
        execute(urls[0], f"DROP ROLE {role}")


LAST = {
    "sqlite": "UPDATE sqlite_sequence SET seq = 9223372036854775806 WHERE name = 'allocator_ticket'",
    "postgres": "ALTER TABLE allocator_ticket ALTER COLUMN id RESTART WITH 9223372036854775807",
    "mysql": "ALTER TABLE allocator_ticket AUTO_INCREMENT = 9223372036854775806",
    "mariadb": "ALTER TABLE allocator_ticket AUTO_INCREMENT = 9223372036854775806",
}


@pytest.mark.statements
@once
@on_each
def test_after_the_last_number_there_is_an_error_and_no_ticket_twice(face, shards, fleet_kind):
    (url,) = shards(1)
    ids = face(url, timeout=5)
    drawn = [ids.ticket("job")]
    execute(url, LAST[fleet_kind])
    with pytest.raises(AllocatorError) as caught:
        while len(drawn) < 6:
            drawn.append(ids.ticket("job"))

    assert isinstance(caught.value, Exhausted | MaxValueWentBack)
    assert distinct(drawn) >= 2
    assert max(drawn) <= 2**63 - 1


@on_one_of_each
def test_threads_share_one_fleet(shards):
    with Allocator(shards=shards(3), timeout=20) as ids, ThreadPoolExecutor(12) as pool:
        drawn = list(pool.map(lambda _: ids.ticket("job"), range(240)))

    assert distinct(drawn) == 240


@on_one_of_each
def test_nobody_waits_for_ever_when_it_is_closed_while_drawing(shards):
    ids = Allocator(shards=shards(2))
    ids.ticket("job")
    drawing = threading.Thread(target=draw_until_closed, args=(ids,))
    drawing.start()
    ids.close()
    drawing.join(30)

    assert not drawing.is_alive()


def draw_until_closed(ids: Allocator) -> None:
    with suppress(AllocatorError):
        while True:
            ids.ticket("job")


@pytest.mark.parametrize(("count", "late"), [(1, "the database did not answer"), (2, "no shard answered")])
def test_a_call_whose_time_is_over_names_the_last_error(tmp_path, count, late):
    with Allocator(shards=[f"sqlite:///{tmp_path}/{number}.db" for number in range(count)], timeout=2) as ids:
        bare = ids._overdue()
        assert str(bare).startswith(f"{late} within 2 seconds; it is away, or an open transaction locks")
        assert bare.__cause__ is None
        shards = ids._backend._shards
        shards.fail(shards.handles[0], DatabaseUnavailable("connection refused"))
        with pytest.raises(DatabaseUnavailable) as found:
            wait_for(result_of(partial(Work, int), ids._background, 0.0, ids._overdue))

    assert str(found.value) == f"{late} within 2 seconds; the last error: connection refused"
    assert str(found.value.__cause__) == "connection refused"

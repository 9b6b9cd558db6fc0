"""Tickets of one database and of a fleet, on every database and on a mixture; the plain cases through both faces."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest
from support.distinct import distinct
from support.faults.meanwhile import meanwhile
from support.faults.wire import counted
from support.kit import on, run
from support.servers.administrator import execute
from support.servers.databases import with_schema
from support.servers.fleets import MYSQLS, bare, claim_tickets, in_each_way

from allocator import Allocator, errors
from allocator.backend import overdue
from allocator.database.mysql import MySQL
from allocator.database.store import Database
from allocator.database.verbs import segments, tickets
from allocator.schemes.tag import Tag

on_mysql = on("mysql", "mariadb", of="fleet_kind")


@pytest.fixture
def url(shards, claims) -> str:
    """Of a database for tests in each way."""
    (made,) = shards(1)
    if claims:
        claim_tickets(made)
    return made


@in_each_way
def test_a_single_database_gives_1_2_3(face, url, fleet_kind, claims):
    ids = face(url)

    assert [1, 2, 3] == [ids.ticket("job") for _ in range(3)]
    # By REPLACE all types share a counter; a claim has a row for each.
    shared = fleet_kind in MYSQLS and not claims
    assert ids.ticket("order") == (4 if shared else 1)
    assert ids.ticket("job") == (5 if shared else 4)
    assert face(url).ticket("job") == (6 if shared else 5)
    assert ids.next_id("job") == 1


@in_each_way
def test_types_are_told_apart_byte_by_byte_and_are_no_tags(sync, url, fleet_kind, claims):
    ids, longest = sync(url), "x" * 64
    drawn = [ids.ticket(kind) for kind in ("job", "Job", "job.", longest)]

    assert drawn == ([1, 2, 3, 4] if fleet_kind in MYSQLS and not claims else [1, 1, 1, 1])
    ids.tags.create(longest)
    assert [tag.name for tag in ids.tags.list()] == [longest]
    for name in (".skipped", ".ticket:job"):
        for refuses in (ids.ticket, ids.tags.create, ids.tags.get, ids.next_id):
            with pytest.raises(errors.InvalidTag, match="a tag is 1 to 64 of"):
                refuses(name)


@on_mysql
def test_the_statement_is_that_of_the_scheme(fleet):
    """What is sent to a server: REPLACE INTO, on a session with the slot's offset and step."""
    url, *_ = fleet(3)
    with counted(url) as asked, Allocator(url) as ids:
        drawn = [ids.ticket("job") for _ in range(3)]
    replaced = [words for words in asked if words.startswith("REPLACE")]

    assert drawn == [1, 4, 7]
    assert len(replaced) == 3
    assert {words.partition(" WHERE")[0] for words in replaced} == {
        "REPLACE INTO allocator_ticket (type) SELECT 'job' FROM allocator_shard"
    }
    assert "SET SESSION auto_increment_offset = 1, auto_increment_increment = 3" in "\n".join(asked)


# -- the mode, which stands in the database


def drawn_in_a_race(sync, url: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """By a process that read the row before tickets were claimed, and by one that read it afterwards."""
    before, drawn = sync(url), []

    def change(*_: object) -> None:
        claim_tickets(url)
        drawn.append(sync(url).ticket("job"))

    meanwhile(monkeypatch, tickets, "draw", change)
    drawn.append(before.ticket("job"))
    return drawn


@on_mysql
def test_a_process_that_read_the_row_before_tickets_were_claimed_repeats_none(sync, shards, monkeypatch):
    (url,) = shards(1)

    assert drawn_in_a_race(sync, url, monkeypatch) == [1, 2]


@on_mysql
def test_control_of_two_processes_that_draw_otherwise_each_ticket_comes_twice(sync, shards, monkeypatch):
    """The rule broken: the statement does not ask how tickets are drawn here."""
    monkeypatch.setattr(tickets, "TICKET", tickets.TICKET.replace("tickets = 'replace'", "1 = 1"))
    (url,) = shards(1)

    assert drawn_in_a_race(sync, url, monkeypatch) == [1, 1]


@on_mysql
def test_tickets_are_claimed_from_the_first_one_on_or_never(sync, shards):
    words = ("db", "upgrade", "--tickets", "claim")
    one, two, three = shards(3)
    assert sync(one).ticket("job") == 1
    refused = run(one, *words)
    assert refused.code == 1
    assert "has drawn tickets with REPLACE, up to 1, and claims would draw them again" in refused.err
    assert "allocator tags create TYPE --start-after 1" in refused.err
    assert sync(one).ticket("job") == 2
    for drawn in (1, 2):
        assert run(two, *words).code == 0
        assert sync(two).ticket("job") == drawn
    assert run(two, *words, "--sql").code == 2
    execute(with_schema(three), "UPDATE allocator_shard SET server_run = 'elsewhere'")
    sync(three).next_id("order")  # notes a failover, which may have forgotten tickets
    assert run(three, *words).code == 1


@on_mysql
def test_a_type_is_made_only_where_tickets_are_claimed(shards):
    """Whoever read the row before a failover that forgot the change."""
    (url,) = shards(1)
    tag = Tag(".ticket:job")
    with closing(Database(url)) as database:
        state = database.settled_snapshot().shard
        assert not database.transact(segments.make, tag, state)
        claim_tickets(url)
        assert database.transact(segments.make, tag, state)


def test_each_slot_gives_its_own(sync, fleet):
    """As in the source: of three, DB1 gives 1, 4, 7, 10, 13 and DB2 gives 2, 5, 8, 11, 14."""
    ids = sync(shards=fleet(3))
    drawn = [ids.ticket("job") for _ in range(15)]

    assert drawn[0::3] == [1, 4, 7, 10, 13]
    assert drawn[1::3] == [2, 5, 8, 11, 14]
    assert drawn[2::3] == [3, 6, 9, 12, 15]


@in_each_way
def test_sixteen_connections_on_one_type(url, fleet_kind, claims):
    each = 40
    allocators = [Allocator(url, timeout=30) for _ in range(16)]
    try:
        with ThreadPoolExecutor(16) as pool:
            jobs = [pool.submit(lambda ids=ids: [ids.ticket("job") for _ in range(each)]) for ids in allocators]
            drawn = [ticket for job in jobs for ticket in job.result()]
    finally:
        for ids in allocators:
            ids.close()

    assert distinct(drawn) == 16 * each


CLAIMS_FORGOTTEN = (
    ("UPDATE allocator_segment SET max_value = 0 WHERE tag = '.ticket:job'",),
    ("DELETE FROM allocator_segment WHERE tag = '.ticket:job'",),
)


@in_each_way
def test_a_database_that_forgot_tickets_is_stopped(sync, url, fleet_kind, claims):
    is_claimed = claims or fleet_kind not in MYSQLS
    ids, drawn = sync(url, timeout=5), []
    forgotten = [("DELETE FROM allocator_ticket", "ALTER TABLE allocator_ticket AUTO_INCREMENT = 1")]
    for forgets in CLAIMS_FORGOTTEN if is_claimed else forgotten:
        drawn += [ids.ticket("job") for _ in range(5)]
        execute(url, *forgets)
        for _ in range(2):
            with pytest.raises(errors.MaxValueWentBack, match="allocator db mark-restored"):
                ids.ticket("job")
        with closing(Database(url)) as database:
            database.mark_restored()

        assert ids.ticket("job") > max(drawn)
    assert distinct(drawn)


@on_mysql
def test_numbers_that_are_not_the_slots_own_are_burnt(sync, fleet, monkeypatch, caplog):
    """As when a proxy gives the session to others."""
    urls = fleet(2)
    ids = sync(shards=urls)
    drawn = [ids.ticket("job") for _ in range(4)]
    monkeypatch.setattr(MySQL, "number_as", lambda self, connection, residue: None)
    execute(bare(urls[0]), "ALTER TABLE allocator_ticket AUTO_INCREMENT = 100")
    ids = sync(shards=urls)
    with suppress(errors.ShardMisconfigured):
        drawn.extend(ids.ticket("job") for _ in range(6))

    assert "is not of this database, which is slot 1 of 2" in caplog.text
    assert distinct(drawn)


LAST = "UPDATE allocator_segment SET max_value = 9223372036854775805 WHERE tag = '.ticket:job'"
LAST_REPLACED = "ALTER TABLE allocator_ticket AUTO_INCREMENT = 9223372036854775806"


@in_each_way
def test_after_the_last_number_there_is_an_error_and_no_ticket_twice(sync, url, fleet_kind, claims):
    ids = sync(url, timeout=5)
    drawn = [ids.ticket("job")]
    execute(url, LAST_REPLACED if fleet_kind in MYSQLS and not claims else LAST)
    with pytest.raises(errors.AllocatorError) as caught:
        while len(drawn) < 6:
            drawn.append(ids.ticket("job"))

    assert isinstance(caught.value, errors.Exhausted | errors.MaxValueWentBack)
    assert distinct(drawn) >= 2
    assert max(drawn) <= 2**63 - 1


def test_a_call_whose_time_is_over_names_the_last_error(subtests):
    refused = errors.DatabaseUnavailable("connection refused")
    for troubles, words in (
        ([None], "the database did not answer within 2 seconds; it is away, or an open transaction locks"),
        ([None, None], "none of the fleet answered within 2 seconds; it is away, or an open transaction locks"),
        ([None, refused], "none of the fleet answered within 2 seconds; the last error: connection refused"),
    ):
        error = overdue(SimpleNamespace(troubles=lambda troubles=troubles: troubles), 2)
        with subtests.test(words):
            assert str(error).startswith(words)
            assert error.__cause__ is troubles[-1]

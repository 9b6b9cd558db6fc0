"""Tickets and segments of fleets, on every database, on a mixture, and through both faces."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import pytest
from sqlalchemy import make_url
from support.faults.ill_databases import changed
from support.faults.tcp_proxy import Wire
from support.servers.administrator import execute
from support.servers.databases import with_schema
from support.servers.throwaway import free_port

from allocator import (
    Allocator,
    AllocatorError,
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    FleetGrowing,
    InvalidDatabase,
    InvalidSetting,
    InvalidTag,
    MaxValueWentBack,
    SchemaDamaged,
    ShardMisconfigured,
    TagExists,
    UnknownTag,
)
from allocator.database import mysql
from allocator.database.store import Database
from allocator.database.verbs import segments
from allocator.database.verbs import shards as shard_rows
from allocator.fleet.grow import Growth
from allocator.rules import fleet_growth as rules
from allocator.rules.fleet import Member, Shard
from allocator.runtime.worker_pool import wait_for
from allocator.schemes.ticket import Numbering

on_servers = pytest.mark.parametrize("fleet_kind", ["postgres", "mysql", "mariadb"], indirect=True)
on_mysql = pytest.mark.parametrize("fleet_kind", ["mysql", "mariadb"], indirect=True)
on_one_of_each = pytest.mark.parametrize("fleet_kind", ["sqlite", "mixed"], indirect=True)
once = pytest.mark.parametrize("face", ["sync"], indirect=True)
"""What is decided before either face has a part in it."""
statements = pytest.mark.parametrize("statement", ["replace", "count"])


@contextmanager
def growing(urls: list[str]) -> Iterator[Growth]:
    growth = Growth([Database(url) for url in urls])
    try:
        yield growth
    finally:
        growth.close()


def grow(urls: list[str], *new: str, headroom: int = 100) -> None:
    with growing(urls) as growth:
        growth.begin()
        for url in new:
            growth.add(Database(url))
        growth.grow(headroom)


# -- one database


@statements
def test_a_single_database_gives_1_2_3(face, shards, statement):
    (url,) = shards(1)
    ids = face(url, tickets=statement)

    assert [1, 2, 3] == [ids.ticket("invoice") for _ in range(3)]
    # By the original statement all types share a counter; the other one has a row for each.
    assert ids.ticket("order") == (4 if statement == "replace" else 1)
    assert ids.ticket("invoice") == (5 if statement == "replace" else 4)
    assert face(url).ticket("invoice") > 4
    assert ids.next_id("tag") == 1


@once
def test_types_are_told_apart_byte_by_byte(face, shards):
    ids = face(shards(1)[0], tickets="count")

    assert [1, 1, 1] == [ids.ticket(kind) for kind in ("invoice", "Invoice", "invoice.")]
    for wrong in ("", ".floor", "x" * 65, None, 5):
        with pytest.raises(InvalidTag, match="a tag is 1 to 64 of"):
            ids.ticket(wrong)


@on_servers
def test_a_ticket_is_one_round_trip(face, shards):
    (url,) = shards(1)
    for statement in ("replace", "count"):
        execute(url, "DELETE FROM allocator_shard")
        execute(url, "DELETE FROM allocator_ticket")
        with Wire(url) as wire:
            ids = face(wire.url, tickets=statement)
            ids.ticket("invoice")
            wire.reset()
            for _ in range(20):
                ids.ticket("invoice")
            assert wire.round_trips == 20
            ids.close()


# -- fleets


@statements
def test_each_shard_gives_its_own(face, shards, statement):
    """As in the source: of three, DB1 gives 1, 4, 7, 10, 13 and DB2 gives 2, 5, 8, 11, 14."""
    ids = face(shards=shards(3), tickets=statement)
    drawn = [ids.ticket("invoice") for _ in range(15)]

    assert drawn[0::3] == [1, 4, 7, 10, 13]
    assert drawn[1::3] == [2, 5, 8, 11, 14]
    assert drawn[2::3] == [3, 6, 9, 12, 15]


@statements
def test_two_allocators_get_no_ticket_twice(face, shards, statement):
    urls = shards(2)
    one, two = face(shards=urls, tickets=statement), face(shards=urls[::-1])
    drawn = [ids.ticket("invoice") for _ in range(20) for ids in (one, two, two)]

    assert len(set(drawn)) == 60


@pytest.mark.parametrize("fleet_kind", ["sqlite", "postgres", "mysql", "mariadb"], indirect=True)
@statements
def test_sixteen_connections_on_one_type(shards, statement):
    (url,) = shards(1)
    each = 40 if "sqlite" in url else 100
    allocators = [Allocator(url, tickets=statement, timeout=30) for _ in range(16)]
    try:
        with ThreadPoolExecutor(16) as pool:
            jobs = [pool.submit(lambda ids=ids: [ids.ticket("invoice") for _ in range(each)]) for ids in allocators]
            drawn = [ticket for job in jobs for ticket in job.result()]
    finally:
        for ids in allocators:
            ids.close()

    assert len(set(drawn)) == 16 * each


def test_several_that_make_the_fleet_at_once_agree(shards):
    """Lists in any order: whoever is first says who has which offset."""
    urls = shards(3)
    rnd = random.Random(1)
    allocators = [Allocator(shards=rnd.sample(urls, 3), timeout=20) for _ in range(6)]
    try:
        with ThreadPoolExecutor(6) as pool:
            drawn = [
                t for found in pool.map(lambda ids: [ids.ticket("x") for _ in range(6)], allocators) for t in found
            ]
    finally:
        for ids in allocators:
            ids.close()

    assert len(set(drawn)) == 36
    with growing(urls) as growth:
        assert [1, 2, 3] == [found.row.numbering.offset for found in growth.shards() if found.row]


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_database_that_becomes_a_shard_while_it_is_looked_at_is_one(fresh, monkeypatch):
    """Its row said that it was alone, and then another process drew: not from it alone."""
    with closing(Database(fresh)) as database:
        members = tuple(Member(f"key{offset}", offset, f"url{offset}") for offset in (1, 2))
        fleet = Shard("main", "key1", "", "replace", 1, Numbering(1, 2), 2, members)
        is_used = shard_rows.has_ids

        def late(connection, dialect):
            monkeypatch.setattr(shard_rows, "has_ids", is_used)
            shard_rows.add(connection, dialect, fleet)
            return True

        monkeypatch.setattr(shard_rows, "has_ids", late)
        row = database.run(shard_rows.fetch_member)

    assert row is not None
    assert not row.is_alone


# -- segments over several databases


def test_each_shard_serves_its_remainder(face, shards):
    ids = face(shards=shards(3), step=5, max_step=5)
    drawn = [ids.next_id("order") for _ in range(45)]
    block = ids.reserve("order", 4)

    assert len(set(drawn)) == 45
    assert {number % 3 for number in drawn} == {0, 1, 2}
    assert set(drawn) <= set(range(1, 120))
    assert (block.step, len(block)) == (3, 4)
    assert not set(block) & set(drawn)


@once
def test_nodes_and_workers_are_numbered_by_the_first_shard_alone(face, shards):
    urls = shards(2)
    together, alone = face(shards=urls[::-1]), face(urls[1])
    together.ticket("invoice")
    for ids in (together, face(shards=urls), face(urls[1])):
        assert ids.meteor() > 0
        assert ids.snowflake() > 0
    together.close()
    first = face(urls[0])
    for call in (first.meteor, first.snowflake):
        with pytest.raises(ShardMisconfigured, match="is shard 2 of a fleet, and nodes and workers are numbered by"):
            call()
    assert alone.meteor() > 0


def test_a_limit_is_kept_and_reached_by_every_shard(face, shards):
    ids = face(shards=shards(2), step=4, max_step=4, limit=21)
    drawn = []
    with pytest.raises(Exhausted):
        while True:
            drawn.append(ids.next_id("order"))

    assert sorted(drawn) == list(range(1, 21))


@once
def test_tags_are_kept_on_all_shards(face, shards):
    urls = shards(2)
    ids = face(shards=urls, create_missing=False)
    with pytest.raises(UnknownTag):
        ids.next_id("order")
    made = ids.tags.create("order", start_after=1000, step=10, max_step=10)
    assert made == ids.tags.get("order")
    drawn = {ids.next_id("order") for _ in range(40)}
    assert min(drawn) > 1000
    assert {number % 2 for number in drawn} == {0, 1}
    ids.tags.set("order", start_after=5000, limit=9000)

    assert ids.tags.get("order").limit == 9000
    assert ids.tags.list()[0].max_value == 5000
    assert face(shards=urls).next_id("order") > 5000


# -- around failures


@on_servers
def test_a_shard_that_is_lost_is_skipped_and_comes_back(face, shards):
    urls = shards(3)
    with Wire(urls[1]) as wire:
        ids = face(shards=[urls[0], wire.url, urls[2]], timeout=6, step=2, max_step=2)
        ids.ticket("invoice"), ids.next_id("order")
        wire.refuse()
        drawn = [ids.ticket("invoice") for _ in range(30)]
        assert {ticket % 3 for ticket in drawn[1:]} == {0, 1}
        numbers = [ids.next_id("order") for _ in range(30)]
        wire.accept()
        draw_until(ids, drawn, lambda: 2 in {ticket % 3 for ticket in drawn[-3:]})
        numbers += [ids.next_id("order") for _ in range(30)]

    assert len(set(drawn)) == len(drawn)
    assert len(set(numbers)) == 60


@on_servers
def test_a_lead_that_was_away_at_the_start_is_looked_for_again(face, shards):
    """Also by a process that draws nothing of the other shards."""
    urls = shards(2)
    with Wire(urls[0]) as wire:
        face(shards=[wire.url, urls[1]]).ticket("invoice")
        wire.refuse()
        ids = face(shards=[wire.url, urls[1]], timeout=3)
        with pytest.raises(DatabaseUnavailable, match="offset 1 was not reached|meteor: the database did not answer"):
            ids.meteor()
        wire.accept()
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with suppress(DatabaseUnavailable):
                assert ids.meteor() > 0
                break
        assert ids.snowflake() > 0


@on_servers
def test_a_shard_that_does_not_answer_costs_a_part_of_the_deadline(face, shards):
    urls = shards(2)
    with Wire(urls[0]) as wire:
        ids = face(shards=[wire.url, urls[1]], timeout=3)
        ids.ticket("invoice"), ids.ticket("invoice")
        wire.deaf = True
        drawn = [ids.ticket("invoice") for _ in range(10)]

    assert {ticket % 2 for ticket in drawn} == {0}


@on_servers
def test_when_all_are_down_it_says_so_within_the_deadline(face, shards):
    urls = shards(2)
    with Wire(urls[0]) as one, Wire(urls[1]) as two:
        ids = face(shards=[one.url, two.url], timeout=1)
        first = draw_once_up(ids)
        one.refuse(), two.refuse()
        with pytest.raises(DatabaseUnavailable, match="no shard can be used|no shard answered within 1 seconds"):
            ids.ticket("invoice")
        one.accept()
        assert draw_once_up(ids) > first


def draw_once_up(ids, seconds: float = 20.0) -> int:
    end = time.monotonic() + seconds
    while True:
        try:
            return ids.ticket("invoice")
        except DatabaseUnavailable:
            assert time.monotonic() < end


def draw_until(ids, drawn: list[int], enough: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not enough() and time.monotonic() < end:
        drawn.append(ids.ticket("invoice"))
    assert enough()


# -- growth


@statements
def test_clients_follow_a_fleet_that_grows(face, shards, fleet_kind, statement):
    urls = shards(4)
    ids = face(shards=urls[:2], tickets=statement, step=3, max_step=3)
    tickets = [ids.ticket("invoice") for _ in range(9)]
    numbers = [ids.next_id("order") for _ in range(9)]
    for new in (2, 3):
        grow(urls[:new], urls[new])  # where user and password are not the same, all must be given
        tickets += [ids.ticket("invoice") for _ in range(9)]
        numbers += [ids.next_id("order") for _ in range(9)]
    alike = {3, 0} if fleet_kind != "mixed" else set()  # a client that was not given a password cannot use a new one
    draw_until(ids, tickets, lambda: {ticket % 4 for ticket in tickets[-4:]} >= {1, 2} | alike)

    assert len(set(tickets)) == len(tickets)
    assert len(set(numbers)) == len(numbers)


def test_one_database_becomes_several_while_it_is_used(face, shards):
    """Also those who know only the one: their claims are fenced by the row of the tag."""
    urls = shards(2)
    alone = face(urls[0], step=3, max_step=3)
    drawn = [alone.next_id("order") for _ in range(8)]
    tickets = [alone.ticket("invoice") for _ in range(3)]
    grow(urls[:1], urls[1])
    together = face(shards=urls, step=3, max_step=3)
    for _ in range(20):
        drawn += [alone.next_id("order"), together.next_id("order"), together.next_id("order")]
        tickets += [alone.ticket("invoice"), together.ticket("invoice")]

    assert len(set(drawn)) == len(drawn)
    assert len(set(tickets)) == len(tickets)
    assert 0 in {ticket % 2 for ticket in tickets[-4:]}


def interrupted(*args: object) -> None:
    raise KeyboardInterrupt


@once
def test_growth_that_was_only_begun_can_be_taken_back(face, shards, monkeypatch):
    urls = shards(2)
    ids = face(shards=urls[:1], timeout=1.6)
    before = ids.ticket("invoice")
    ids.next_id("order")
    with growing(urls[:1]) as growth:
        growth.add(Database(urls[1]))
        monkeypatch.setattr(rules, "turning", interrupted)
        with pytest.raises(KeyboardInterrupt):
            growth.grow(100)
        assert ids.ticket("invoice") > before
        for _ in range(2):
            assert "issues no ids while its fleet grows" in refusal(lambda: ids.reserve("order", 5))
        assert growth.take_back()
        assert not growth.take_back()
    time.sleep(1.1)  # the pace of a tag's claims

    assert ids.reserve("order", 5)
    assert ids.ticket("invoice") < 100


@once
def test_in_a_growth_that_was_interrupted_every_call_says_so(face, shards, monkeypatch):
    urls = shards(3)
    ids = face(shards=urls[:2], timeout=3, step=1, max_step=1)
    drawn = [ids.next_id("order"), ids.ticket("invoice")]  # so that both shards are connected
    with growing(urls[:2]) as growth:
        growth.add(Database(urls[2]))
        monkeypatch.setattr(rules, "turning", interrupted)
        with pytest.raises(KeyboardInterrupt):
            growth.grow(100)
    with pytest.raises(FleetGrowing, match="resume an interrupted growth with: allocator shards grow"):
        while True:  # what is in memory comes first
            drawn.append(ids.next_id("order"))
    for call in (lambda: ids.next_id("order"), lambda: ids.reserve("order", 5)):
        with pytest.raises(FleetGrowing, match="resume an interrupted growth with: allocator shards grow"):
            call()


@once
@pytest.mark.parametrize("fleet_kind", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("act", ["create", "set"])
def test_where_a_tag_begins_is_not_said_while_a_shard_that_is_added_might_not_hear_of_it(face, shards, act):
    urls = shards(2)
    ids = face(urls[0])
    if act == "set":
        ids.tags.create("order")
    say = getattr(ids.tags, act)
    with growing(urls[:1]) as growth:
        growth.begin()
        growth.add(Database(urls[1]))
        with pytest.raises(FleetGrowing, match="the fleet is growing"):
            say("order", start_after=5000)
        ids.tags.create("plain")  # begins with 1 everywhere
        growth.grow(100)
    say("order", start_after=5000)

    assert all(face(url).next_id("order") > 5000 for url in urls)


@once
@pytest.mark.parametrize("fleet_kind", ["sqlite", "postgres"], indirect=True)
def test_a_fleet_that_grows_while_it_is_said_where_a_tag_begins_is_noticed(face, shards, monkeypatch):
    urls = shards(2)
    ids = face(urls[0])
    grown = []

    def grow_first(connection, dialect, tag):
        if not grown:
            grown.append(grow(urls[:1], urls[1]))
        return original(connection, dialect, tag)

    original = segments.create
    monkeypatch.setattr(segments, "create", grow_first)
    with pytest.raises(FleetGrowing, match="do the same again"):
        ids.tags.create("order", start_after=5000)
    with pytest.raises(TagExists):
        ids.tags.create("order", start_after=5000)

    assert all(face(url).next_id("order") > 5000 for url in urls)


@once
@pytest.mark.parametrize("fleet_kind", ["sqlite", "mixed"], indirect=True)
def test_a_tag_is_raised_on_shards_that_have_given_no_id_of_it(face, shards):
    urls = shards(2)
    ids = face(shards=urls)
    ids.next_id("order")
    ids.tags.set("order", start_after=5000)

    assert all(face(url).next_id("order") > 5000 for url in urls)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(DatabaseUnavailable) as caught:
        call()
    return str(caught.value)


def test_a_headroom_that_is_too_small_is_made_larger(shards):
    urls = shards(2)
    with Allocator(shards=urls[:1], timeout=20) as ids:
        before = ids.ticket("invoice")
        drawing = threading.Thread(target=lambda: [ids.ticket("invoice") for _ in range(300)])
        drawing.start()
        grow(urls[:1], urls[1], headroom=1)
        drawing.join()

        assert ids.ticket("invoice") > before


@once
def test_the_statement_is_changed_for_all(face, shards):
    urls = shards(2)
    ids = face(shards=urls)
    drawn = [ids.ticket("invoice") for _ in range(6)]
    with pytest.raises(ShardMisconfigured, match="by the statement 'replace', and 'count' is asked for"):
        face(shards=urls, tickets="count").ticket("invoice")
    with growing(urls) as growth:
        growth.grow(10, "count")
    drawn += [ids.ticket("invoice") for _ in range(6)]

    assert len(set(drawn)) == 12
    assert face(shards=urls, tickets="count").ticket("invoice") not in drawn


# -- what does not fit together


MISTAKES = {
    "same offset": (
        "UPDATE allocator_shard SET shard_offset = 1",
        "has the row of shard 1 of 2, but it lists the shards",
    ),
    "step 0": ("UPDATE allocator_shard SET shard_step = 0", "step must be 1 to 1000, got 0"),
    "offset above step": ("UPDATE allocator_shard SET shard_offset = 3", "offset must be 1 to 2, got 3"),
    "another step": ("UPDATE allocator_shard SET shard_step = 5", "has the row of shard 2 of 5"),
    "another fleet": (
        "UPDATE allocator_shard SET fleet = 'other'",
        "is a shard of the fleet 'other', not of 'main'",
    ),
    "no row": ("DELETE FROM allocator_shard", "has no row of allocator_shard, unlike the other shards"),
    "an old row": ("UPDATE allocator_shard SET generation = 7", "one is of another fleet or was restored"),
}


@once
@pytest.mark.parametrize("mistake", MISTAKES)
@on_one_of_each
def test_shards_that_contradict_each_other_are_refused(face, shards, mistake):
    urls = shards(2)
    face(shards=urls).ticket("invoice")
    statement, sentence = MISTAKES[mistake]
    execute(urls[1], statement)
    for _ in range(2):
        with pytest.raises(ShardMisconfigured, match=sentence):
            face(shards=urls).ticket("invoice")


@once
def test_a_row_of_a_tag_with_another_limit_grows_too(face, shards):
    urls = shards(3)
    face(shards=urls[:2]).ticket("invoice")
    face(urls[0], limit=100, step=10).next_id("order")
    ids = face(urls[1], step=50)
    drawn = [ids.next_id("order") for _ in range(60)]
    grow(urls[:2], urls[2])
    together = face(shards=urls)
    drawn += [together.next_id("order") for _ in range(3000)]

    assert len(set(drawn)) == len(drawn)
    assert {number % 3 for number in drawn[60:]} == {0, 1, 2}


@once
@pytest.mark.parametrize("fleet_kind", ["sqlite", "postgres"], indirect=True)
def test_a_shard_alone_administers_the_tags_of_all(face, shards):
    urls = shards(2)
    together = face(shards=urls)
    together.ticket("invoice")
    alone = face(urls[0])
    alone.tags.create("order", start_after=1_000_000)

    assert together.next_id("order") > 1_000_000
    assert together.next_id("order") > 1_000_000
    alone.tags.set("order", start_after=5_000_000)
    assert face(urls[1]).next_id("order") > 5_000_000


@once
def test_a_shard_that_waits_for_trust_stops_growth(face, shards):
    urls = shards(2)
    face(urls[0]).ticket("invoice")
    execute(urls[0], "UPDATE allocator_shard SET server = 'elsewhere'")
    with pytest.raises(ShardMisconfigured, match="allocator shards trust"):
        grow(urls[:1], urls[1])
    with growing(urls[:1]) as growth, closing(Database(urls[0])) as database:
        with pytest.raises(ShardMisconfigured, match="--above N"):
            growth.trust(database)
        growth.trust(database, 10, above=500)

    assert face(urls[0]).ticket("invoice") == 501


def test_a_number_that_no_id_can_have_is_refused_before_anything_is_asked():
    away = f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/ids"
    with growing([away]) as growth, closing(Database(away)) as database:
        for above in (10**23, 2**63, -1):
            with pytest.raises(InvalidSetting, match=f"above must be 0 to 9223372036854775807, got {above}"):
                growth.trust(database, above=above)


@once
def test_tickets_that_would_go_on_past_the_last_are_refused(face, shards):
    urls = shards(2)
    face(urls[0]).ticket("invoice")
    with growing(urls[:1]) as growth, closing(Database(urls[0])) as database:
        with pytest.raises(
            Exhausted,
            match="would continue from 9223372036854775808 in steps of .*, above the greatest id, 9223372036854775807",
        ):
            growth.trust(database, 0, above=2**63 - 1)
        growth.trust(database, 0, above=2**63 - 10)
        for headroom in (10, 10**12):
            with pytest.raises(Exhausted, match="would continue from 922337.*; lower --headroom"):
                growth.grow(headroom, "count")
        growth.take_back()

    assert 2**63 - 10 < face(urls[0]).ticket("invoice") < 2**63


@once
@on_one_of_each
def test_a_server_that_was_replaced_is_refused_when_it_comes_back(face, shards):
    urls = shards(3)
    ids = face(shards=urls[:2])
    drawn = [ids.ticket("invoice") for _ in range(6)]
    copy_row(urls[1], urls[2])  # the standby, and the old one is away
    execute(urls[1], "ALTER TABLE allocator_shard RENAME TO away")
    with growing([urls[0], urls[2]]) as growth, closing(Database(urls[2])) as database:
        growth.trust(database, 10)
    execute(urls[1], "ALTER TABLE away RENAME TO allocator_shard")

    after = [face(shards=[urls[0], urls[2]]).ticket("invoice") for _ in range(2)]
    assert not set(after) & set(drawn)
    with pytest.raises(ShardMisconfigured, match="was replaced by"):
        face(shards=urls[:2]).ticket("invoice")
    with growing(urls[:1]) as growth:
        assert [found.database.address.shown for found in growth.shards()][1].endswith(urls[2][-12:])


def refuses_to_grow(urls: list[str], lost: str = "") -> str:
    with growing(urls) as growth:
        growth.leave_out([Database(lost)] if lost else [])
        with pytest.raises(AllocatorError) as caught:
            growth.grow(100)
    return str(caught.value)


@once
@pytest.mark.parametrize("turned", [True, False])
def test_a_fleet_grows_without_a_shard_that_is_lost(face, shards, monkeypatch, turned):
    urls = shards(4)
    ids = face(shards=urls[:3], step=3, max_step=3)
    drawn = [ids.ticket("invoice") for _ in range(12)]
    numbers = [ids.next_id("order") for _ in range(30)]
    execute(urls[1], "UPDATE allocator_segment SET max_value = 5000")  # which the others do not know
    with growing(urls[:3]) as growth, monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        growth.add(Database(urls[3]))
        patch.setattr(rules, "entered" if turned else "turning", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        growth.grow(100)
    execute(urls[1], "ALTER TABLE allocator_shard RENAME TO away")
    assert "allocator_shard" in refuses_to_grow(urls)
    assert turned or "--above N" in refuses_to_grow(urls, urls[1])
    with growing(urls) as growth:
        growth.leave_out([Database(urls[1])])
        assert growth.grow(100, above=None if turned else 6000).numbering.step == 4

    fresh = face(shards=[urls[0], urls[2], urls[3]], step=3, max_step=3)
    later = [fresh.next_id(tag) for tag in ("order", "order", "order", "user") for _ in range(5)]
    assert min(later[:15]) > 5000
    assert turned or min(later) > 6000  # of a tag that only the lost one may know
    drawn += [one.ticket("invoice") for one in (ids, fresh) for _ in range(12)]
    assert len(set(drawn)) == len(drawn)
    assert not {*numbers} & {*later[:15]}

    execute(urls[1], "ALTER TABLE away RENAME TO allocator_shard")
    if turned:
        with growing(urls) as growth:
            growth.grow(100)  # it follows
            assert {one.row.generation for one in growth.shards() if one.row} == {2}
        all_four = face(shards=urls)
        drawn += (more := [all_four.ticket("invoice") for _ in range(8)])
        assert len({ticket % 4 for ticket in more}) == 4
        assert len(set(drawn)) == len(drawn)
    else:
        assert "or removed from its fleet" in refuses_to_grow(urls)
        with pytest.raises(ShardMisconfigured, match="or removed from its fleet"):
            face(shards=urls[:3]).ticket("invoice")


@once
@on_one_of_each
def test_a_newcomer_that_was_lost_is_added_again_or_taken_back(face, shards):
    urls = shards(2)
    face(urls[0]).ticket("invoice")
    for way_out in ("again", "back"):
        with growing(urls[:1]) as growth:
            growth.add(Database(urls[1]))
        execute(urls[1], "DELETE FROM allocator_shard")
        with growing(urls) as growth, pytest.raises(ShardMisconfigured, match="its row of allocator_shard is lost"):
            growth.grow(10)
        with growing(urls) as growth:
            if way_out == "again":
                growth.add(Database(urls[1]))
            assert growth.take_back()
    grow(urls[:1], urls[1])

    assert face(shards=urls).ticket("invoice") > 1


@once
@on_one_of_each
def test_a_client_that_cannot_reach_a_shard_follows_the_others(face, shards, monkeypatch):
    """The row that it remembers of that shard is old by then, and contradicts nothing."""
    urls = shards(3)
    ids = face(shards=urls[:2], timeout=3)
    drawn = [ids.ticket("invoice") for _ in range(4)]
    unreachable = Database(urls[1]).address.shown
    run = Database.run

    def cut(self, verb, *args):
        if self.address.shown == unreachable and threading.current_thread() is not threading.main_thread():
            raise DatabaseUnavailable("cut off")
        return run(self, verb, *args)

    monkeypatch.setattr(Database, "run", cut)
    grow(urls[:2], urls[2])
    draw_until(ids, drawn, lambda: len({ticket % 3 for ticket in drawn[-4:]}) == 2 or len(drawn) > 200)

    assert len(set(drawn)) == len(drawn)
    assert drawn[-1] > 100


@once
def test_a_fleet_that_was_begun_is_completed_by_the_same_shards(face, shards, monkeypatch):
    from allocator.fleet.bootstrap import Opening

    urls = shards(2)
    write, written = Opening._write, []

    def dying(self, one, members, revision):
        if written:
            raise KeyboardInterrupt
        written.append(self._all.index(one))
        write(self, one, members, revision)

    monkeypatch.setattr(Opening, "_write", dying)
    with suppress(KeyboardInterrupt), closing(Database(urls[0])) as one, closing(Database(urls[1])) as two:
        Opening([one, two], None, None).open()
    monkeypatch.undo()
    with pytest.raises((DatabaseUnavailable, ShardMisconfigured), match="open it once with exactly these shards|lost"):
        face([urls[0], urls[1]][written[0]]).ticket("invoice")

    assert {face(shards=urls).ticket("invoice")} == {1}


@once
@on_one_of_each
@pytest.mark.parametrize("use", ["tag", "ticket"])
def test_a_database_that_is_used_alone_while_a_fleet_is_made_is_none_of_it(face, shards, monkeypatch, use):
    """Between the look at it and its row: what it gave has no remainder, and the fleet must not begin."""
    from allocator.fleet.bootstrap import Opening

    urls = shards(2)
    alone, write, drawn = face(urls[1]), Opening._write, []

    def disturbed(self, one, members, revision):
        if len(members) > 1 and self._all.index(one) == 1 and not drawn:
            drawn.append(alone.next_id("order") if use == "tag" else alone.ticket("order"))
        write(self, one, members, revision)

    monkeypatch.setattr(Opening, "_write", disturbed)
    together = face(shards=urls, timeout=2)
    for _ in range(2):
        with pytest.raises((ShardMisconfigured, DatabaseUnavailable)):
            drawn += [together.ticket("order"), together.next_id("order")]
    drawn += [alone.next_id("order") if use == "tag" else alone.ticket("order") for _ in range(5)]

    assert len(set(drawn)) == len(drawn) == 6


@once
@on_one_of_each
def test_a_process_that_knew_a_database_alone_follows_the_fleet_that_is_made_of_it(face, shards):
    """An upgrade of the schema writes a row for a database of its own; a fleet may be made of such ones."""
    urls = shards(2)
    alone = [Allocator(with_schema(url)) for url in urls]
    for ids in alone:
        ids._backend.open()
    together = face(shards=urls)
    tickets = [together.ticket("invoice") for _ in range(4)]
    for ids in alone:
        tickets += [ids.ticket("invoice") for _ in range(4)]
        ids.close()

    assert len(set(tickets)) == len(tickets) == 12


@once
def test_tickets_of_another_server_do_not_begin_again_by_another_statement(face, shards):
    """Its row was written elsewhere: tickets that were drawn there may be forgotten here."""
    url = with_schema(shards(1)[0])
    face(url).next_id("order")
    execute(url, "UPDATE allocator_shard SET server = 'other'")
    for tickets in ("count", "replace"):
        with pytest.raises(ShardMisconfigured, match="allocator shards trust"):
            face(url, tickets=tickets).ticket("invoice")


@once
@on_one_of_each
def test_a_shard_that_lost_its_row_is_not_begun_anew(face, shards):
    urls = shards(2)
    face(shards=urls).ticket("invoice")
    execute(urls[0], "DELETE FROM allocator_shard")
    with growing(urls[:1]) as growth, pytest.raises(ShardMisconfigured, match="its row of allocator_shard is lost"):
        growth.begin()
    with pytest.raises(ShardMisconfigured, match="its row of allocator_shard is lost"):
        face(urls[0]).ticket("invoice")
    with pytest.raises(ShardMisconfigured, match="If it was a shard, its row is lost: do not use it"):
        face(shards=urls).ticket("invoice")


@once
@pytest.mark.parametrize("fleet_kind", ["sqlite"], indirect=True)
def test_shards_may_have_other_names_here_than_where_they_were_made(face, shards, tmp_path):
    """As through a tunnel, or by an alias of the host."""
    urls = shards(2)
    face(shards=urls).ticket("invoice")
    aliases = []
    for number, url in enumerate(urls):
        (tmp_path / f"alias{number}.db").symlink_to(url.removeprefix("sqlite:///"))
        aliases.append(f"sqlite:///{tmp_path}/alias{number}.db")
    with growing(aliases) as growth:
        found = growth.shards()

    assert [one.row.numbering.offset for one in found] == [1, 2]
    assert [one.where.partition("alias")[1] for one in found] == ["alias", "alias"]


@once
def test_one_database_under_two_urls_is_refused(face, shards, fleet_kind):
    (url,) = shards(1)
    other = url.replace("sqlite:////", "sqlite:////./") if "sqlite" in url else url.replace("localhost", "127.0.0.1")
    if "sqlite" not in url and other == url:
        other = url.replace("127.0.0.1", "localhost")
    for twice in ([url, url], [url, other]):
        with pytest.raises(ShardMisconfigured, match="the same database under two URLs"):
            face(shards=twice).ticket("invoice")
    face(url).ticket("invoice")
    with pytest.raises(ShardMisconfigured, match="the same database under two URLs, or one is a copy"):
        face(shards=[url, other]).ticket("invoice")


@once
@on_one_of_each
def test_a_copied_database_is_refused(face, shards):
    urls = shards(2)
    face(urls[0]).ticket("invoice")
    copy_row(urls[0], urls[1])
    execute(urls[1], "INSERT INTO allocator_ticket (type) VALUES ('invoice')")
    with pytest.raises(ShardMisconfigured, match="the same database under two URLs, or one is a copy"):
        face(shards=urls).ticket("invoice")


def copy_row(source: str, target: str) -> None:
    one, two = Database(source), Database(target)
    row = one.run(shard_rows.fetch)
    assert row is not None
    execute(target, "DELETE FROM allocator_shard")
    two.run(shard_rows.add, row)
    one.close(), two.close()


@once
@on_one_of_each
def test_a_database_that_was_used_cannot_be_part_of_a_new_fleet(face, shards):
    urls = shards(2)
    face(urls[1]).next_id("order")
    with pytest.raises(ShardMisconfigured, match="has given ids before, and the others have not"):
        face(shards=urls).ticket("invoice")
    face(urls[0]).ticket("invoice")
    with pytest.raises(ShardMisconfigured, match="has given ids of its own; a shard that is added must be empty"):
        grow(urls[:1], urls[1])


@once
def test_tags_that_were_used_first_leave_statement_and_fleet_to_the_first_ticket(face, fresh):
    ids = face(fresh, tickets="count", fleet="europe")
    assert [ids.next_id("order"), ids.ticket("invoice"), ids.ticket("invoice")] == [1, 1, 2]
    with pytest.raises(ShardMisconfigured, match="draws tickets by the statement 'count', and 'replace' is asked for"):
        face(fresh, tickets="replace").ticket("invoice")


@once
@on_one_of_each
@pytest.mark.parametrize("use", ["meteor", "snowflake"])
def test_nodes_and_leases_of_a_database_are_not_given_again_by_the_lead_of_a_fleet(face, shards, use):
    """Control: without the refusal both are the first node, and lease any worker beside the other."""
    urls = shards(2)
    getattr(face(urls[1]), use)()
    with pytest.raises(ShardMisconfigured, match="has given ids before, and the others have not"):
        getattr(face(shards=urls), use)()
    face(urls[0]).ticket("invoice")
    with pytest.raises(ShardMisconfigured, match="has given ids of its own; a shard that is added must be empty"):
        grow(urls[:1], urls[1])


@once
def test_odd_settings_are_refused(face, tmp_path):
    url = f"sqlite:///{tmp_path}/ids.db"
    for wrong, sentence in (
        (dict(shards=[]), "1 to 1000 databases, got 0"),
        (dict(), "pass either database or shards, not both or neither"),
        (dict(database=url, shards=[url]), "pass either database or shards, not both or neither"),
        (dict(database=url, fleet="a b"), "the name of a fleet must be spelled like a tag"),
        (dict(database=url, tickets="fast"), "tickets must be 'replace' or 'count', got 'fast'"),
    ):
        with pytest.raises(InvalidSetting, match=sentence):
            face(wrong.pop("database", None), **wrong)


@once
def test_another_fleet_than_asked_for_is_refused(face, shards):
    (url,) = shards(1)
    face(url, fleet="ids").ticket("invoice")

    with pytest.raises(ShardMisconfigured, match="is a shard of the fleet 'ids', not of 'other'"):
        face(url, fleet="other").ticket("invoice")
    assert face(url).ticket("invoice") == 2


@once
def test_a_server_that_is_another_one_is_left_alone_until_it_is_trusted(face, shards, caplog):
    urls = shards(2)
    ids = face(shards=urls, timeout=5)
    drawn = [ids.ticket("invoice") for _ in range(4)]
    execute(urls[0], "UPDATE allocator_shard SET server = 'elsewhere'")
    drawn += [ids.ticket("invoice") for _ in range(4)]
    assert {ticket % 2 for ticket in drawn[4:]} == {0}
    assert "not elsewhere: after a failover or a restore it may lack ids" in caplog.text
    assert "allocator shards trust" in caplog.text
    with growing(urls) as growth, closing(Database(urls[0])) as database:
        growth.trust(database, 50)
    draw_until(ids, drawn, lambda: drawn[-1] % 2 == 1)

    assert len(set(drawn)) == len(drawn)
    assert drawn[-1] > 50


@once
@pytest.mark.parametrize("fleet_kind", ["sqlite", "postgres", "mysql", "mariadb"], indirect=True)
def test_a_database_that_forgot_tickets_is_stopped(face, shards, fleet_kind):
    (url,) = shards(1)
    ids = face(url, timeout=5)
    drawn = [ids.ticket("invoice") for _ in range(5)]
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
            ids.ticket("invoice")
    with growing([url]) as growth, closing(Database(url)) as database:
        growth.trust(database, 50, above=max(drawn))
    time.sleep(0.5)

    assert ids.ticket("invoice") > max(drawn)


@once
@on_servers
def test_numbers_that_are_not_the_shards_own_are_burnt(face, shards, fleet_kind, monkeypatch, caplog):
    """As when the numbering was changed on the server behind our back."""
    urls = shards(2)
    ids = face(shards=urls)
    drawn = [ids.ticket("invoice") for _ in range(4)]
    if fleet_kind == "postgres":
        execute(urls[0], "ALTER TABLE allocator_ticket ALTER COLUMN id SET INCREMENT BY 1 RESTART WITH 100")
    else:
        monkeypatch.setattr(mysql.MySQL, "number_as", lambda self, connection, numbering: None)
        execute(urls[0], "ALTER TABLE allocator_ticket AUTO_INCREMENT = 100")
    ids = face(shards=urls)
    with suppress(ShardMisconfigured):
        drawn += [ids.ticket("invoice") for _ in range(6)]

    assert "is not of this shard, which has offset 1, step 2" in caplog.text
    assert len(set(drawn)) == len(drawn)


@on_mysql
def test_the_servers_own_increment_does_not_matter(shards, fleet_kind):
    (url,) = shards(1)
    seven, one = "SET GLOBAL auto_increment_increment = 7", "SET GLOBAL auto_increment_increment = 1"
    with changed(url, seven, one), Allocator(url) as ids:
        drawn = [ids.ticket("invoice") for _ in range(5)]

    assert drawn == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("ALTER TABLE allocator_ticket ENGINE = MyISAM", "is kept by MyISAM, and must be by InnoDB"),
        ("ALTER TABLE allocator_ticket DROP INDEX type", r"must have a unique key on \(type\)"),
    ],
)
def test_a_table_that_would_repeat_tickets_is_refused(fresh, damage, sentence):
    execute(fresh, damage)
    with Allocator(fresh) as ids, pytest.raises(SchemaDamaged, match=sentence):
        ids.ticket("invoice")


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
            face(shards=as_app).ticket("invoice")
        assert face(shards=urls).ticket("invoice") == 1
        assert {face(shards=as_app).ticket("invoice") % 2 for _ in range(2)} == {1}
        assert face(as_app[0]).next_id("order") > 0
    finally:
        for url in urls:
            execute(url, f"DROP OWNED BY {role}")
        execute(urls[0], f"DROP ROLE {role}")


@once
@on_one_of_each
def test_a_shard_that_cannot_be_reached_at_the_start_is_said_and_used_when_it_is_back(face, shards, caplog):
    urls = shards(3)
    face(shards=urls).ticket("invoice")
    execute(urls[1], "ALTER TABLE allocator_shard RENAME TO away")
    ids = face(shards=urls, timeout=3)
    drawn = [ids.ticket("invoice") for _ in range(4)]
    assert {ticket % 3 for ticket in drawn} == {0, 1}
    assert "stopped using shard" in caplog.text
    execute(urls[1], "ALTER TABLE away RENAME TO allocator_shard")
    draw_until(ids, drawn, lambda: drawn[-1] % 3 == 2)


LAST = {
    "sqlite": "UPDATE sqlite_sequence SET seq = 9223372036854775806 WHERE name = 'allocator_ticket'",
    "postgres": "ALTER TABLE allocator_ticket ALTER COLUMN id RESTART WITH 9223372036854775807",
    "mysql": "ALTER TABLE allocator_ticket AUTO_INCREMENT = 9223372036854775806",
    "mariadb": "ALTER TABLE allocator_ticket AUTO_INCREMENT = 9223372036854775806",
}


@once
@pytest.mark.parametrize("fleet_kind", ["sqlite", "postgres", "mysql", "mariadb"], indirect=True)
def test_after_the_last_number_there_is_an_error_and_no_ticket_twice(face, shards, fleet_kind):
    (url,) = shards(1)
    ids = face(url, timeout=5)
    drawn = [ids.ticket("invoice")]
    execute(url, LAST[fleet_kind])
    with pytest.raises(AllocatorError) as caught:
        while len(drawn) < 6:
            drawn.append(ids.ticket("invoice"))

    assert isinstance(caught.value, Exhausted | MaxValueWentBack)
    assert len(set(drawn)) == len(drawn) >= 2
    assert max(drawn) <= 2**63 - 1


# -- threads and processes


def test_threads_share_one_fleet(shards):
    with Allocator(shards=shards(3), timeout=20) as ids, ThreadPoolExecutor(12) as pool:
        drawn = list(pool.map(lambda _: ids.ticket("invoice"), range(240)))

    assert len(set(drawn)) == 240


def test_after_close_nothing_is_drawn(face, shards):
    from allocator import AllocatorClosed

    ids = face(shards=shards(2))
    ids.ticket("invoice")
    ids.close()
    with pytest.raises(AllocatorClosed):
        ids.ticket("invoice")


def test_nobody_waits_for_ever_when_it_is_closed_while_drawing(shards):
    ids = Allocator(shards=shards(2))
    ids.ticket("invoice")
    drawing = threading.Thread(target=draw_until_closed, args=(ids,))
    drawing.start()
    ids.close()
    drawing.join(30)

    assert not drawing.is_alive()


def draw_until_closed(ids: Allocator) -> None:
    from allocator import AllocatorError

    try:
        while True:
            ids.ticket("invoice")
    except AllocatorError:
        pass


def test_tags_are_not_changed_on_a_part_of_the_shards(face, shards, monkeypatch):
    """As where the driver of one is not installed: ids go on, and administration is refused."""
    one, two = shards(2)
    face(shards=[one, two]).ticket("a")

    def unusable(known, url):
        raise InvalidDatabase(f"{url} needs a driver, which is not installed")

    monkeypatch.setattr("allocator.fleet.shards.sibling", unusable)
    ids = face(shards=[one])
    alone = face(one)
    assert ids.ticket("a") > 0
    for found in (ids, alone):
        for call in (found.tags.list, lambda found=found: found.tags.create("order", start_after=5000)):
            with pytest.raises(InvalidDatabase, match="needs a driver"):
                call()


@once
def test_the_first_ticket_may_begin_above_those_of_another_table(face, shards):
    """Nothing is drawn before."""
    old, new = shards(2)
    with growing([old, old]) as growth:
        floor = growth.trust(Database(old), 0, above=5000).numbering.following(0)
    grow([old], new, headroom=0)
    ids = face(shards=[old, new])
    tickets = [ids.ticket("photo") for _ in range(4)]

    assert floor == 5001
    assert len(set(tickets)) == 4
    assert {ticket % 2 for ticket in tickets} == {0, 1}
    assert 5000 < min(tickets) < 5100


@pytest.mark.parametrize(("count", "late"), [(1, "the database did not answer"), (2, "no shard answered")])
def test_a_call_whose_time_is_over_names_the_last_error(tmp_path, count, late):
    with Allocator(shards=[f"sqlite:///{tmp_path}/{number}.db" for number in range(count)], timeout=2) as ids:
        bare = ids._overdue()
        assert str(bare) == f"{late} within 2 seconds"
        assert bare.__cause__ is None
        shards = ids._backend._shards
        shards.fail(shards.handles[0], DatabaseUnavailable("connection refused"))
        with pytest.raises(DatabaseUnavailable) as found:
            wait_for(Future, ids._background, 0.0, ids._overdue)

    assert str(found.value) == f"{late} within 2 seconds; the last error: connection refused"
    assert str(found.value.__cause__) == "connection refused"

"""Fleets that grow, on every database and on a mixture."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from support.distinct import distinct
from support.servers.administrator import execute
from support.servers.fleets import MYSQLS, claim_tickets, copy_row, draw_until, grow, growing, on_one_of_each, once
from support.servers.throwaway import free_port

from allocator import Allocator
from allocator.database.store import Database
from allocator.errors import (
    DatabaseUnavailable,
    FleetGrowing,
    InvalidSetting,
    ShardMisconfigured,
    TagExists,
)
from allocator.rules import fleet_growth_protocol as rules


@pytest.mark.statements
@once
def test_clients_follow_a_fleet_that_grows(face, shards, fleet_kind):
    urls = shards(4)
    ids = face(shards=urls[:2], step=3, max_step=3)
    tickets = [ids.ticket("job") for _ in range(9)]
    numbers = [ids.next_id("order") for _ in range(9)]
    for new in (2, 3):
        grow(urls[:new], urls[new])  # where user and password are not the same, all must be given
        tickets += [ids.ticket("job") for _ in range(9)]
        numbers += [ids.next_id("order") for _ in range(9)]
    alike = {3, 0} if fleet_kind != "mixed" else set()  # a client that was not given a password cannot use a new one
    draw_until(ids, tickets, lambda: {ticket % 4 for ticket in tickets[-4:]} >= {1, 2} | alike)

    assert distinct(tickets)
    assert distinct(numbers)


@pytest.mark.statements
@once
def test_one_database_becomes_several_while_it_is_used(face, shards):
    """Also those who know only the one: their claims are fenced by the row of the tag."""
    urls = shards(2)
    alone = face(urls[0], step=3, max_step=3)
    drawn = [alone.next_id("order") for _ in range(8)]
    tickets = [alone.ticket("job") for _ in range(3)]
    grow(urls[:1], urls[1])
    together = face(shards=urls, step=3, max_step=3)
    for _ in range(20):
        drawn += [alone.next_id("order"), together.next_id("order"), together.next_id("order")]
        tickets += [alone.ticket("job"), together.ticket("job")]

    assert distinct(drawn)
    assert distinct(tickets)
    assert 0 in {ticket % 2 for ticket in tickets[-4:]}


def interrupted(*args: object) -> None:
    raise KeyboardInterrupt


@once
@pytest.mark.parametrize("fleet_kind", ["sqlite", "mysql"], indirect=True)
def test_growth_that_was_only_begun_can_be_taken_back(face, shards, fleet_kind, monkeypatch):
    urls = shards(2)
    ids = face(shards=urls[:1], timeout=4)
    before = ids.ticket("job")
    ids.next_id("order")
    with growing(urls[:1]) as growth:
        growth.add(Database(urls[1]))
        monkeypatch.setattr(rules, "turning", interrupted)
        with pytest.raises(KeyboardInterrupt):
            growth.grow(100)
        if fleet_kind == "mysql":  # up to the floor
            assert ids.ticket("job") > before
        else:
            assert "type 'job' issues no ids while its fleet grows" in refusal(lambda: ids.ticket("job"))
        for _ in range(2):
            assert "issues no ids while its fleet grows" in refusal(lambda: ids.reserve("order", 5))
        assert growth.take_back()
        assert not growth.take_back()
    time.sleep(1.1)  # the pace of a tag's claims

    assert ids.reserve("order", 5)
    assert ids.ticket("job") < 100


@once
@pytest.mark.parametrize("fleet_kind", ["sqlite"], indirect=True)
def test_in_a_growth_that_was_interrupted_every_call_says_so(face, shards, monkeypatch):
    urls = shards(3)
    ids = face(shards=urls[:2], timeout=3, step=1, max_step=1)
    drawn = [ids.next_id("order"), ids.ticket("job")]  # so that both shards are connected
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
def test_where_a_tag_begins_is_not_said_while_a_shard_that_is_added_might_not_hear_of_it(face, shards):
    urls = shards(2)
    ids = face(urls[0])
    ids.tags.create("order")
    with growing(urls[:1]) as growth:
        growth.begin()
        growth.add(Database(urls[1]))
        for say, tag in ((ids.tags.set, "order"), (ids.tags.create, "user")):
            with pytest.raises(FleetGrowing, match="the fleet is growing"):
                say(tag, start_after=5000)
        ids.tags.create("plain")  # begins with 1 everywhere
        growth.grow(100)
    ids.tags.set("order", start_after=5000)
    ids.tags.create("user", start_after=5000)

    assert all(face(url).next_id(tag) > 5000 for url in urls for tag in ("order", "user"))


@once
@pytest.mark.parametrize("fleet_kind", ["sqlite", "postgres"], indirect=True)
def test_a_fleet_that_grows_while_it_is_said_where_a_tag_begins_is_noticed(face, shards, monkeypatch):
    urls = shards(2)
    ids = face(urls[0])
    grown = []

    def grow_first(database, *given, **more):
        if not grown:
            grown.append(grow(urls[:1], urls[1]))
        return original(database, *given, **more)

    original = Database.create_tag
    monkeypatch.setattr(Database, "create_tag", grow_first)
    with pytest.raises(FleetGrowing, match="do the same again"):
        ids.tags.create("order", start_after=5000)
    with pytest.raises(TagExists):
        ids.tags.create("order", start_after=5000)

    assert all(face(url).next_id("order") > 5000 for url in urls)


@once
@on_one_of_each
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


@once
@pytest.mark.parametrize("fleet_kind", MYSQLS, indirect=True)
@pytest.mark.parametrize("claims", [[0], [1], [0, 1]], ids=["the first", "the new one", "both"])
def test_a_shard_that_claims_tickets_may_stand_beside_one_that_replaces_them(face, shards, claims):
    urls = shards(2)
    claim_tickets(*(urls[number] for number in claims))
    ids = face(urls[0])
    drawn = [ids.ticket("job") for _ in range(6)]
    grow(urls[:1], urls[1], headroom=0)
    together = face(shards=urls)
    grown = [one.ticket("job") for _ in range(6) for one in (ids, together)]
    new = [one.ticket("new") for _ in range(6) for one in (ids, together)]

    assert distinct([*drawn, *grown]) == 18
    assert distinct(new) == 12
    assert {ticket % 2 for ticket in grown} == {ticket % 2 for ticket in new} == {0, 1}
    assert min(*grown, *new) > max(drawn)


@once
@on_one_of_each
def test_a_row_of_a_tag_with_another_limit_grows_too(face, shards):
    urls = shards(3)
    face(shards=urls[:2]).ticket("job")
    face(urls[0], limit=100, step=10).next_id("order")
    ids = face(urls[1], step=50)
    drawn = [ids.next_id("order") for _ in range(60)]
    grow(urls[:2], urls[2])
    together = face(shards=urls)
    drawn += [together.next_id("order") for _ in range(3000)]

    assert distinct(drawn)
    assert {number % 3 for number in drawn[60:]} == {0, 1, 2}


@once
@on_one_of_each
def test_a_shard_that_waits_for_trust_stops_growth(face, shards):
    urls = shards(3)
    face(shards=urls[:2]).ticket("job")
    execute(urls[0], "UPDATE allocator_shard SET trusted = 0")
    with pytest.raises(ShardMisconfigured, match="allocator shards trust"):
        grow(urls[:2], urls[2])
    with growing(urls[:2]) as growth, closing(Database(urls[0])) as database:
        growth.trust(database, 10, above=500)

    assert face(shards=urls[:2]).ticket("job") > 500


def test_a_number_that_no_id_can_have_is_refused_before_anything_is_asked():
    away = f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/ids"
    with growing([away]) as growth, closing(Database(away)) as database:
        for above in (10**23, 2**63, -1):
            with pytest.raises(InvalidSetting, match=f"above must be 0 to 9223372036854775807, got {above}"):
                growth.trust(database, above=above)


@once
@on_one_of_each
def test_a_server_that_was_replaced_is_refused_when_it_comes_back(face, shards):
    urls = shards(3)
    ids = face(shards=urls[:2])
    drawn = [ids.ticket("job") for _ in range(6)]
    copy_row(urls[1], urls[2])  # the standby, and the old one is away
    execute(urls[1], "ALTER TABLE allocator_shard RENAME TO away")
    with growing([urls[0], urls[2]]) as growth, closing(Database(urls[2])) as database:
        growth.trust(database, 10)
    execute(urls[1], "ALTER TABLE away RENAME TO allocator_shard")

    after = [face(shards=[urls[0], urls[2]]).ticket("job") for _ in range(2)]
    assert distinct([*drawn, *after]) == 8
    with pytest.raises(ShardMisconfigured, match="was replaced by"):
        face(shards=urls[:2]).ticket("job")
    with growing(urls[:1]) as growth:
        assert [found.database.address.shown for found in growth.shards()][1].endswith(urls[2][-12:])


@once
@on_one_of_each
def test_a_client_that_cannot_reach_a_shard_follows_the_others(face, shards, monkeypatch):
    """The row that it remembers of that shard is old by then, and contradicts nothing."""
    urls = shards(3)
    ids = face(shards=urls[:2], timeout=30)
    drawn = [ids.ticket("job") for _ in range(4)]
    unreachable = Database(urls[1]).address.shown
    run = Database.run

    def cut(self, verb, *args):
        if self.address.shown == unreachable and threading.current_thread() is not threading.main_thread():
            raise DatabaseUnavailable("cut off")
        return run(self, verb, *args)

    monkeypatch.setattr(Database, "run", cut)
    grow(urls[:2], urls[2])
    draw_until(ids, drawn, lambda: len({ticket % 3 for ticket in drawn[-4:]}) == 2 or len(drawn) > 200)

    assert distinct(drawn)
    assert drawn[-1] > 100


@once
@on_one_of_each
def test_the_first_ticket_may_begin_above_those_of_another_table(face, shards):
    """Nothing is drawn before."""
    old, new = shards(2)
    with growing([old, old]) as growth:
        floor = growth.trust(Database(old), 0, above=5000).numbering.following(0)
    grow([old], new, headroom=0)
    ids = face(shards=[old, new])
    tickets = [ids.ticket("photo") for _ in range(4)]

    assert floor == 5001
    assert distinct(tickets) == 4
    assert {ticket % 2 for ticket in tickets} == {0, 1}
    assert 5000 < min(tickets) < 5100


def test_the_file_of_a_shard_that_is_lost_is_not_made_again(tmp_path):
    """A process that knows it alone would begin its ids again."""
    one, two, three = (f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two", "three"))
    with Allocator(shards=[one, two]) as ids:
        ids.ticket("job")
    with Allocator(three) as ids:
        ids.create_tables()
    (tmp_path / "two.db").unlink()
    with growing([one]) as growth:
        growth.leave_out([Database(two)])
        growth.add(Database(three))

    assert not (tmp_path / "two.db").exists()

"""Several databases as one fleet: how it is made and extended, what is refused, and one that is away."""

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from support.distinct import distinct
from support.faults.meanwhile import die, meanwhile
from support.faults.wire import Wire
from support.kit import SERVERS, backend_of, now_ms, on
from support.processes.patience import patiently, until
from support.servers.administrator import execute
from support.servers.fleets import MYSQLS, add, bare, claim_tickets, draw_until, make, named, on_servers

from allocator import Allocator, errors
from allocator.database.store import Database
from allocator.database.verbs import fleet_rows
from allocator.errors import DatabaseUnavailable, InvalidSetting, LeaseLost, ShardMisconfigured, UnknownTag
from allocator.fleet import commands
from allocator.fleet.rotation import Rotation
from allocator.schemes.slots import word_of
from allocator.schemes.worker_number_lease import NumberClaim

on_files = on("sqlite", of="fleet_kind")
with_sessions = pytest.mark.parametrize("fleet_kind", ["sqlite", *MYSQLS], indirect=True)


@pytest.fixture(params=["sqlite", "mixed"])
def fleet_kind(request: pytest.FixtureRequest) -> str:
    """Files, and a mixture of all, where these show all that there is to see."""
    return str(request.param)


def moved(url: str, *more: str) -> None:
    """As on a server that nobody has noticed yet."""
    execute(url, "UPDATE allocator_shard SET server_run = 'elsewhere'", *more)


# -- what each slot gives


@on("sqlite", *SERVERS, "mixed", of="fleet_kind")
def test_each_slot_serves_its_remainder(sync, fleet):
    ids = sync(shards=fleet(3), step=5, max_step=5)
    drawn = [ids.next_id("order") for _ in range(45)]
    block = ids.reserve("order", 4)

    assert distinct(drawn) == 45
    assert {number % 3 for number in drawn} == {0, 1, 2}
    assert set(drawn) <= set(range(1, 120))
    assert (block.step, len(block)) == (3, 4)
    assert distinct([*block, *drawn]) == 49


def test_a_database_that_is_used_becomes_a_fleet_while_everything_is_drawn(sync, shards):
    """By processes that knew it alone, and by those that use the new ones."""
    one, two, three = shards(3)
    drawn: dict[str, list[int]] = {"tag": [], "ticket": [], "node": []}
    stop, urls = threading.Event(), [one]

    def draw(ids: Allocator) -> None:
        drawn["tag"] += ids.reserve("order", 3)
        drawn["ticket"].append(ids.ticket("job"))
        drawn["node"].append(backend_of(ids).register_node())

    def drawing(ids: Allocator) -> None:
        while not stop.is_set():
            draw(ids)

    with ThreadPoolExecutor(3) as pool:
        try:
            work = [pool.submit(drawing, sync(one, timeout=20)) for _ in range(2)]
            assert until(lambda: len(drawn["node"]) >= 4 or any(one_of.done() for one_of in work), 60)
            urls = [make(one, 4)]
            for slot, new in ((2, two), (3, three)):
                urls.append(add(urls, new, slot))
                draw(sync(urls[-1], timeout=20))
        finally:
            stop.set()
        for one_of in work:
            one_of.result()
    together = sync(shards=urls)
    draw(together)
    drawn["ticket"] += (tickets := [together.ticket("job") for _ in range(3)])

    for kind, numbers in drawn.items():
        assert distinct(numbers), kind
    assert {ticket % 4 for ticket in tickets} == {1, 2, 3}


@with_sessions
def test_a_node_of_a_session_that_draws_tickets_is_the_next_of_its_slot(sync, fleet):
    """Where tickets are numbered by the session, its offset and step must not number the nodes."""
    ids = sync(shards=fleet(2))
    for _ in range(4):
        ids.ticket("job")
        backend_of(ids).register_node()
    numbers = [backend_of(ids).register_node() for _ in range(6)]

    for of_slot in (numbers[::2], numbers[1::2]):
        assert [b - a for a, b in pairwise(of_slot)] == [2, 2]


def test_worker_numbers_are_those_of_the_slot_and_a_new_slot_leases_as_the_others_do_after_a_while(shards):
    """The length of a lease and the format of a space hold for ever: a holder of before may use its number for long."""
    one, two = shards(2)
    claim = NumberClaim("billing", 3, 600_000, now_ms(), "holder", format="a")
    with closing(Database(one)) as database:
        before = [database.lease_number(claim) for _ in range(2)]
        urls = [make(one, 2)]
        urls.append(add(urls, two, 2))
        database.renew_number(before[0], claim.wall_ms)
        with pytest.raises(LeaseLost):
            database.renew_number(before[1], claim.wall_ms)
        assert [database.lease_number(claim).number for _ in range(3)] == [2, 4, 6]
        assert database.worker_spaces()[0].free == 0
    with closing(Database(two)) as database:
        with pytest.raises(DatabaseUnavailable, match=r"numbers are leased again in 1\d\d\d s"):
            database.lease_number(claim)
        execute(two, "UPDATE allocator_shard SET moved_at = 0")
        for other in (replace(claim, length_ms=1000), replace(claim, format="b")):
            with pytest.raises(InvalidSetting, match="has leases of 600 s and the format a, but this process asks"):
                database.lease_number(other)
        assert database.worker_spaces()[0].held == []
        assert database.lease_number(replace(claim, wall_ms=claim.wall_ms + 200_000)).number % 2 == 1


@on_files
def test_a_lease_of_a_fleet_is_renewed_and_given_back_where_it_was_taken(sync, fleet):
    *urls, other = fleet(3)
    execute(bare(urls[1]), "UPDATE allocator_shard SET moved_at = 0")
    backend, claim = backend_of(sync(shards=urls)), NumberClaim("billing", 2, 60_000, now_ms(), "holder")
    leases = [backend.lease_number(claim) for _ in range(2)]
    assert {one.number % 3 for one in leases} == {0, 1}
    with pytest.raises(LeaseLost, match="is of a slot that is not"):
        backend_of(sync(shards=[other, urls[leases[1].number % 3 - 1]])).renew_number(leases[1], now_ms())
    for lease in leases:
        backend.renew_number(lease, now_ms())
        backend.release_number(lease, now_ms())
        with pytest.raises(LeaseLost):
            backend.renew_number(lease, now_ms())


def replaced_and_claimed(sync, shards):
    """Five tickets of slot 1, the URLs of slot 1 and of slot 2, which claims its tickets, and a new database."""
    one, two, three = shards(3)
    drawn = [sync(one).ticket("job") for _ in range(5)]
    claim_tickets(two)
    urls = [make(one, 4)]
    return drawn, [*urls, add(urls, two, 2)], three


@pytest.mark.parametrize("fleet_kind", MYSQLS, indirect=True)
def test_a_slot_that_claims_tickets_begins_above_those_that_another_replaced(sync, shards):
    """And the other way round."""
    drawn, urls, three = replaced_and_claimed(sync, shards)
    drawn += [sync(urls[1]).ticket("job") for _ in range(5)]
    urls.append(add(urls, three, 3))
    drawn += [sync(urls[2]).ticket("job") for _ in range(3)]

    assert drawn == sorted(drawn)
    assert {ticket % 4 for ticket in drawn[5:10]} == {2}
    assert {ticket % 4 for ticket in drawn[10:]} == {3}


@with_sessions
def test_a_slot_begins_above_tickets_that_a_lost_one_drew_and_a_member_knows_by_its_first_value_alone(sync, shards):
    drawn, urls, three = replaced_and_claimed(sync, shards)
    third = sync(add(urls[1:], three, 3, 1))

    assert third.ticket("job") > max(drawn)


# -- tags of all slots


def test_a_start_reaches_every_slot(sync, fleet):
    urls = fleet(2)
    ids = sync(shards=urls, create_missing=False)
    with pytest.raises(UnknownTag):
        ids.next_id("order")
    made = ids.tags.create("order", start_after=1000, step=10, max_step=10)
    assert made == ids.tags.get("order")
    drawn = {ids.next_id("order") for _ in range(40)}
    assert min(drawn) > 1000
    assert {number % 2 for number in drawn} == {0, 1}
    ids.tags.set("order", start_after=5000, limit=9000)

    assert ids.tags.get("order").limit == 9000
    assert [sync(url).tags.get("order").max_value for url in urls] == [5000, 5000]
    sync(urls[1]).reserve("order", 1)
    assert ids.tags.get("order").max_value == 5002, "that of the slot which gave more"


def test_a_tag_begins_above_the_rows_of_every_slot(sync, fleet):
    urls = fleet(2)
    for url, greatest in zip(urls, (700, 3), strict=True):
        execute(bare(url), "CREATE TABLE bills (id BIGINT)", f"INSERT INTO bills VALUES ({greatest})")

    assert sync(shards=urls).tags.create("bill", start_after_column="bills.id").max_value == 700


def test_a_start_that_would_miss_a_slot_is_refused_and_writes_nothing(sync, fleet):
    urls = fleet(3)
    alone, together = sync(urls[0]), sync(shards=urls)
    sync(urls[2]).next_id("used")
    for refused in (
        lambda: alone.tags.create("order", start_after=1000),
        lambda: sync(shards=urls[:2]).tags.set("used", start_after=10**6),
        lambda: alone.tags.delete("order", 0),
    ):
        with pytest.raises((ShardMisconfigured, UnknownTag), match="needs the database of every slot|does not exist"):
            refused()
    with pytest.raises(errors.TagExists, match="tags set used --start-after N"):
        together.tags.create("used", start_after=1000)

    assert [[tag.name for tag in sync(url).tags.list()] for url in urls] == [[], [], ["used"]]
    assert together.tags.get("used").max_value < 1000


def at_slot_2(database: Database, what: object, *_: object) -> bool:
    return bool(what) and database.address.word.slot == 2


@on_files
def test_a_start_that_ended_halfway_is_completed_by_another(sync, fleet, monkeypatch):
    ids = sync(shards=fleet(2))
    meanwhile(monkeypatch, Database, "create_tag", die, when=at_slot_2)
    with pytest.raises(KeyboardInterrupt):
        ids.tags.create("order", start_after=1000)
    with pytest.raises(errors.TagExists, match="tags set order --start-after N"):
        ids.tags.create("order", start_after=1000)
    ids.tags.set("order", start_after=1000)

    assert min(ids.reserve("order", 1)[0] for _ in range(2)) > 1000


def test_a_start_that_a_new_slot_may_have_missed_is_said(sync, shards, monkeypatch):
    """The slot is added between the look at the rows and the change."""
    one, two = shards(2)
    urls = [make(one, 3)]
    ids = sync(urls[0])
    ids.next_id("order")
    meanwhile(monkeypatch, Database, "start_tag", lambda *_: urls.append(add(urls, two, 2)))
    with pytest.raises(ShardMisconfigured, match="slot 2 was not given or asked"):
        ids.tags.set("order", start_after=5000)
    ids = sync(shards=urls)
    ids.tags.set("order", start_after=6000)
    assert min(ids.reserve("order", 1)[0] for _ in range(2)) > 6000


def test_a_tag_is_deleted_at_every_slot(sync, fleet, monkeypatch):
    urls = fleet(2)
    ids, other = sync(shards=urls), sync(urls[1])
    drawn = [ids.reserve("order", 1)[0] for _ in range(4)]
    meanwhile(monkeypatch, Database, "remove_tag", die, when=at_slot_2)
    with pytest.raises(KeyboardInterrupt):
        ids.tags.delete("order", ids.tags.last_claimed("order"))
    with pytest.raises(UnknownTag, match="is being deleted; to end that: allocator tags delete order"):
        other.next_id("order")
    ids.tags.delete("order", ids.tags.last_claimed("order"))

    assert ids.tags.list() == []
    assert {sync(url).next_id("order") for url in urls} <= {*drawn, 1, 2}


def test_while_a_tag_is_deleted_no_slot_that_never_had_it_makes_it(sync, fleet, monkeypatch):
    urls, told = fleet(2), []
    sync(urls[0]).next_id("order")

    def draw(*_: object) -> None:
        with pytest.raises(UnknownTag, match="is being deleted") as refused:
            sync(urls[1], timeout=1).next_id("order")
        told.append(refused)

    meanwhile(monkeypatch, Database, "remove_tag", draw, when=lambda _, name: name)
    tags = sync(shards=urls).tags
    tags.delete("order", tags.last_claimed("order"))

    assert (len(told), tags.list()) == (1, [])


def test_a_tag_that_gives_ids_meanwhile_is_not_deleted_and_open_again(sync, fleet):
    urls = fleet(2)
    ids = sync(shards=urls)
    drawn = [ids.reserve("order", 1)[0] for _ in range(4)]
    last = ids.tags.last_claimed("order")
    drawn += sync(urls[1]).reserve("order", 20)
    with pytest.raises(InvalidSetting, match="is in use: ids were claimed meanwhile"):
        ids.tags.delete("order", last)

    after = [ids.reserve("order", 1)[0] for _ in range(4)]
    assert distinct([*drawn, *after]) == 28
    assert {number % 2 for number in after} == {0, 1}


def test_a_slot_that_never_had_a_tag_gets_its_settings_from_a_deletion_that_is_refused(sync, fleet):
    urls = fleet(2)
    sync(urls[0]).tags.create("order", step=3, max_step=5, limit=40)
    sync(urls[0]).reserve("order", 3)
    with pytest.raises(InvalidSetting, match="is in use"):
        sync(shards=urls).tags.delete("order", 0)
    made = sync(urls[1]).tags.get("order")

    assert (made.step, made.max_step, made.limit, made.max_value) == (3, 5, 40, 0)
    assert sync(urls[1]).reserve("order", 3)[-1] <= 40


def test_a_slot_that_forgot_a_tag_while_it_is_deleted_begins_it_above_its_ids(sync, fleet, monkeypatch):
    urls = fleet(2)
    ids = sync(shards=urls)
    drawn = [*ids.reserve("order", 3), *ids.reserve("order", 3)]
    last = ids.tags.last_claimed("order")

    def forget(*_: object) -> None:
        drawn.extend(sync(urls[1]).reserve("order", 9))
        moved(bare(urls[1]), "DELETE FROM allocator_segment")

    meanwhile(monkeypatch, Database, "close_tag", forget)
    with pytest.raises(InvalidSetting, match="is in use"):
        ids.tags.delete("order", last)
    drawn += [*sync(urls[1]).reserve("order", 9), *sync(urls[0]).reserve("order", 9)]

    assert distinct(drawn) == 33


@on_files
def test_while_a_slot_is_away_nothing_else_stops(sync, fleet, tmp_path):
    urls = fleet(2)
    ids = sync(shards=urls, timeout=2)
    ids.next_id("order")
    shutil.move(tmp_path / "shard2.db", tmp_path / "away")
    ids = sync(shards=urls, timeout=2)

    assert [tag.name for tag in ids.tags.list()] == ["order"]
    assert ids.tags.get("order").name == "order"
    assert ids.next_id("fresh") > 0
    assert ids.ticket("job") > 0
    ids.ping()
    with pytest.raises(DatabaseUnavailable, match="was changed at .*shard1.db, and not at .*there is no file"):
        ids.tags.set("order", limit=1_000_000)
    assert ids.tags.get("order").limit == 1_000_000
    for refused in (lambda: ids.tags.create("started", start_after=9), lambda: ids.tags.delete("order", 10**6)):
        with pytest.raises(DatabaseUnavailable, match="there is no file"):
            refused()
    assert [tag.name for tag in sync(urls[0]).tags.list()] == ["fresh", "order"]
    assert not (tmp_path / "shard2.db").exists()


@on_files
def test_while_every_slot_is_away_it_says_so_and_one_that_is_back_is_used(sync, fleet, tmp_path, caplog):
    ids, files = sync(shards=fleet(2), timeout=1), [tmp_path / f"shard{slot}.db" for slot in (1, 2)]
    drawn = [ids.ticket("job")]
    for file in files:
        file.rename(f"{file}-away")
    with pytest.raises(DatabaseUnavailable, match="none of the fleet answered within 1 seconds; .*there is no file"):
        ids.ticket("job")
    Path(f"{files[1]}-away").rename(files[1])
    drawn.append(patiently(lambda: ids.ticket("job")))

    assert distinct(drawn) == 2
    assert "shard2.db again" in caplog.text


# -- what a URL says


def test_a_database_that_is_not_what_its_url_says_is_named_and_not_used(sync, fleet, caplog):
    one, two, three = fleet(3)
    word = word_of(one.rpartition("shard=")[2])
    other = named(bare(two), word._replace(slot=3))
    for wrong in (other, named(bare(two), word._replace(fleet="00000000", slot=2))):
        for call in ("ticket", "next_id", "reserve", "meteor", "snowflake", "ping", "get", "create"):
            ids = sync(wrong)
            act = getattr(ids, call, None) or getattr(ids.tags, call)
            with pytest.raises(ShardMisconfigured, match="and the database is slot .* never use a copy"):
                act(*() if call in {"meteor", "snowflake", "ping"} else ("job", 1) if call == "reserve" else ("job",))
    ids = sync(shards=[one, other])
    assert {ids.ticket("job") % 3 for _ in range(4)} == {1}
    assert "stopped using" in caplog.text
    assert f"the database is slot {word._replace(slot=2)}" in caplog.text
    execute(bare(three), "UPDATE allocator_shard SET fleet = '', slot = 1, slots = 1, taken = ''")
    with pytest.raises(ShardMisconfigured, match="is in no fleet; if it is new: allocator shards add URL"):
        sync(three).ticket("job")


def test_lists_that_can_be_no_fleet_are_refused_before_anything_is_read(sync):
    none = "postgresql+psycopg://nobody@localhost:1/none"
    with pytest.raises(errors.InvalidDatabase, match="its URL does not say its slot"):
        sync(shards=[f"{none}?shard=00000001.1", none])
    with pytest.raises(errors.InvalidDatabase, match="is named as slot 00000001.1, and its URL says 00000001.2"):
        sync(shards={"00000001.1": f"{none}?shard=00000001.2"})
    for shards in ([], {}, {f"00000001.{slot}": none for slot in range(1, 66)}):
        with pytest.raises(InvalidSetting, match=f"1 to 64 databases, got {len(shards)}"):
            sync(shards=shards)
    with pytest.raises(InvalidSetting, match="pass either database or shards, not both"):
        sync(none, shards=[none])


def test_engines_are_named_by_a_dict(fleet):
    urls = fleet(2)
    engines = {url.rpartition("shard=")[2]: create_engine(bare(url)) for url in urls}
    with Allocator(shards=engines) as ids:
        assert [ids.ticket("job"), ids.ticket("job")] == [1, 2]
    swapped = dict(zip(engines, reversed(engines.values()), strict=True))
    with Allocator(shards=swapped) as ids, pytest.raises(ShardMisconfigured, match="never use a copy"):
        ids.ticket("job")
    for engine in engines.values():
        engine.dispose()


@on_files
def test_a_url_that_says_no_slot_is_told_what_to_say_once(sync, fleet, caplog):
    (url, _) = fleet(2)
    ids = sync(bare(url))
    ids.next_id("order"), ids.ticket("job")

    assert caplog.text.count(f"add ?shard={url.rpartition('shard=')[2]}") == 1


@on_files
def test_a_file_of_a_fleet_that_is_gone_is_not_made_anew(sync, fleet, tmp_path):
    (url, _) = fleet(2)
    (tmp_path / "shard1.db").unlink()
    with pytest.raises(DatabaseUnavailable, match="there is no file"):
        sync(url, timeout=1).ticket("job")
    assert not (tmp_path / "shard1.db").exists()


# -- making and adding


def test_what_may_not_be_added_is_refused(sync, shards):
    one, two, three = shards(3)
    sync(three).next_id("order")
    urls = [make(one, 3)]
    with pytest.raises(ShardMisconfigured, match="is slot .*.1; to add a database"):
        make(one, 4)
    for new in (three, one):
        with pytest.raises(ShardMisconfigured, match="has given ids or is in a fleet; a database that is added must"):
            add(urls, new, 2)
    urls.append(add(urls, two, 2))
    for use in ("meteor", "snowflake", "ticket"):
        (fresh,) = shards(1)
        getattr(sync(fresh), use)(*["job"] if use == "ticket" else [])
        with pytest.raises(ShardMisconfigured, match="a database that is added must be new"):
            add(urls, fresh, 3)
    (fresh,) = shards(1)
    with pytest.raises(ShardMisconfigured, match="slot 2 must answer too"):
        add(urls[:1], fresh, 3)

    urls = [urls[0], add(urls[:1], fresh, 3, 2)]
    ids = sync(shards=urls)  # slot 2 is lost, and needed no more
    ids.tags.create("started", start_after=10**6)
    assert min(ids.reserve("started", 1)[0] for _ in range(2)) > 10**6


def test_an_addition_after_a_failover_that_may_have_forgotten_another_is_refused(sync, shards):
    """Whatever an operator vouches for one slot says nothing of the others."""
    one, two, three = shards(3)
    urls = [make(one, 3)]
    moved(one)
    with pytest.raises(ShardMisconfigured, match="may have forgotten that one; if slot 2 was never added: --unused"):
        add(urls, two, 2)
    urls.append(add(urls, two, 2, is_unused=True))
    with pytest.raises(ShardMisconfigured, match="may have forgotten that one; if slot 3 was never added: --unused"):
        add(urls, three, 3)
    urls.append(add(urls, three, 3, is_unused=True))
    ids = sync(shards=urls)

    assert {ids.ticket("job") % 3 for _ in range(3)} == {0, 1, 2}


def test_two_additions_at_once_are_not_both_done(shards, monkeypatch):
    """The second has read the rows before the first has marked them."""
    one, two, three = shards(3)
    urls = [make(one, 4)]
    meanwhile(monkeypatch, commands, "check_new", lambda _: add(urls, three, 3))
    with pytest.raises(ShardMisconfigured, match="another command has changed"):
        add(urls, two, 2)
    with pytest.raises(ShardMisconfigured, match="slot 3 must answer too"):
        add(urls, two, 2)


def test_an_addition_whose_member_moves_before_it_is_read_is_not_done(shards, monkeypatch):
    """The server that is read may have forgotten what was marked, and ids that were given."""
    one, two = shards(2)
    urls, take = [make(one, 4)], fleet_rows.take_slot

    def forgetting(*words: object) -> bool:
        taken = take(*words)
        moved(one)
        return taken

    monkeypatch.setattr(fleet_rows, "take_slot", forgetting)
    with pytest.raises(ShardMisconfigured, match="moved to another server, and nothing was added"):
        add(urls, two, 2)


def test_an_addition_that_ended_before_its_last_step_spends_the_slot(shards, monkeypatch):
    one, two = shards(2)
    urls = [make(one, 4)]
    meanwhile(monkeypatch, commands, "join", die)
    with pytest.raises(KeyboardInterrupt):
        add(urls, two, 2)
    with pytest.raises(ShardMisconfigured, match="slot 2 must answer too"):
        add(urls, two, 3)
    with pytest.raises(ShardMisconfigured, match=r"slot 2 is taken, .* --unused"):
        add(urls, two, 2, 2)

    assert add(urls, two, 2, is_unused=True).endswith(".2")


def test_a_slot_is_taken_for_one_database(shards, monkeypatch):
    """Whatever is vouched for: of two additions at once, one would not know of the other."""
    one, two, three = shards(3)
    urls, taken = [make(one, 4)], r"slot 2 was taken for another .*; take another, with --without 2"

    def add_another(*_: object) -> None:
        with pytest.raises(ShardMisconfigured, match=taken):
            add(urls, three, 2, is_unused=True)

    meanwhile(monkeypatch, commands, "join", add_another)
    urls.append(add(urls, two, 2))
    with pytest.raises(ShardMisconfigured, match=taken):
        add(urls[:1], three, 2, is_unused=True)

    assert add(urls, three, 3).endswith(".3")


def test_after_make_a_gap_counts_what_was_given_alone_once_for_each_slot(sync, shards):
    """Since what is given later counts so too, and fewer of that may be forgotten than were given before."""
    (one,) = shards(1)
    alone = sync(one)
    before = alone.reserve("order", 100_000_000)[-1]
    url = make(one, 8)
    moved(one)

    assert sync(url).next_id("order") - before > 8 * 100_000_000


def test_a_move_that_was_planned_before_make_is_not_written_after_it(shards):
    """It would skip too little: numbers of one slot of many are further apart."""
    (one,) = shards(1)
    with closing(Database(one)) as database:
        database.upgrade_schema()
        start = database.snapshot()
        make(one, 8)
        assert not database.write_move(start, waits=True)


def test_make_skips_the_gap_of_a_failover_or_refuses(sync, shards):
    (url,) = shards(1)
    ids = sync(url)
    ids.tags.create("kept", failover_gap="refuse")
    drawn = [*ids.reserve("order", 10), *ids.reserve("kept", 10)]
    moved(url)
    with pytest.raises(errors.ServerReplaced, match="tag 'kept'"):
        make(url, 2)
    with closing(Database(url)) as database:
        assert database.read_row().fleet == ""
    ids.tags.repair("kept", above=20)
    make(url, 2)

    assert ids.tags.get("order").max_value > 1_000_000
    assert ids.reserve("order", 1)[0] > max(drawn)


def test_a_tag_that_may_not_go_on_keeps_no_other_from_its_database(sync, fleet, caplog):
    urls = fleet(2)
    ids = sync(shards=urls)
    ids.tags.create("kept", failover_gap="refuse")
    for _ in urls:
        ids.reserve("kept", 10)
    for url in urls:
        moved(url.partition("?")[0])
    for _ in urls:
        with pytest.raises(errors.ServerReplaced, match="tag 'kept'"):
            ids.reserve("kept", 10)

    assert len({ids.reserve("order", 1)[0] % 2 for _ in range(4)}) == 2
    assert "stopped using" not in caplog.text


@on_files
def test_a_type_of_tickets_that_went_back_keeps_no_other_from_its_database(sync, fleet):
    urls = fleet(2)
    ids = sync(shards=urls)
    for _ in urls:
        ids.ticket("job")
    for url in urls:
        execute(bare(url), "DROP TRIGGER IF EXISTS allocator_guard_fall", "UPDATE allocator_segment SET max_value = 0")
    with pytest.raises(errors.MaxValueWentBack, match="ticket type 'job'"):
        ids.ticket("job")

    assert {ids.ticket("other") % 2 for _ in urls} == {ids.reserve("order", 1)[0] % 2 for _ in urls} == {0, 1}


@on_files
def test_a_database_that_answers_again_while_no_other_can_be_used_is_used(sync, fleet, monkeypatch):
    ids = sync(shards=fleet(2))
    choose, chosen = Rotation.next, []

    def meanwhile_one_works(rotation, now):
        if not chosen:
            for number in range(2):
                rotation.failed(number, errors.SchemaOutOfDate("not yet"), now)
            chosen.append(choose(rotation, now))
            rotation.worked(0, now)
            return chosen[0]
        return choose(rotation, now)

    monkeypatch.setattr(Rotation, "next", meanwhile_one_works)

    assert ids.ticket("job") % 2 == 1


# -- databases that are away


@contextmanager
def through(url: str) -> Iterator[tuple[Wire, str]]:
    """A wire to a database of a fleet, and the URL by which it is reached there."""
    with Wire(bare(url)) as wire:
        yield wire, named(wire.url, url.rpartition("=")[2])


@on_servers
def test_a_database_that_is_lost_is_skipped_and_comes_back(sync, fleet):
    one, two, three = fleet(3)
    with through(two) as (wire, there):
        ids = sync(shards=[one, there, three], timeout=6, step=2, max_step=2)
        ids.ticket("job"), ids.next_id("order")
        wire.refuse()
        drawn = [ids.ticket("job") for _ in range(30)]
        assert {ticket % 3 for ticket in drawn[1:]} == {0, 1}
        numbers = [ids.next_id("order") for _ in range(30)]
        wire.accept()
        draw_until(ids, drawn, lambda: 2 in {ticket % 3 for ticket in drawn[-3:]})
        numbers += [ids.next_id("order") for _ in range(30)]

    assert distinct(drawn)
    assert distinct(numbers) == 60


@on_servers
def test_a_database_that_does_not_answer_costs_a_part_of_the_deadline(sync, fleet):
    one, two = fleet(2)
    with through(one) as (wire, there):
        ids = sync(shards=[there, two], timeout=10)
        ids.ticket("job"), ids.ticket("job")
        wire.deaf = True
        drawn = [ids.ticket("job") for _ in range(10)]

    assert {ticket % 2 for ticket in drawn} == {0}

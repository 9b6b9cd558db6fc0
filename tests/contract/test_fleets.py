"""Several databases as one fleet: how it is made, what does not fit together, and a shard that is lost."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from support.distinct import distinct
from support.faults.wire import Wire
from support.servers.administrator import execute
from support.servers.databases import with_schema
from support.servers.fleets import MYSQLS, copy_row, draw_until, grow, growing, on_one_of_each, on_servers, once

from allocator import Allocator
from allocator.database.store import Database
from allocator.database.verbs import shard_row
from allocator.errors import (
    DatabaseUnavailable,
    Exhausted,
    InvalidDatabase,
    InvalidSetting,
    ShardMisconfigured,
    UnknownTag,
)
from allocator.rules.fleet_consistency import Member, Shard
from allocator.schemes.ticket import ShardNumbering
from allocator.service.console.latest import read_fleet
from allocator.service.settings import ServeSettings


@pytest.mark.statements
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

    assert distinct(drawn) == 36
    with growing(urls) as growth:
        assert [1, 2, 3] == [found.row.numbering.offset for found in growth.shards() if found.row]


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_database_that_becomes_a_shard_while_it_is_looked_at_is_one(fresh, monkeypatch):
    """Its row said that it was alone, and then another process drew: not from it alone."""
    with closing(Database(fresh)) as database:
        members = tuple(Member(f"key{offset}", offset, f"url{offset}") for offset in (1, 2))
        fleet = Shard("main", "key1", True, 1, ShardNumbering(1, 2), 2, members)
        is_used = shard_row.has_ids

        def late(connection, dialect):
            monkeypatch.setattr(shard_row, "has_ids", is_used)
            shard_row.add(connection, dialect, fleet, database.address.shown)
            return True

        monkeypatch.setattr(shard_row, "has_ids", late)
        row = database.run(shard_row.fetch_member)

    assert row is not None
    assert not row.is_alone


@pytest.mark.statements
@once
def test_each_shard_serves_its_remainder(face, shards):
    ids = face(shards=shards(3), step=5, max_step=5)
    drawn = [ids.next_id("order") for _ in range(45)]
    block = ids.reserve("order", 4)

    assert distinct(drawn) == 45
    assert {number % 3 for number in drawn} == {0, 1, 2}
    assert set(drawn) <= set(range(1, 120))
    assert (block.step, len(block)) == (3, 4)
    assert distinct([*block, *drawn]) == 49


@once
@on_one_of_each
def test_nodes_and_workers_are_numbered_by_the_first_shard_alone(face, shards):
    urls = shards(2)
    together, alone = face(shards=urls[::-1]), face(urls[1])
    together.ticket("job")
    for ids in (together, face(shards=urls), face(urls[1])):
        assert ids.meteor() > 0
        assert ids.snowflake() > 0
    together.close()
    first = face(urls[0])
    for call in (first.meteor, first.snowflake):
        with pytest.raises(ShardMisconfigured, match="is shard 2 of a fleet, and nodes and workers are numbered by"):
            call()
    assert alone.meteor() > 0


@pytest.mark.parametrize("fleet_kind", ["sqlite"], indirect=True)
def test_the_console_reads_nodes_and_workers_from_the_first_shard_whichever_url_comes_first(shards):
    first, second, stranger = shards(3)
    with Allocator(shards=[first, second]) as ids, ids.worker("billing"):
        ids.ticket("job")
        ids.meteor()
        ids.snowflake()
        for urls in ([first, second], [second, first], [second], [stranger, second, first]):
            fleet = read_fleet(ServeSettings(tuple(urls)))
            assert (len(fleet.nodes), len(fleet.spaces)) == (1, 2), urls


@once
def test_a_limit_is_kept_and_reached_by_every_shard(face, shards):
    ids = face(shards=shards(2), step=4, max_step=4, limit=21)
    drawn = []
    with pytest.raises(Exhausted):
        while True:
            drawn.append(ids.next_id("order"))

    assert sorted(drawn) == list(range(1, 21))


@once
@on_one_of_each
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


@on_servers
@once
def test_a_shard_that_is_lost_is_skipped_and_comes_back(face, shards):
    urls = shards(3)
    with Wire(urls[1]) as wire:
        ids = face(shards=[urls[0], wire.url, urls[2]], timeout=6, step=2, max_step=2)
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
@once
def test_a_lead_that_was_away_at_the_start_is_looked_for_again(face, shards):
    """Also by a process that draws nothing of the other shards."""
    urls = shards(2)
    with Wire(urls[0]) as wire:
        face(shards=[wire.url, urls[1]]).ticket("job")
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
@once
def test_a_shard_that_does_not_answer_costs_a_part_of_the_deadline(face, shards):
    urls = shards(2)
    with Wire(urls[0]) as wire:
        ids = face(shards=[wire.url, urls[1]], timeout=10)
        ids.ticket("job"), ids.ticket("job")
        wire.deaf = True
        drawn = [ids.ticket("job") for _ in range(10)]

    assert {ticket % 2 for ticket in drawn} == {0}


@on_servers
def test_when_all_are_down_it_says_so_within_the_deadline(face, shards):
    urls = shards(2)
    with Wire(urls[0]) as one, Wire(urls[1]) as two:
        ids = face(shards=[one.url, two.url], timeout=1)
        while (first := draw_once_up(ids)) % 2 == 0:  # of the other shard, where this one was late
            pass
        one.refuse(), two.refuse()
        with pytest.raises(DatabaseUnavailable, match="no shard can be used|no shard answered within 1 seconds"):
            ids.ticket("job")
        one.accept()
        assert draw_once_up(ids) > first


def draw_once_up(ids, seconds: float = 20.0) -> int:
    end = time.monotonic() + seconds
    while True:
        try:
            return ids.ticket("job")
        except DatabaseUnavailable:
            assert time.monotonic() < end


@once
@on_one_of_each
def test_shards_that_contradict_each_other_are_refused(face, shards):
    urls = shards(2)
    for mistake, sentence in (
        ("UPDATE allocator_shard SET shard_offset = 1", "says shard 1 of 2, but lists the shards"),
        ("UPDATE allocator_shard SET shard_step = 0", "step must be 1 to 1000, got 0"),
        ("UPDATE allocator_shard SET shard_offset = 3", "offset must be 1 to 2, got 3"),
        ("UPDATE allocator_shard SET shard_step = 5", "says shard 2 of 5, but lists"),
        ("UPDATE allocator_shard SET fleet = 'other'", "is a shard of the fleet 'other', not of 'main'"),
        ("UPDATE allocator_shard SET generation = 7", "one is of another fleet or was restored"),
        ("DELETE FROM allocator_shard", "has no row of allocator_shard, unlike the other shards"),
    ):
        assert face(shards=urls).ticket("job") > 0, f"sound before {mistake}"
        execute(urls[1], mistake)
        for _ in range(2):
            with pytest.raises(ShardMisconfigured, match=sentence):
                face(shards=urls).ticket("job")
        execute(urls[1], "UPDATE allocator_shard SET shard_offset = 2, shard_step = 2, fleet = 'main', generation = 1")


@once
@pytest.mark.parametrize("fleet_kind", ["sqlite", "postgres"], indirect=True)
def test_a_shard_alone_administers_the_tags_of_all(face, shards):
    urls = shards(2)
    together = face(shards=urls)
    together.ticket("job")
    alone = face(urls[0])
    alone.tags.create("order", start_after=1_000_000)

    assert together.next_id("order") > 1_000_000
    assert together.next_id("order") > 1_000_000
    alone.tags.set("order", start_after=5_000_000)
    assert face(urls[1]).next_id("order") > 5_000_000


@once
@on_one_of_each
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
        Opening([one, two], None).open()
    monkeypatch.undo()
    with pytest.raises((DatabaseUnavailable, ShardMisconfigured), match="open it once with exactly these shards|lost"):
        face([urls[0], urls[1]][written[0]]).ticket("job")

    assert {face(shards=urls).ticket("job")} == {1}


@once
@on_one_of_each
@pytest.mark.parametrize("use", ["tag", "ticket"])
def test_a_database_that_is_used_alone_while_a_fleet_is_made_is_none_of_it(face, shards, monkeypatch, use):
    """Between the look at it and its row: what it gave has no remainder, and the fleet must not begin."""
    from allocator.fleet.bootstrap import Opening

    urls = shards(2)
    alone, write, drawn, disturbs = face(urls[1]), Opening._write, [], [True]

    def disturbed(self, one, members, revision):
        if len(members) > 1 and self._all.index(one) == 1 and disturbs:
            disturbs.pop()  # before it draws: a write that was too late is tried again beside it
            drawn.append(alone.next_id("order") if use == "tag" else alone.ticket("order"))
        write(self, one, members, revision)

    monkeypatch.setattr(Opening, "_write", disturbed)
    together = face(shards=urls, timeout=2)
    for _ in range(2):
        with pytest.raises((ShardMisconfigured, DatabaseUnavailable)):
            drawn += [together.ticket("order"), together.next_id("order")]
    drawn += [alone.next_id("order") if use == "tag" else alone.ticket("order") for _ in range(5)]

    assert distinct(drawn) == 6


@once
@on_one_of_each
def test_a_process_that_knew_a_database_alone_follows_the_fleet_that_is_made_of_it(face, shards):
    """An upgrade of the schema writes a row for a database of its own; a fleet may be made of such ones."""
    urls = shards(2)
    alone = [Allocator(with_schema(url)) for url in urls]
    for ids in alone:
        ids._backend.open()
    together = face(shards=urls)
    tickets = [together.ticket("job") for _ in range(4)]
    for ids in alone:
        tickets += [ids.ticket("job") for _ in range(4)]
        ids.close()

    assert distinct(tickets) == 12


@once
@on_one_of_each
def test_a_shard_that_lost_its_row_is_not_begun_anew(face, shards):
    urls = shards(2)
    face(shards=urls).ticket("job")
    execute(urls[0], "DELETE FROM allocator_shard")
    with growing(urls[:1]) as growth, pytest.raises(ShardMisconfigured, match="its row of allocator_shard is lost"):
        growth.begin()
    with pytest.raises(ShardMisconfigured, match="its row of allocator_shard is lost"):
        face(urls[0]).ticket("job")
    with pytest.raises(ShardMisconfigured, match="If it was a shard, its row is lost: do not use it"):
        face(shards=urls).ticket("job")


@once
@pytest.mark.parametrize("fleet_kind", ["sqlite"], indirect=True)
def test_shards_may_have_other_names_here_than_where_they_were_made(face, shards, tmp_path):
    """As through a tunnel, or by an alias of the host."""
    urls = shards(2)
    face(shards=urls).ticket("job")
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
            face(shards=twice).ticket("job")
    face(url).ticket("job")
    with pytest.raises(ShardMisconfigured, match="the same database under two URLs, or one is a copy"):
        face(shards=[url, other]).ticket("job")


@once
@on_one_of_each
def test_a_copied_database_is_refused(face, shards):
    urls = shards(2)
    face(urls[0]).ticket("job")
    copy_row(urls[0], urls[1])
    execute(urls[1], "INSERT INTO allocator_ticket (type) VALUES ('job')")
    with pytest.raises(ShardMisconfigured, match="the same database under two URLs, or one is a copy"):
        face(shards=urls).ticket("job")


@once
@on_one_of_each
def test_a_database_that_was_used_cannot_be_part_of_a_new_fleet(face, shards):
    urls = shards(2)
    face(urls[1]).next_id("order")
    with pytest.raises(ShardMisconfigured, match="has given ids before, and the others have not"):
        face(shards=urls).ticket("job")
    face(urls[0]).ticket("job")
    with pytest.raises(ShardMisconfigured, match="has given ids of its own; a shard that is added must be empty"):
        grow(urls[:1], urls[1])


@once
@on_one_of_each
def test_nodes_and_leases_of_a_database_are_not_given_again_by_the_lead_of_a_fleet(face, shards):
    """Control: without the refusal both are the first node, and lease any worker beside the other."""
    for use in ("meteor", "snowflake"):
        urls = shards(2)
        getattr(face(urls[1]), use)()
        with pytest.raises(ShardMisconfigured, match="has given ids before, and the others have not"):
            getattr(face(shards=urls), use)()
        face(urls[0]).ticket("job")
        with pytest.raises(ShardMisconfigured, match="has given ids of its own; a shard that is added must be empty"):
            grow(urls[:1], urls[1])


@once
def test_odd_settings_are_refused(face, tmp_path):
    url = f"sqlite:///{tmp_path}/ids.db"
    for wrong, sentence in (
        (dict(shards=[]), "1 to 1000 databases, got 0"),
        (dict(database=url, shards=[url]), "pass either database or shards, not both"),
        (dict(database=url, fleet="a b"), "the name of a fleet must be spelled like a tag"),
    ):
        with pytest.raises(InvalidSetting, match=sentence):
            face(wrong.pop("database", None), **wrong)


@once
def test_another_fleet_than_asked_for_is_refused(face, shards):
    (url,) = shards(1)
    face(url, fleet="ids").ticket("job")

    with pytest.raises(ShardMisconfigured, match="is a shard of the fleet 'ids', not of 'other'"):
        face(url, fleet="other").ticket("job")
    assert face(url).ticket("job") == 2


@once
@pytest.mark.parametrize("fleet_kind", MYSQLS, indirect=True)
def test_a_server_that_is_another_one_is_left_alone_until_it_is_trusted(face, shards, caplog):
    urls = shards(2)
    ids = face(shards=urls)
    drawn = [ids.ticket("job") for _ in range(4)]
    execute(urls[0], "UPDATE allocator_shard SET server_run = 'elsewhere'")
    drawn += [ids.ticket("job") for _ in range(4)]
    assert {ticket % 2 for ticket in drawn[4:]} == {0}
    assert "is now on another server, or was restored: it may lack ids" in caplog.text
    assert "allocator shards trust" in caplog.text
    with growing(urls) as growth, closing(Database(urls[0])) as database:
        growth.trust(database, 50)
    draw_until(ids, drawn, lambda: drawn[-1] % 2 == 1)

    assert distinct(drawn)
    assert drawn[-1] > 50


@once
@on_one_of_each
def test_a_shard_that_cannot_be_reached_at_the_start_is_said_and_used_when_it_is_back(face, shards, caplog):
    urls = shards(3)
    face(shards=urls).ticket("job")
    execute(urls[1], "ALTER TABLE allocator_shard RENAME TO away")
    ids = face(shards=urls)
    drawn = [ids.ticket("job") for _ in range(4)]
    assert {ticket % 3 for ticket in drawn} == {0, 1}
    assert "stopped using shard" in caplog.text
    execute(urls[1], "ALTER TABLE away RENAME TO allocator_shard")
    draw_until(ids, drawn, lambda: drawn[-1] % 3 == 2)


def test_tags_are_not_changed_on_a_part_of_the_shards(face, shards, monkeypatch):
    """As where the driver of one is not installed: ids go on, and administration is refused."""
    one, two = shards(2)
    face(shards=[one, two]).ticket("a")

    def unusable(known, url):
        raise InvalidDatabase(f"{url} needs a driver, which is not installed")

    monkeypatch.setattr("allocator.fleet.shard_rotation.sibling", unusable)
    ids = face(shards=[one])
    alone = face(one)
    assert ids.ticket("a") > 0
    for found in (ids, alone):
        for call in (found.tags.list, lambda found=found: found.tags.create("order", start_after=5000)):
            with pytest.raises(InvalidDatabase, match="needs a driver"):
                call()

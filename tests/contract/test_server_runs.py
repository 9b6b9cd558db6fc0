"""Rule 8: where a row was written on another server run, which may have forgotten claims."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from struct import pack_into
from time import monotonic, sleep, time, time_ns
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from sqlalchemy import create_engine, make_url, text
from support.distinct import distinct
from support.servers.administrator import execute, values
from support.servers.fleets import MYSQLS

from allocator import Allocator
from allocator.database.connection import GUARD_RESTARTS
from allocator.database.postgresql.dialect import PostgreSQL
from allocator.database.sqlite import file as sqlite_file
from allocator.database.sqlite import fork_gate
from allocator.database.store import Database
from allocator.database.verbs import claims, failover_row, node_and_snowflake_rows, segments, servers
from allocator.errors import (
    DatabaseUnavailable,
    FleetGrowing,
    InvalidSetting,
    MaxValueWentBack,
    ServerReplaced,
    ShardMisconfigured,
    TagExists,
    UnknownTag,
)
from allocator.fleet.grow import Growth
from allocator.fleet.tag_administration import last_claimed
from allocator.generators.worker_numbers import read_clocks
from allocator.rules.failover import NODES_SKIPPED, SECONDS, TICKETS_SKIPPED, Crossing, Skipped
from allocator.schemes.meteor import METEOR
from allocator.schemes.shared.residues import ALL
from allocator.schemes.shared.retry_pace import RETRY_PAUSE
from allocator.schemes.snowflake import LeaseClaim
from allocator.schemes.tag import Tag

ONLY_SQLITE = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
LEAST = 1 << 22
FORGET = "UPDATE allocator_segment SET server_run = 'elsewhere', max_value = max_value - {0} WHERE tag = '{1}'"
MOVED = "UPDATE allocator_failover SET server_run = 'elsewhere'"


def other(url: str) -> Allocator:
    """Another process, which has seen nothing."""
    return Allocator(url, step=100, max_step=100)


# -- the gap


@pytest.mark.statements
def test_on_another_run_a_claim_skips_a_gap(sync, fresh, tag, caplog):
    before = sync(fresh).reserve(tag, 100)
    execute(fresh, FORGET.format(100, tag))
    ids = sync(fresh, step=100, max_step=100)
    after = ids.next_ids(tag, 200)

    assert after == list(range(after[0], after[0] + 200))
    assert after[0] > LEAST
    assert distinct([*before, *after]) == 300
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len([line for line in warnings if "skipped" in line and "elsewhere" in line]) == 1


def test_a_gap_counts_neither_as_given_nor_as_a_claim(sync, fresh, tag):
    ids = sync(fresh)
    ids.reserve(tag, 100)
    before = ids.tags.get(tag)
    execute(fresh, FORGET.format(0, tag))
    ids.reserve(tag, 50)
    after = ids.tags.get(tag)

    assert before.skipped == 0
    assert after.max_value - after.skipped == 150
    assert 0 < before.claimed_at <= after.claimed_at <= 1000 * time() + 60_000
    assert after.claimed_at > 1000 * time() - 60_000


def test_a_start_above_other_ids_is_not_given(sync, fresh, tag):
    ids = sync(fresh)
    assert ids.tags.create(tag, start_after=5000).max_value == 5000
    ids.reserve(tag, 100)
    ids.tags.set(tag, start_after=9000)
    ids.reserve(tag, 100)
    row = ids.tags.get(tag)

    assert (row.max_value, row.skipped) == (9100, 8900)


def test_control_without_a_gap_the_ids_come_again(sync, fresh, tag):
    before = sync(fresh, failover_gap=0).reserve(tag, 100)
    execute(fresh, FORGET.format(100, tag))

    assert sync(fresh).reserve(tag, 100) == before


def test_a_process_that_runs_goes_on_over_a_failover(sync, fresh, tag):
    """What it has seen is more than the row has, and less than what the row is raised to."""
    ids = sync(fresh, step=100, max_step=100)
    before = ids.next_ids(tag, 150)
    execute(fresh, FORGET.format(100, tag))
    after = [ids.next_id(tag) for _ in range(300)]

    assert distinct([*before, *after]) == 450
    assert after[-1] > LEAST


def test_without_a_gap_what_was_seen_still_stops_the_tag(sync, fresh, tag):
    ids = sync(fresh, step=100, max_step=100, failover_gap=0)
    ids.next_ids(tag, 100)
    execute(fresh, FORGET.format(100, tag))

    with pytest.raises(MaxValueWentBack, match="tags repair"):
        [ids.next_id(tag) for _ in range(300)]


def test_several_processes_that_cross_at_once_skip_once(fresh, tag):
    with other(fresh) as ids:
        ids.reserve(tag, 100)
    execute(fresh, FORGET.format(0, tag))
    several = [other(fresh) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        blocks = list(pool.map(lambda ids: ids.reserve(tag, 10), several))
    for ids in several:
        ids.close()

    assert distinct(one for block in blocks for one in block) == 60
    assert max(block[-1] for block in blocks) - min(block[0] for block in blocks) == 59


@pytest.mark.statements
def test_a_crossing_holds_on_the_server_that_was_looked_at_and_above_what_was_seen(fresh, tag):
    """A proxy may have led us to another one; and a gap does not make good for ids that were seen."""
    with other(fresh) as ids:
        ids.reserve(tag, 100)
    execute(fresh, FORGET.format(0, tag))
    here = look(fresh, "elsewhere")
    with closing(Database(fresh)) as database:
        claim = claims.claim

        assert database.run(claim, tag, 10, ALL, 0, Crossing(here._replace(server="another"), 50)) is None
        assert database.run(claim, tag, 10, ALL, 151, Crossing(here, 50)) is None
        assert database.run(claim, tag, 10, ALL, 150, Crossing(here, 50)) == 160


def test_a_row_that_was_never_written_by_a_claim_is_ours(sync, url, tag):
    """As of a database that was upgraded."""
    ids = sync(url)
    epoch = ids.tags.create(tag) and ids.tags.get(tag).server_run
    execute(url, f"UPDATE allocator_segment SET server_run = '' WHERE tag = '{tag}'")

    assert ids.reserve(tag, 10) == range(1, 11)
    assert ids.tags.get(tag).server_run == epoch != ""


def test_tags_that_are_claimed_together_cross_one_by_one(sync, fresh, tag):
    ids = sync(fresh)
    tags = [f"{tag}-{number}" for number in range(8)]
    for name in tags:
        ids.reserve(name, 10)
        execute(fresh, FORGET.format(0, name))
    with other(fresh) as another, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(another.next_id, tags))

    assert min(found) > LEAST


def test_a_shard_skips_ids_of_its_own(shards):
    urls = shards(2)
    with Allocator(shards=urls, step=10, max_step=10) as ids:
        before = ids.next_ids("order", 40)
    for url in urls:
        execute(url, FORGET.format(20, "order"))
    with Allocator(shards=urls, step=10, max_step=10) as ids:
        after = ids.next_ids("order", 40)

    assert distinct([*before, *after]) == 80
    assert min(after) > 2 * LEAST
    assert {one % 2 for one in after} == {0, 1}


# -- refused, and repaired


def test_a_tag_that_refuses_waits_to_be_repaired(sync, fresh, tag):
    ids = sync(fresh, failover_gap="refuse")
    ids.reserve(tag, 100)
    execute(fresh, FORGET.format(50, tag))
    with pytest.raises(ServerReplaced, match=f"server changed .once elsewhere.*allocator tags repair {tag}"):
        ids.next_id(tag)
    with other(fresh) as another:
        with pytest.raises(ServerReplaced):
            another.reserve(tag, 1)
        assert another.tags.repair(tag, above=5000).max_value == 5000

    sleep(RETRY_PAUSE)  # the pace of tries is one a second
    assert ids.reserve(tag, 10) == range(5001, 5011)


def test_repair_skips_a_gap_unless_it_is_said_where_to_go_on(sync, url, tag):
    ids = sync(url, failover_gap=5000)
    ids.reserve(tag, 10)

    assert (first := ids.tags.repair(tag).max_value) >= 5010
    assert ids.tags.repair(tag).max_value >= first + 5000
    assert ids.tags.repair(tag, above=10**12).max_value == 10**12
    assert ids.reserve(tag, 1)[0] == 10**12 + 1
    with pytest.raises(InvalidSetting, match="above must be 1000000000001 to"):
        ids.tags.repair(tag, above=10)
    with pytest.raises(UnknownTag):
        ids.tags.repair(f"{tag}-unknown")


@ONLY_SQLITE
def test_a_tag_whose_rest_is_too_small_for_a_gap_refuses(sync, fresh, tag):
    ids = sync(fresh, limit=5000)
    ids.reserve(tag, 1)
    execute(fresh, FORGET.format(0, tag))

    with pytest.raises(ServerReplaced, match="only 4999 ids are left below its limit, too few to skip"):
        ids.next_id(tag)
    assert ids.tags.repair(tag, above=2000).max_value == 2000
    assert sync(fresh).next_id(tag) == 2001


def test_the_gap_is_a_setting_of_the_tag(sync, place, tag):
    ids = sync(place, failover_gap=77)
    ids.next_id(tag)
    assert ids.tags.get(tag).failover_gap == 77
    assert ids.tags.set(tag, failover_gap="refuse").failover_gap == "refuse"
    assert ids.tags.set(tag, step=5).failover_gap == "refuse"
    assert ids.tags.set(tag, failover_gap=10**12).failover_gap == 10**12
    assert ids.tags.set(tag, failover_gap="auto").failover_gap == "auto"
    assert ids.tags.create(f"{tag}-made", failover_gap=5).failover_gap == 5
    assert ids.tags.create(f"{tag}-like-ours").failover_gap == 77
    assert sync(place).tags.create(f"{tag}-usual").failover_gap == "auto"
    for wrong in (-1, "most"):
        with pytest.raises(InvalidSetting, match="failover_gap must be"):
            ids.tags.set(tag, failover_gap=wrong)


def test_what_a_tag_says_of_itself_can_be_set_again(sync, place, tag):
    ids = sync(place)
    ids.next_id(tag)
    for gap in ("auto", "refuse", 0, 5000):
        made = ids.tags.set(tag, failover_gap=gap)
        said = {"step": made.step, "max_step": made.max_step, "limit": made.limit, "start_after": made.max_value}
        assert ids.tags.set(tag, failover_gap=made.failover_gap, **said) == made, gap
        assert [one.failover_gap for one in ids.tags.list() if one.name == tag] == [gap]


# -- what else may be forgotten


@pytest.mark.statements
def test_nodes_that_may_be_forgotten_are_skipped(sync, fresh):
    first = METEOR.unpack(sync(fresh).meteor())["node"]
    execute(fresh, MOVED)
    second = METEOR.unpack(sync(fresh).meteor())["node"]
    third = METEOR.unpack(sync(fresh).meteor())["node"]

    assert first + NODES_SKIPPED < second <= first + NODES_SKIPPED + SECONDS
    assert third == second + 1


def test_processes_that_see_the_move_at_one_moment_skip_nodes_once(fresh, monkeypatch):
    """Else those of a second failover, who leave them out once, could meet those of the first, who did so twice."""
    monkeypatch.setattr("allocator.database.registry.skipped", lambda at: Skipped(300, 0))
    with closing(Database(fresh)) as one, closing(Database(fresh)) as another:
        first, others, run = one.register_node(), [another], one.run
        execute(fresh, MOVED)

        def meanwhile(verb, *said) -> object:
            while verb is failover_row.move and others:
                others.pop().failover()
            return run(verb, *said)

        monkeypatch.setattr(one, "run", meanwhile)

        assert [one.register_node(), another.register_node()] == [first + 301, first + 302]


def test_a_node_that_was_registered_while_the_database_moved_is_left(fresh, monkeypatch):
    with closing(Database(fresh)) as database:
        register, moves = node_and_snowflake_rows.register, [MOVED]

        def moving(connection, *said) -> int:
            number = register(connection, *said)
            if moves:
                connection.exec_driver_sql(moves.pop())
            return number

        monkeypatch.setattr(node_and_snowflake_rows, "register", moving)

        assert database.register_node() > NODES_SKIPPED


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_node_below_those_of_the_server_that_was_read_is_left_too(fresh, monkeypatch):
    with closing(Database(fresh)) as database:
        database.register_node()
        register = node_and_snowflake_rows.register
        forgetting = ["DELETE FROM allocator_node", "ALTER TABLE allocator_node ALTER COLUMN id RESTART", MOVED]

        def moving(connection, *said) -> int:
            while forgetting:
                connection.exec_driver_sql(forgetting.pop(0))
            return register(connection, *said)

        monkeypatch.setattr(node_and_snowflake_rows, "register", moving)

        assert database.register_node() > NODES_SKIPPED


@pytest.mark.statements
def test_after_a_failover_a_new_process_has_no_snowflake_for_a_minute_and_others_go_on(sync, fresh):
    before = sync(fresh)
    ids = [before.snowflake()]
    execute(fresh, MOVED)

    with pytest.raises(DatabaseUnavailable, match=r"numbers are leased again in [56]\d s, and renewed meanwhile"):
        sync(fresh, timeout=1).snowflake()
    renew_now(before)
    ids += [before.snowflake() for _ in range(10_000)]
    assert distinct(ids)
    assert not before._snowflake._core.pace.failing


def renew_now(ids) -> None:
    """As if a third of the lease had passed."""
    core = ids._snowflake._core
    claim = core.pace.begin(LeaseClaim(core.lease, read_clocks()), monotonic())
    ids._snowflake._end(claim, ids._background.idle, False, ids._background.submit(ids._snowflake._work, claim))


@pytest.mark.statements
def test_a_clock_that_is_years_ahead_delays_no_lease_for_years(sync, fresh, monkeypatch):
    """A process that only makes a tag may be the first to notice a failover."""
    sync(fresh).next_id("before")
    execute(fresh, MOVED)
    monkeypatch.setattr("allocator.database.registry.time_ns", lambda: time_ns() + 10 * 365 * 86_400 * 10**9)
    sync(fresh).next_id("order")
    monkeypatch.undo()

    with pytest.raises(DatabaseUnavailable, match=r"numbers are leased again in (19|20)\d s"):
        sync(fresh).worker("billing").__enter__()


def test_a_tag_that_is_made_by_its_first_use_may_be_one_that_was_forgotten(sync, fresh):
    assert sync(fresh).next_id("before") == 1
    execute(fresh, MOVED)
    ids = sync(fresh)

    assert ids.next_id("after") == sync(fresh).next_id("later") > LEAST
    assert ids.tags.create("made").max_value + 1 == ids.next_id("made") > LEAST
    ids.tags.create("said", start_after=0)
    assert ids.next_id("said") == 1


@pytest.mark.statements
def test_a_tag_is_made_only_where_nothing_has_moved_since_the_look(fresh):
    """The state that was read and the server that had it are fenced, in the statement that makes the row."""
    with closing(Database(fresh)) as database:
        seen = database.failover()
        execute(fresh, "UPDATE allocator_failover SET server_run = 'before'")
        for state in (seen, seen._replace(server_run="before")):
            assert not database.run(segments.create, Tag("order"), state), state
        noted = database.failover()
        assert not database.run(segments.create, Tag("order"), noted._replace(first_value=0))
        assert database.run(segments.create, Tag("order"), noted)
        assert not database.run(segments.create, Tag("order"), noted)


@ONLY_SQLITE
def test_a_tag_whose_making_meets_a_failover_begins_above_it_and_a_start_that_was_said_is_refused(fresh, monkeypatch):
    create, moves = segments.create, [MOVED]

    def after_a_failover(*given):
        if moves:
            execute(fresh, moves.pop())
        return create(*given)

    monkeypatch.setattr(segments, "create", after_a_failover)
    with closing(Database(fresh)) as database:
        database.start()
        assert database.open_segment(Tag("order"), create=True).max_value > LEAST
        moves.append(MOVED)
        with pytest.raises(DatabaseUnavailable, match="tag 'bill' was not made; it may have given ids"):
            database.create_tag(Tag("bill"), has_start=True)
        assert database.create_tag(Tag("bill"), has_start=True)
        assert database.fetch_tag("bill").max_value == 0


@ONLY_SQLITE
def test_a_tag_with_a_low_limit_bears_failovers_close_to_it(sync, fresh, tag):
    with Allocator(fresh, limit=100_000) as ids:
        ids.reserve(tag, 80_000)
    execute(fresh, FORGET.format(1_000, tag), MOVED)

    assert 80_000 < sync(fresh).next_id(tag) < 90_000
    assert 1_000_000 // 512 < sync(fresh, limit=1_000_000).next_id("new") < 10_000


@pytest.mark.statements
def test_of_two_that_write_the_row_of_a_failover_neither_is_lost(fresh, monkeypatch):
    """A growth raises the beginning of new tags while another process notes a failover."""
    with closing(Database(fresh)) as database:
        database.failover()
        move, later = failover_row.move, database.failover()._replace(moved_at_ms=7)

        def raced(connection, dialect, before, fresh):
            monkeypatch.setattr(failover_row, "move", move)
            move(connection, dialect, before, later)
            return move(connection, dialect, before, fresh)

        monkeypatch.setattr(failover_row, "move", raced)
        database.begin_above(1000)

        assert database.failover() == later._replace(first_value=1000)


def test_what_an_operator_says_was_restored_skips_ids_of_every_kind(sync, fresh, tag):
    ids = sync(fresh)
    before = (ids.next_id(tag), ids.ticket("job"), METEOR.unpack(ids.meteor())["node"])
    for _ in range(2):
        subprocess.run([sys.executable, "-m", "allocator", "db", "mark-restored", "--url", fresh], check=True)
    ids = sync(fresh)
    skipped = (ids.next_id(tag), ids.ticket("job"), METEOR.unpack(ids.meteor())["node"])

    assert before[:2] == (1, 1)
    assert LEAST < skipped[0] < 3 * LEAST
    assert TICKETS_SKIPPED < skipped[1] < 3 * LEAST
    assert before[2] + NODES_SKIPPED < skipped[2]
    assert ids.next_id(tag) == skipped[0] + 1


@pytest.mark.parametrize("kind", ["postgres"])
def test_on_a_logical_replica_numbers_go_on_above_the_rows(sync, fresh):
    """It has the rows, and not what their sequences came to."""
    set_nodes(fresh, 200_000)
    ids = sync(fresh)
    node = METEOR.unpack(ids.meteor())["node"]
    set_nodes(fresh, 1)
    execute(fresh, MOVED)
    ids = sync(fresh)

    assert METEOR.unpack(ids.meteor())["node"] > node + NODES_SKIPPED


def set_nodes(url, number):
    execute(url, f"SELECT setval('allocator_node_id_seq', {number})")


def test_what_is_forgotten_first_is_not_forgotten_with_the_row_that_tells(fresh):
    """Before anything was drawn: the row is made with the tables."""
    execute(fresh, MOVED)
    with other(fresh) as ids:
        assert METEOR.unpack(ids.meteor())["node"] > NODES_SKIPPED


@pytest.mark.statements
def test_rows_that_name_no_run_are_written_by_the_upgrade(fresh, tag):
    with other(fresh) as ids:
        ids.reserve(tag, 1)
        here = ids.tags.get(tag).server_run
        execute(fresh, "UPDATE allocator_segment SET server_run = ''")
        with closing(Database(fresh, timeout=60)) as database:
            database.upgrade_schema()

        assert ids.tags.get(tag).server_run == here != ""


@ONLY_SQLITE
def test_repair_goes_on_where_one_tag_does_not_fit(fresh):
    with other(fresh) as ids:
        for name, limit in (("a", 50), ("b", 2**53 - 1)):
            ids.tags.create(name, limit=limit)
    done = subprocess.run(
        [sys.executable, "-m", "allocator", "tags", "repair", "--all", "--url", fresh],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "tag 'a' has only 50 ids left" in done.stderr
    with other(fresh) as ids:
        assert ids.tags.get("b").max_value > 0


def test_a_fleet_that_grows_after_a_restore_skips_what_was_forgotten(shards):
    old, new = shards(2)
    with Allocator(old) as ids:
        drawn = ids.reserve("order", 15)
    execute(old, FORGET.format(10, "order"))
    with Allocator(old) as ids:
        ids.ticket("job")  # so that the first one is a shard
    with closing(Database(old)) as first, closing(Database(new)) as second:
        growth = Growth([first])
        growth.add(second)
        growth.grow()
    with Allocator(shards=[old, new], step=10, max_step=10) as ids:
        assert distinct([*drawn, *ids.next_ids("order", 100)]) == 115


@pytest.mark.parametrize("fleet_kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("act", ["create", "create after 5", "set", "grow"])
def test_a_shard_that_forgot_a_young_tag_begins_it_above_all_ids_of_it(shards, act):
    """Whatever makes its row again, though another shard knows a lower id of the tag."""
    *urls, new = shards(3)
    with Allocator(shards=urls) as ids:
        drawn = [*ids.reserve("order", 10_000), *ids.reserve("order", 10)]
        assert drawn[0] % 2 == 0  # of the second one
    execute(urls[1], "DELETE FROM allocator_segment", MOVED)
    with closing(Database(urls[0])) as first, closing(Database(urls[1])) as second, Allocator(shards=urls) as ids:
        growth = Growth([first, second])
        growth.trust(second)
        if act == "set":
            ids.tags.set("order", step=500)
        elif act == "grow":
            growth.add(Database(new))
            growth.grow(headroom=10)
            urls.append(new)
        else:
            with pytest.raises(TagExists):
                ids.tags.create("order", start_after=5 if act.endswith("5") else None)
    with Allocator(shards=urls) as ids:
        for _ in range(4):
            drawn += ids.reserve("order", 1000)

    assert distinct(drawn) == 14_010


@pytest.mark.parametrize("fleet_kind", ["sqlite"], indirect=True)
def test_a_limit_that_leaves_a_shard_no_ids_after_a_failover_is_set_on_all(shards):
    urls = shards(2)
    with Allocator(shards=urls) as ids:
        ids.reserve("order", 10)
        ids.reserve("order", 10)
        execute(urls[1], "DELETE FROM allocator_segment", MOVED)

        assert last_claimed(ids.tags.databases(), "order") > LEAST
        assert ids.tags.create("new").max_value == 0  # its first id is of the first shard
        assert ids.tags.set("order", limit=1_000_000).limit == 1_000_000
    for url in urls:
        assert values(url, "SELECT id_limit FROM allocator_segment WHERE tag = 'order'") == [1_000_000]


def restored(url: str, last: int) -> None:
    """As from a dump of when it had given that ticket, on a server whose run alone tells that it is another one."""
    claimed = f"UPDATE allocator_segment SET max_value = {last}, server_run = 'elsewhere' WHERE tag = '.ticket:job'"
    execute(url, claimed, MOVED)
    if make_url(url).get_backend_name() in MYSQLS:
        counter = f"ALTER TABLE allocator_ticket AUTO_INCREMENT = {last + 1}"
        execute(url, f"UPDATE allocator_ticket SET id = {last}", counter)


@pytest.mark.parametrize("is_noted", [True, False], ids=["noted", "trusted at once"])
def test_a_shard_whose_server_run_alone_tells_a_failover_waits_to_be_trusted(shards, is_noted):
    urls = shards(2)
    with Allocator(shards=urls) as ids:
        drawn = [ids.ticket("job") for _ in range(40)]
    restored(urls[1], 2)
    if is_noted:
        for _ in range(2):
            with Allocator(shards=urls) as ids:
                drawn += [ids.ticket("job") for _ in range(20)]
        assert {one % 2 for one in drawn[-20:]} == {1}
    with closing(Database(urls[0])) as first, closing(Database(urls[1])) as second:
        Growth([first, second]).trust(second)
        assert second.failover() == second.failover(second.start())
    for _ in range(2):
        with Allocator(shards=urls) as ids:
            drawn += [ids.ticket("job") for _ in range(4)]

    assert distinct(drawn)
    assert {one % 2 for one in drawn[-4:]} == {0, 1}


@pytest.mark.parametrize("fleet_kind", MYSQLS, indirect=True)
def test_a_process_that_knows_a_shard_stops_its_tickets_too(shards):
    urls = shards(2)
    with Allocator(shards=urls) as ids:
        drawn = [ids.ticket("job") for _ in range(40)]
        ids.reserve("order", 4)
        restored(urls[1], 2)
        with Allocator(shards=urls) as another:
            drawn += [another.ticket("job") for _ in range(20)]
        drawn += [ids.ticket("job") for _ in range(20)]
        assert ids.reserve("order", 4)

    assert distinct(drawn)
    assert {one % 2 for one in drawn[-40:]} == {1}


def test_the_floor_of_a_fleet_that_grows_is_above_tickets_that_were_forgotten(shards):
    old, new = shards(2)
    with Allocator(old) as ids:
        drawn = [ids.ticket("job") for _ in range(300)]
    restored(old, 6)
    with closing(Database(old)) as first, closing(Database(new)) as second:
        growth = Growth([first])
        growth.add(second)
        growth.grow(headroom=10)
    with Allocator(shards=[old, new]) as ids:
        drawn += [ids.ticket("job") for _ in range(300)]

    assert distinct(drawn)


def test_a_fleet_does_not_grow_before_a_shard_that_failed_over_is_trusted(shards):
    *old, new = shards(3)
    with Allocator(shards=old) as ids:
        drawn = [ids.ticket("job") for _ in range(300)]
    restored(old[1], 6)
    with closing(Database(old[0])) as first, closing(Database(old[1])) as second, closing(Database(new)) as third:
        growth = Growth([first, second])
        growth.add(third)
        with pytest.raises(ShardMisconfigured, match="allocator shards trust"):
            growth.grow(headroom=10)
        growth.trust(second, headroom=200)
        growth.grow(headroom=10)
    with Allocator(shards=[*old, new]) as ids:
        drawn += [ids.ticket("job") for _ in range(300)]

    assert distinct(drawn)


@pytest.mark.parametrize("fleet_kind", ["sqlite"], indirect=True)
def test_a_ticket_that_is_not_drawn_blames_no_growth_where_there_is_none(shards, monkeypatch):
    with Allocator(shards=shards(2), timeout=1) as ids:
        assert ids.ticket("job") == 1
        monkeypatch.setattr(Database, "ticket", lambda *given: None)
        with pytest.raises(DatabaseUnavailable, match="drew nothing.*allocator db check") as refused:
            ids.ticket("job")

    assert not isinstance(refused.value, FleetGrowing)


# -- each database's own ways


@pytest.fixture
def file(fresh: str, kind: str) -> Path:
    return Path(make_url(fresh).database or "")


def drawn_by_another(url: str, tag: str, count: int) -> list[int]:
    with other(url) as ids:
        return ids.next_ids(tag, count)


@ONLY_SQLITE
def test_an_older_copy_in_the_place_of_a_file_is_noticed(fresh, file, tag):
    drawn = drawn_by_another(fresh, tag, 100)
    shutil.copyfile(file, f"{file}.old")
    drawn += drawn_by_another(fresh, tag, 100)
    Path(f"{file}.old").replace(file)
    drawn += drawn_by_another(fresh, tag, 100)
    drawn += drawn_by_another(fresh, tag, 100)

    assert distinct(drawn)
    assert drawn[-1] - drawn[-200] < 1000


def on_volume(monkeypatch: pytest.MonkeyPatch, fsid: int) -> None:
    """Let statvfs() tell this of every file system."""
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_fsid=fsid))


EXT4, ANOTHER_EXT4 = 0xED5DFE61172DB1BD, 0x0AA92C0A081511D6
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere statvfs() tells nothing that lasts")


@ON_LINUX
@ONLY_SQLITE
def test_a_copy_with_the_same_inode_on_another_volume_is_noticed(fresh, file, tag, monkeypatch):
    """As each first file of a new volume has it."""
    on_volume(monkeypatch, EXT4)
    drawn = drawn_by_another(fresh, tag, 100)
    with other(fresh) as ids:
        old = [ids.ticket("job") for _ in range(4)]
    shutil.copyfile(file, f"{file}.old")
    drawn += drawn_by_another(fresh, tag, 100)
    with other(fresh) as ids:
        old += [ids.ticket("job") for _ in range(4)]
    shutil.copyfile(f"{file}.old", file)
    on_volume(monkeypatch, ANOTHER_EXT4)
    drawn += drawn_by_another(fresh, tag, 100)
    drawn += drawn_by_another(fresh, tag, 100)
    with other(fresh) as ids:
        new = [ids.ticket("job") for _ in range(4)]

    assert distinct(drawn)
    assert drawn[-1] - drawn[-200] < 1000
    assert distinct([*old, *new])


@ON_LINUX
@ONLY_SQLITE
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(0xFE00, 0x10301, id="the number of a device after a reboot"),
        pytest.param(EXT4, EXT4 & 0xFFFFFFFF, id="musl"),
        pytest.param(0, 0xFE00, id="a network file system"),
    ],
)
def test_a_file_that_stays_skips_nothing(before, after, fresh, tag, monkeypatch):
    on_volume(monkeypatch, before)
    drawn = drawn_by_another(fresh, tag, 100)
    on_volume(monkeypatch, after)

    assert drawn_by_another(fresh, tag, 1)[0] - drawn[-1] < 1000


def born(monkeypatch: pytest.MonkeyPatch, moment: float | None, inode: int = 7) -> None:
    """Let every file have this inode, and a birth in this second; with None the file system tells no birth."""
    stat = os.stat

    def told(folder: int, path: bytes, flags: int, mask: int, answer) -> int:
        pack_into("I", answer, 0, 0 if moment is None else 0x800)
        pack_into("qI", answer, 80, *(0, 0) if moment is None else (int(moment), 5))
        return 0

    def numbered(path, **said):
        found = stat(path, **said)
        is_file = str(path).endswith(".db")
        return SimpleNamespace(st_ino=inode, st_nlink=1, st_mode=found.st_mode) if is_file else found

    monkeypatch.setattr(sqlite_file, "STATX", told)
    monkeypatch.setattr(os, "stat", numbered)


@ON_LINUX
@ONLY_SQLITE
def test_a_copy_that_got_the_inode_of_a_file_that_was_removed_is_noticed(fresh, file, tag, monkeypatch):
    born(monkeypatch, 1000)
    drawn = drawn_by_another(fresh, tag, 100)
    shutil.copyfile(file, f"{file}.old")
    drawn += drawn_by_another(fresh, tag, 100)
    Path(f"{file}.old").replace(file)
    born(monkeypatch, 1001)
    drawn += drawn_by_another(fresh, tag, 100)
    drawn += drawn_by_another(fresh, tag, 100)

    assert distinct(drawn)
    assert drawn[-1] - drawn[-200] < 1000


@ON_LINUX
@ONLY_SQLITE
def test_processes_that_learn_the_birth_of_a_file_take_turns_with_those_that_cannot(fresh, tag, monkeypatch):
    """As in a container with an older C library."""
    born(monkeypatch, 1000)
    drawn = drawn_by_another(fresh, tag, 100)
    for moment in (None, 1000, None):
        born(monkeypatch, moment)
        drawn += drawn_by_another(fresh, tag, 100)

    assert distinct(drawn) == 400
    assert drawn[-1] - drawn[0] < 1000


@ON_LINUX
def test_the_birth_of_a_file_is_what_the_system_tells(tmp_path):
    file = tmp_path / "ids.db"
    file.touch()
    told = subprocess.check_output(["stat", "--format=%W", file], text=True).strip()
    nanoseconds = sqlite_file.run_of_file(str(file)).partition("+")[2]

    assert int(nanoseconds or "0", 16) // 10**9 == int(told)


def serve(file: Path, other: Path) -> None:
    """Another server goes on: its file takes this place, and keeps its inode and its birth."""
    file.rename(f"{file}.then")
    other.rename(file)
    Path(f"{file}.then").rename(other)


NOTED = {
    "claim": lambda database, tag: database.claim_segment(tag.name, 10, {}),
    "repair": lambda database, tag: database.repair_segment(tag, None),
    "delete": lambda database, tag: database.remove_tag(tag),
    "node": lambda database, tag: database.register_node(),
}


@ONLY_SQLITE
@pytest.mark.parametrize("verb", NOTED)
def test_a_server_that_comes_back_gives_nothing_of_what_was_forgotten(verb, fresh, file, tag):
    """Tags that were quiet while another one served are not taken for rows that it wrote."""
    quiet, strict, busy = tags = [f"{tag}-{name}" for name in ("quiet", "strict", "busy")]
    standby = Path(f"{file}.standby")
    with other(fresh) as ids:
        ids.tags.create(strict, failover_gap="refuse")
        before = [one for name in tags for one in ids.next_ids(name, 100)]
    shutil.copyfile(file, standby)
    before += [one for name in tags for one in drawn_by_another(fresh, name, 100)]
    serve(file, standby)
    with closing(Database(fresh)) as database:
        NOTED[verb](database, database.fetch_tag(busy))
    shutil.copyfile(file, standby)  # the old primary is copied anew
    serve(file, standby)

    assert drawn_by_another(fresh, quiet, 100)[0] > max(before) + LEAST
    with other(fresh) as ids, pytest.raises(ServerReplaced):
        ids.next_id(strict)


@pytest.mark.statements
def test_a_failover_marks_the_row_of_every_tag_that_another_run_wrote_or_nobody(sync, fresh, tag):
    """By its comma no server of a list finds itself there again, and no mark outgrows its column."""
    ids = sync(fresh)
    runs = {"alone": "elsewhere", "cluster": "C.A,C.B", "nobody": "", "marked": "once X", "long": "x" * 255}
    for name in ("busy", "ours", *runs):
        ids.next_id(f"{tag}-{name}")
    for name, run in runs.items():
        execute(fresh, f"UPDATE allocator_segment SET server_run = '{run}' WHERE tag = '{tag}-{name}'")
    execute(fresh, FORGET.format(0, f"{tag}-busy"), MOVED)
    ids.reserve(f"{tag}-busy", 10)

    here = ids.tags.get(f"{tag}-busy").server_run
    left = {"alone": "once elsewhere", "cluster": "once C.A C.B", "nobody": "once ", "marked": "once X"}
    left |= {"long": "once " + "x" * 240, "ours": here}
    assert {name: ids.tags.get(f"{tag}-{name}").server_run for name in left} == left
    for name in ("alone", "cluster", "nobody", "marked", "long"):
        assert sync(fresh).next_id(f"{tag}-{name}") > LEAST, name
    assert sync(fresh).next_id(f"{tag}-ours") < LEAST


@pytest.mark.statements
def test_a_move_that_is_cut_off_leaves_nothing(sync, fresh, tag, monkeypatch):
    ids = sync(fresh)
    ids.next_id(tag)
    execute(fresh, FORGET.format(0, tag), MOVED)
    leave = failover_row.leave
    with monkeypatch.context() as patched, closing(Database(fresh)) as database:

        def cut_off(connection, run: str) -> None:
            leave(connection, run)
            raise KeyboardInterrupt

        patched.setattr(failover_row, "leave", cut_off)
        with pytest.raises(KeyboardInterrupt):
            database.failover()

    for rows in ("segment", "failover"):
        assert values(fresh, f"SELECT server_run FROM allocator_{rows}") == ["elsewhere"], rows
    assert sync(fresh).next_id(tag) > LEAST


@pytest.mark.statements
def test_a_failover_marks_many_rows_in_parts_and_a_part_is_good_without_the_move(sync, fresh, tag, monkeypatch):
    """In one statement a million tags take longer than the timeout of a claim: none would ever end."""
    names = [f"{tag}-{number}" for number in range(5)]
    with Allocator(fresh) as ids:
        for name in names:
            ids.next_id(name)
    execute(fresh, "UPDATE allocator_segment SET server_run = 'elsewhere'", MOVED)
    monkeypatch.setattr(failover_row, "PART", 2)
    with monkeypatch.context() as patched, closing(Database(fresh)) as database, pytest.raises(KeyboardInterrupt):
        patched.setattr(failover_row, "move", Mock(side_effect=KeyboardInterrupt))
        database.failover()

    assert values(fresh, "SELECT server_run FROM allocator_segment ORDER BY tag") == [
        *["once elsewhere"] * 4,
        "elsewhere",
    ]
    assert values(fresh, "SELECT server_run FROM allocator_failover") == ["elsewhere"]
    assert sync(fresh).next_id(names[0]) > LEAST
    assert values(fresh, "SELECT server_run FROM allocator_segment ORDER BY tag")[1:] == ["once elsewhere"] * 4
    assert all(sync(fresh).next_id(name) > LEAST for name in names[1:])


@pytest.mark.parametrize("fleet_kind", ["sqlite"], indirect=True)
def test_an_older_copy_of_a_shard_that_was_noted_gives_no_tickets_until_it_is_trusted(shards):
    urls = shards(2)
    path = make_url(urls[0]).database
    with Allocator(shards=urls) as ids:
        drawn = [ids.ticket("job") for _ in range(4)]
    shutil.copyfile(path, f"{path}.old")
    with Allocator(shards=urls) as ids:
        drawn += [ids.ticket("job") for _ in range(4)]
    Path(f"{path}.old").replace(path)
    for _ in range(2):  # whoever notes it skips a gap
        with Allocator(shards=urls) as ids:
            drawn += [ids.ticket("job") for _ in range(4)]
    assert {one % 2 for one in drawn[-4:]} == {0}
    with closing(Database(urls[0])) as first, closing(Database(urls[1])) as second:
        Growth([first, second]).trust(first)
    with Allocator(shards=urls) as ids:
        drawn += [ids.ticket("job") for _ in range(4)]

    assert distinct(drawn)
    assert {one % 2 for one in drawn[-4:]} == {0, 1}


@ONLY_SQLITE
def test_control_a_copy_that_is_written_into_the_file_itself_gives_ids_again(fresh, file, tag):
    """Nothing tells the file from what it was: run `allocator tags repair` first."""
    drawn = drawn_by_another(fresh, tag, 100)
    shutil.copyfile(file, f"{file}.old")
    drawn += drawn_by_another(fresh, tag, 100)
    shutil.copyfile(f"{file}.old", file)
    drawn += drawn_by_another(fresh, tag, 100)

    assert len({*drawn}) < len(drawn)


@ONLY_SQLITE
def test_what_is_no_segment_is_drawn_from_the_file_that_is_there_now(fresh, file):
    with closing(Allocator(fresh)) as ids:
        drawn = [ids.ticket("job")]
        shutil.copy(file, f"{file}.new")
        Path(f"{file}.new").replace(file)
        drawn.append(ids.ticket("job"))
        with closing(Allocator(fresh)) as another:
            drawn.append(another.ticket("job"))

    assert drawn[:1] == [1]
    assert drawn[1] > TICKETS_SKIPPED
    assert drawn[2] == drawn[1] + 1


@ONLY_SQLITE
def test_a_file_that_was_deleted_is_not_written_any_more(fresh, file, tag):
    with other(fresh) as ids:
        ids.next_id(tag)
        with fork_gate.lock:  # no claim in advance meets the copy of the file: what that gives is not promised
            file.rename(f"{file}.away")
        for call in (lambda: ids.reserve(tag, 10), lambda: ids.ticket("first")):
            with pytest.raises(DatabaseUnavailable, match="there is no file .*; check the path, or put it back"):
                call()
        Path(f"{file}.away").rename(file)

        assert len(ids.reserve(tag, 10)) == 10


MYSQL = pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)


def look(url: str, was: str):
    with closing(Database(url)) as database:
        return database.run(servers.fetch_run, was)


@MYSQL
def test_a_server_whose_restarts_are_guarded_is_another_one_after_each_start(url, monkeypatch):
    monkeypatch.setenv(GUARD_RESTARTS, "1")
    here = look(url, "").run
    server, _, start = here.partition("-")

    assert look(url, here).same
    execute(url, "DO BENCHMARK(17000000, UUID_SHORT())")  # after so many it tells a later start
    assert look(url, here).same
    assert look(url, here).run != here
    assert not look(url, f"{server}-{int(start) + 99}").same
    assert not look(url, f"{server}-{int(start) - 99}").same
    assert not look(url, f"{'0' * 8}-{start}").same


@MYSQL
def test_a_session_that_was_changed_under_us_says_again_where_it_is(fresh, tag):
    """As a proxy does that leads a connection to another server."""
    with other(fresh) as ids:
        ids.reserve(tag, 10)
        database = ids._backend.databases()[0]
        database.run(lambda connection, _: connection.exec_driver_sql("SET @allocator_run = NULL"))

        assert ids.reserve(tag, 10) == range(11, 21)
        ids.ticket("job")
        database.run(lambda connection, _: connection.exec_driver_sql("SET @allocator_run = NULL"))
        assert ids.ticket("job") == 2


AT_COMMIT = """CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO at_commit VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$"""


def noting_commits(url: str, *tables: str) -> None:
    """Sessions that begin now do not wait for the disk, unless a statement says so; what each commit did is noted."""
    execute(
        url,
        f"ALTER DATABASE {make_url(url).database} SET synchronous_commit = off",
        "CREATE TABLE at_commit (setting text)",
        AT_COMMIT,
        *(
            f"CREATE CONSTRAINT TRIGGER noting AFTER INSERT OR UPDATE ON allocator_{table} "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION noted()"
            for table in tables
        ),
    )


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_claim_is_written_to_disk_whatever_the_role_is_set_to(fresh, tag, monkeypatch):
    """A crash of a process of the server's forgets commits that were not, and begins no other run."""
    monkeypatch.setattr(PostgreSQL, "mends", "NULL")  # as without the trigger that notes
    with other(fresh) as ids:
        ids.reserve(tag, 1)
    noting_commits(fresh, "segment")
    with other(fresh) as ids:
        ids.reserve(tag, 1)
    assert values(fresh, "SELECT setting FROM at_commit") == ["on"]
    execute(fresh, FORGET.format(0, tag))
    with closing(Database(fresh)) as database:
        database.noted(tag)
    execute(fresh, "DELETE FROM at_commit")
    with other(fresh) as ids:
        assert ids.reserve(tag, 1)[0] > LEAST

    assert values(fresh, "SELECT setting FROM at_commit") == ["on"]
    assert values(fresh, "SHOW synchronous_commit") == ["off"]


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_tickets_nodes_and_leases_are_written_to_disk_whatever_the_role_is_set_to(sync, fresh, monkeypatch):
    monkeypatch.setattr(PostgreSQL, "mends", "NULL")  # as without the trigger that notes
    sync(fresh).ticket("job")
    noting_commits(fresh, "segment", "node", "worker")
    ids = sync(fresh)
    for draw in (lambda: ids.ticket("job"), lambda: ids.ticket("case"), ids.meteor, ids.snowflake):
        draw()

    assert values(fresh, "SELECT setting FROM at_commit") == ["on"] * 5  # a new type is made, and claimed from


ONLY_POSTGRES = pytest.mark.parametrize("kind", ["postgres"], indirect=True)


@ONLY_POSTGRES
def test_a_table_that_was_made_again_from_a_dump_is_another_one(fresh, tag):
    before = look(fresh, "").run
    execute(
        fresh,
        "CREATE TABLE dump AS SELECT * FROM allocator_segment",
        "DROP TABLE allocator_segment",
        "ALTER TABLE dump RENAME TO allocator_segment",
    )

    assert not look(fresh, before).same


SAYS = """CREATE FUNCTION says.current_setting(name text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE name WHEN '{0}' THEN 'off' ELSE pg_catalog.current_setting(name) END $$"""


@ONLY_POSTGRES
@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_is_not_durable_is_another_one_after_each_start(fresh, setting):
    """Said by a function that comes before the server's own, since other tests use this server too."""
    before = look(fresh, "").run
    name = make_url(fresh).database
    path = f"ALTER DATABASE {name} SET search_path = says, pg_catalog, public"
    execute(fresh, "CREATE SCHEMA says", SAYS.format(setting), path)
    here = look(fresh, before)

    assert not here.same
    assert here.run.startswith(f"{before}@")


@ONLY_POSTGRES
def test_maintenance_is_no_failover(fresh, tag):
    engine = create_engine(fresh, isolation_level="AUTOCOMMIT")
    with other(fresh) as ids, engine.connect() as connection:
        ids.reserve(tag, 100)
        for number, work in enumerate(
            ("VACUUM FULL allocator_segment", "REINDEX TABLE allocator_segment", "CHECKPOINT")
        ):
            connection.exec_driver_sql(work)
            assert ids.reserve(tag, 1)[0] == 101 + number, work
    engine.dispose()


@ONLY_POSTGRES
def test_a_run_of_postgresql_is_a_cluster_a_timeline_a_database_and_a_table(fresh, monkeypatch):
    engine = create_engine(fresh)
    with engine.connect() as connection:
        cluster = connection.scalar(text("SELECT system_identifier FROM pg_control_system()"))
        timeline = connection.scalar(text("SELECT timeline_id FROM pg_control_checkpoint()"))
        table = connection.scalar(text("SELECT oid FROM pg_class WHERE relname = 'allocator_segment'"))
        database = connection.scalar(text("SELECT oid FROM pg_database WHERE datname = current_database()"))
        since = float(connection.scalar(text("SELECT extract(epoch FROM pg_postmaster_start_time())")))
    engine.dispose()
    run = f"{cluster}/{timeline:08X}/{database}/{table}"

    assert look(fresh, "").run == run
    monkeypatch.setenv(GUARD_RESTARTS, "1")
    each, _, start = look(fresh, "").run.partition("@")
    assert each == run
    assert abs(int(start) / 1e6 - since) < 0.001

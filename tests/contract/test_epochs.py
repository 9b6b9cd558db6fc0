"""Rule 8: where a row was written on another run of a server, which may have forgotten claims."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from time import sleep, time_ns

import pytest
from sqlalchemy import create_engine, make_url, text
from support.servers.administrator import execute, values

from allocator import (
    Allocator,
    DatabaseUnavailable,
    InvalidSetting,
    LeaseLost,
    MaxValueWentBack,
    ServerReplaced,
    UnknownTag,
)
from allocator.database.sqlite_forks import GATE
from allocator.database.store import Database
from allocator.database.verbs import claims, failover, nodes, servers
from allocator.fleet.grow import Growth
from allocator.rules.failover import Crossing
from allocator.rules.node_failover import LEASES_LEFT_OUT_MS, NODES_LEFT_OUT, SECONDS
from allocator.schemes.meteor import METEOR
from allocator.schemes.residues import ALL
from allocator.schemes.retry import RETRY_PAUSE
from allocator.schemes.snowflake import EPOCH, SNOWFLAKE, Lease, LeaseClaim

MARGIN = 10**9
FORGET = "UPDATE allocator_segment SET epoch = 'elsewhere', max_value = max_value - {0} WHERE tag = '{1}'"
MOVED = "UPDATE allocator_epoch SET run = 'elsewhere', server = 'another'"


def other(url: str) -> Allocator:
    """Another process, which has seen nothing."""
    return Allocator(url, step=100, max_step=100)


@contextmanager
def nothing_under_way():
    """No claim in advance meets the moment in which a file is copied: what that gives is not promised."""
    GATE.before_fork()
    try:
        yield
    finally:
        GATE.after_fork()


# -- the margin


def test_on_another_run_a_claim_leaves_the_margin_out(face, fresh, tag, caplog):
    before = face(fresh).reserve(tag, 100)
    execute(fresh, FORGET.format(100, tag))
    ids = face(fresh, step=100, max_step=100)
    after = ids.next_ids(tag, 200)

    assert after == list(range(after[0], after[0] + 200))
    assert after[0] > MARGIN
    assert not {*before} & {*after}
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len([line for line in warnings if "skipping" in line and "elsewhere" in line]) == 1


def test_control_without_a_margin_the_ids_come_again(face, fresh, tag):
    before = face(fresh, margin=0).reserve(tag, 100)
    execute(fresh, FORGET.format(100, tag))

    assert face(fresh).reserve(tag, 100) == before


def test_a_process_that_runs_goes_on_over_a_failover(face, fresh, tag):
    """What it has seen is more than the row has, and less than what the row is raised to."""
    ids = face(fresh, step=100, max_step=100)
    before = ids.next_ids(tag, 150)
    execute(fresh, FORGET.format(100, tag))
    after = [ids.next_id(tag) for _ in range(300)]

    assert len({*before, *after}) == 450
    assert after[-1] > MARGIN


def test_without_a_margin_what_was_seen_still_stops_the_tag(face, fresh, tag):
    ids = face(fresh, step=100, max_step=100, margin=0)
    ids.next_ids(tag, 100)
    execute(fresh, FORGET.format(100, tag))

    with pytest.raises(MaxValueWentBack, match="tags repair"):
        [ids.next_id(tag) for _ in range(300)]


def test_several_processes_that_cross_at_once_leave_it_out_once(url, tag):
    with other(url) as ids:
        ids.reserve(tag, 100)
    execute(url, FORGET.format(0, tag))
    several = [other(url) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        blocks = list(pool.map(lambda ids: ids.reserve(tag, 10), several))
    for ids in several:
        ids.close()

    assert len({one for block in blocks for one in block}) == 60
    assert max(block[-1] for block in blocks) - min(block[0] for block in blocks) == 59


def test_a_crossing_holds_on_the_server_that_was_looked_at_and_above_what_was_seen(url, tag):
    """A proxy may have led us to another one; and a margin does not make good for ids that were seen."""
    with other(url) as ids:
        ids.reserve(tag, 100)
    execute(url, FORGET.format(0, tag))
    here = look(url, "elsewhere")
    with closing(Database(url)) as database:
        claim = claims.claim

        assert database.run(claim, tag, 10, ALL, 0, Crossing(here._replace(server="another"), 50)) is None
        assert database.run(claim, tag, 10, ALL, 151, Crossing(here, 50)) is None
        assert database.run(claim, tag, 10, ALL, 150, Crossing(here, 50)) == 160


def test_a_row_that_was_never_written_by_a_claim_is_ours(face, url, tag):
    """As of a database that was upgraded."""
    ids = face(url)
    epoch = ids.tags.create(tag) and ids.tags.get(tag).epoch
    execute(url, f"UPDATE allocator_segment SET epoch = '' WHERE tag = '{tag}'")

    assert ids.reserve(tag, 10) == range(1, 11)
    assert ids.tags.get(tag).epoch == epoch != ""


def test_tags_that_are_claimed_together_cross_one_by_one(face, url, tag):
    ids = face(url)
    tags = [f"{tag}-{number}" for number in range(8)]
    for name in tags:
        ids.reserve(name, 10)
        execute(url, FORGET.format(0, name))
    with other(url) as fresh, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(fresh.next_id, tags))

    assert min(found) > MARGIN


def test_a_shard_leaves_out_so_many_ids_of_its_own(shards):
    urls = shards(2)
    with Allocator(shards=urls, step=10, max_step=10) as ids:
        before = ids.next_ids("order", 40)
    for url in urls:
        execute(url, FORGET.format(20, "order"))
    with Allocator(shards=urls, step=10, max_step=10) as ids:
        after = ids.next_ids("order", 40)

    assert not {*before} & {*after}
    assert min(after) > 2 * MARGIN
    assert {one % 2 for one in after} == {0, 1}


# -- refused, and repaired


def test_a_tag_that_refuses_waits_to_be_repaired(face, fresh, tag):
    ids = face(fresh, margin="refuse")
    ids.reserve(tag, 100)
    execute(fresh, FORGET.format(50, tag))
    with pytest.raises(ServerReplaced, match=f"last claimed on elsewhere.*allocator tags repair {tag}"):
        ids.next_id(tag)
    with other(fresh) as another:
        with pytest.raises(ServerReplaced):
            another.reserve(tag, 1)
        assert another.tags.repair(tag, above=5000).max_value == 5000

    sleep(RETRY_PAUSE)  # the pace of tries is one a second
    assert ids.reserve(tag, 10) == range(5001, 5011)


def test_repair_leaves_the_margin_out_unless_it_is_said_where_to_go_on(face, url, tag):
    ids = face(url, margin=5000)
    ids.reserve(tag, 10)

    assert (first := ids.tags.repair(tag).max_value) >= 5010
    assert ids.tags.repair(tag).max_value >= first + 5000
    assert ids.tags.repair(tag, above=10**12).max_value == 10**12
    assert ids.reserve(tag, 1)[0] == 10**12 + 1
    with pytest.raises(InvalidSetting, match="above must be 1000000000001 to"):
        ids.tags.repair(tag, above=10)
    with pytest.raises(UnknownTag):
        ids.tags.repair(f"{tag}-unknown")


def test_a_margin_that_does_not_fit_is_refused(face, url, tag):
    ids = face(url, limit=5000)
    ids.reserve(tag, 1)
    execute(url, FORGET.format(0, tag))

    with pytest.raises(ServerReplaced, match="fewer than its margin of 1000000 ids remain"):
        ids.next_id(tag)
    assert ids.tags.repair(tag, above=2000).max_value == 2000
    assert face(url).next_id(tag) == 2001


def test_the_margin_is_a_setting_of_the_tag(face, place, tag):
    ids = face(place, margin=77)
    ids.next_id(tag)
    assert ids.tags.get(tag).margin == 77
    assert ids.tags.set(tag, margin="refuse").margin == -1
    assert ids.tags.set(tag, step=5).margin == -1
    assert ids.tags.set(tag, margin=10**12).margin == 10**12
    assert ids.tags.create(f"{tag}-made", max_step=10**7, margin=5).margin == 5
    assert face(place).tags.create(f"{tag}-usual", max_step=10**7).margin == 10**10
    for wrong in (-1, "most"):
        with pytest.raises(InvalidSetting, match="margin must be"):
            ids.tags.set(tag, margin=wrong)


# -- what else may be forgotten


def test_nodes_that_may_be_forgotten_are_left_out(face, fresh):
    first = METEOR.unpack(face(fresh).meteor())["node"]
    execute(fresh, MOVED)
    second = METEOR.unpack(face(fresh).meteor())["node"]
    third = METEOR.unpack(face(fresh).meteor())["node"]

    assert first + NODES_LEFT_OUT < second <= first + NODES_LEFT_OUT + SECONDS
    assert third == second + 1


def test_processes_that_see_the_move_at_one_moment_leave_nodes_out_once(fresh, monkeypatch):
    """Else those of a second failover, who leave them out once, could meet those of the first, who did so twice."""
    monkeypatch.setattr("allocator.database.registry.nodes_left_out", lambda at: 300)
    with closing(Database(fresh)) as one, closing(Database(fresh)) as another:
        first, others, move = one.register_node(), [another], failover.move
        execute(fresh, MOVED)

        def meanwhile(*said) -> None:
            while others:
                others.pop().failover()
            move(*said)

        monkeypatch.setattr(failover, "move", meanwhile)

        assert [one.register_node(), another.register_node()] == [first + 301, first + 302]


def test_a_node_that_was_registered_while_the_database_moved_is_left(fresh, monkeypatch):
    with closing(Database(fresh)) as database:
        register, moves = nodes.register, [MOVED]

        def moving(connection, *said) -> int:
            number = register(connection, *said)
            if moves:
                connection.exec_driver_sql(moves.pop())
            return number

        monkeypatch.setattr(nodes, "register", moving)

        assert database.register_node() > NODES_LEFT_OUT


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_node_below_those_of_the_server_that_was_read_is_left_too(fresh, monkeypatch):
    with closing(Database(fresh)) as database:
        database.register_node()
        register = nodes.register
        forgetting = ["DELETE FROM allocator_node", "ALTER TABLE allocator_node ALTER COLUMN id RESTART", MOVED]

        def moving(connection, *said) -> int:
            while forgetting:
                connection.exec_driver_sql(forgetting.pop(0))
            return register(connection, *said)

        monkeypatch.setattr(nodes, "register", moving)

        assert database.register_node() > NODES_LEFT_OUT


def test_leases_that_may_be_forgotten_are_out_of_reach(face, fresh):
    before = face(fresh).snowflake()
    execute(fresh, MOVED)
    after = [face(fresh).snowflake() for _ in range(3)]

    assert min(after) >> 22 > (before >> 22) + LEASES_LEFT_OUT_MS - 10_000
    assert len({*after}) == 3


def test_a_lease_from_before_is_not_renewed_since_its_end_may_be_forgotten(fresh):
    with closing(Database(fresh)) as database:

        def lease(before: Lease | None) -> Lease:
            now = time_ns() // 1_000_000
            return database.lease_worker(LeaseClaim(before, now, now + 60_000), SNOWFLAKE, EPOCH)

        renewed = lease(lease(None))
        execute(fresh, MOVED)
        with pytest.raises(LeaseLost, match="before the database moved"):
            lease(renewed)
        later = lease(None)

        assert later.since > renewed.until
        assert lease(later).holder == later.holder


def test_a_tag_that_is_made_by_its_first_use_may_be_one_that_was_forgotten(face, fresh):
    assert face(fresh).next_id("before") == 1
    execute(fresh, MOVED)
    ids = face(fresh)

    assert ids.next_id("after") == face(fresh).next_id("later") > MARGIN
    ids.tags.create("said")
    assert ids.next_id("said") == 1


def test_what_is_forgotten_first_is_not_forgotten_with_the_row_that_tells(fresh):
    """Before anything was drawn: the row is made with the tables."""
    execute(fresh, MOVED)
    with other(fresh) as ids:
        assert METEOR.unpack(ids.meteor())["node"] > NODES_LEFT_OUT


def test_control_a_restart_forgets_no_tags(face, fresh):
    face(fresh).next_id("before")
    execute(fresh, "UPDATE allocator_epoch SET run = 'elsewhere'")

    assert face(fresh).next_id("after") == 1


def test_another_server_has_forgotten_nodes_and_leases_though_its_run_is_the_same(face, fresh):
    """As a copy of a database within one server."""
    first = METEOR.unpack(face(fresh).meteor())["node"]
    execute(fresh, "UPDATE allocator_epoch SET server = 'another'")

    assert METEOR.unpack(face(fresh).meteor())["node"] > first + NODES_LEFT_OUT


def test_rows_from_before_there_were_epochs_are_written_by_the_upgrade(fresh, tag):
    with other(fresh) as ids:
        ids.reserve(tag, 1)
        here = ids.tags.get(tag).epoch
        execute(fresh, "UPDATE allocator_segment SET epoch = ''")
        with closing(Database(fresh, timeout=60)) as database:
            database.upgrade_schema()

        assert ids.tags.get(tag).epoch == here != ""


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
    assert "tag 'a' has 50 ids left" in done.stderr
    with other(fresh) as ids:
        assert ids.tags.get("b").max_value > 0


def test_a_margin_that_was_the_usual_one_follows_the_limit(face, url, tag):
    ids = face(url)
    ids.tags.create(tag)

    assert ids.tags.set(tag, limit=2**31 - 1).margin == (2**31 - 1) // 100
    assert ids.tags.set(tag, margin=7).margin == ids.tags.set(tag, limit=10**6).margin == 7


def test_a_fleet_that_grows_after_a_restore_leaves_out_what_was_forgotten(shards):
    old, new = shards(2)
    with Allocator(old) as ids:
        drawn = {*ids.reserve("order", 15)}
    execute(old, FORGET.format(10, "order"))
    with Allocator(old) as ids:
        ids.ticket("invoice")  # so that the first one is a shard
    with closing(Database(old)) as first, closing(Database(new)) as second:
        growth = Growth([first])
        growth.add(second)
        growth.grow()
    with Allocator(shards=[old, new], step=10, max_step=10) as ids:
        assert not drawn & {*ids.next_ids("order", 100)}


# -- each database's own ways


@pytest.fixture
def file(fresh: str, kind: str) -> Path:
    return Path(make_url(fresh).database or "")


ONLY_SQLITE = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


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

    assert len({*drawn}) == len(drawn)
    assert drawn[-1] - drawn[-200] < 1000


@ONLY_SQLITE
def test_control_a_copy_that_is_written_into_the_file_itself_gives_ids_again(fresh, file, tag):
    """Nothing tells the file from what it was; hence the repair of the next test."""
    drawn = drawn_by_another(fresh, tag, 100)
    shutil.copyfile(file, f"{file}.old")
    drawn += drawn_by_another(fresh, tag, 100)
    shutil.copyfile(f"{file}.old", file)
    drawn += drawn_by_another(fresh, tag, 100)

    assert len({*drawn}) < len(drawn)


@ONLY_SQLITE
def test_a_repair_before_anybody_draws_helps_where_a_copy_was_written_into_the_file(fresh, file, tag):
    drawn = drawn_by_another(fresh, tag, 100)
    shutil.copyfile(file, f"{file}.old")
    drawn += drawn_by_another(fresh, tag, 100)
    shutil.copyfile(f"{file}.old", file)
    with other(fresh) as ids:
        ids.tags.repair(tag)
    drawn += drawn_by_another(fresh, tag, 100)

    assert len({*drawn}) == len(drawn)


@ONLY_SQLITE
def test_a_file_that_is_replaced_under_running_processes(fresh, file, tag):
    """What is open would still be the old one."""
    with other(fresh) as ids, other(fresh) as knows_less:
        drawn = ids.next_ids(tag, 50) + knows_less.next_ids(tag, 50)
        with nothing_under_way():
            shutil.copyfile(file, f"{file}.old")
        drawn += ids.next_ids(tag, 500)
        with nothing_under_way():
            Path(f"{file}.old").replace(file)
        for _ in range(5):
            drawn += ids.next_ids(tag, 200) + knows_less.next_ids(tag, 200) + drawn_by_another(fresh, tag, 100)

    assert len({*drawn}) == len(drawn)


@ONLY_SQLITE
def test_what_is_no_segment_is_drawn_from_the_file_that_is_there_now(fresh, file):
    with closing(Allocator(fresh)) as ids:
        drawn = [ids.ticket("invoice")]
        shutil.copy(file, f"{file}.new")
        Path(f"{file}.new").replace(file)
        drawn.append(ids.ticket("invoice"))
        with closing(Allocator(fresh)) as another:
            drawn.append(another.ticket("invoice"))

    assert drawn == [1, 2, 3]


@ONLY_SQLITE
def test_a_file_that_was_deleted_is_not_written_any_more(fresh, file, tag):
    with other(fresh) as ids:
        ids.next_id(tag)
        with nothing_under_way():
            file.rename(f"{file}.away")
        with pytest.raises(DatabaseUnavailable, match="there is no file .* it was moved or deleted; put it back"):
            ids.reserve(tag, 10)
        Path(f"{file}.away").rename(file)

        assert len(ids.reserve(tag, 10)) == 10


MYSQL = pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)


def look(url: str, was: str):
    with closing(Database(url)) as database:
        return database.run(servers.fetch_run, was)


@MYSQL
def test_a_server_is_the_same_for_as_long_as_it_runs(url, tag):
    here = look(url, "").epoch
    server, _, start = here.partition("-")

    assert look(url, here).same
    execute(url, "DO BENCHMARK(17000000, UUID_SHORT())")  # after so many it tells a later start
    assert look(url, here).same
    assert look(url, here).epoch != here
    assert not look(url, f"{server}-{int(start) + 99}").same
    assert not look(url, f"{server}-{int(start) - 99}").same
    assert not look(url, f"{'0' * 8}-{start}").same


@MYSQL
def test_a_session_that_was_changed_under_us_says_again_where_it_is(url, tag):
    """As a proxy does that leads a connection to another server."""
    with other(url) as ids:
        ids.reserve(tag, 10)
        database = ids._backend.databases()[0]
        database.run(lambda connection, _: connection.exec_driver_sql("SET @allocator_run = NULL"))

        assert ids.reserve(tag, 10) == range(11, 21)


AT_COMMIT = """CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO at_commit VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$"""


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("crosses", [False, True])
def test_a_claim_is_written_to_disk_whatever_the_role_is_set_to(fresh, tag, crosses):
    """A crash of a process of the server's forgets commits that were not, and begins no other run."""
    name = make_url(fresh).database
    with other(fresh) as ids:
        ids.reserve(tag, 1)
    if crosses:
        execute(fresh, FORGET.format(0, tag))
    execute(
        fresh,
        f"ALTER DATABASE {name} SET synchronous_commit = off",
        "CREATE TABLE at_commit (setting text)",
        AT_COMMIT,
        "CREATE CONSTRAINT TRIGGER noting AFTER UPDATE ON allocator_segment DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION noted()",
    )
    with other(fresh) as ids:
        ids.reserve(tag, 1)

    assert values(fresh, "SELECT setting FROM at_commit") == ["on"]
    assert values(fresh, "SHOW synchronous_commit") == ["off"]


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_table_that_was_made_again_from_a_dump_is_another_one(fresh, tag):
    before = look(fresh, "").epoch
    execute(
        fresh,
        "CREATE TABLE dump AS SELECT * FROM allocator_segment",
        "TRUNCATE allocator_segment",
        "INSERT INTO allocator_segment SELECT * FROM dump",
    )

    assert not look(fresh, before).same


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_run_of_postgresql_is_a_timeline_a_start_and_a_file(fresh):
    engine = create_engine(fresh)
    with engine.connect() as connection:
        since = float(connection.scalar(text("SELECT extract(epoch FROM pg_postmaster_start_time())")))
        timeline = connection.scalar(text("SELECT timeline_id FROM pg_control_checkpoint()"))
        file = connection.scalar(text("SELECT relfilenode FROM pg_class WHERE relname = 'allocator_segment'"))
        database = connection.scalar(text("SELECT oid FROM pg_database WHERE datname = current_database()"))
    engine.dispose()
    run, start, *path = look(fresh, "").epoch.split("/")

    assert (int(run, 16), path) == (timeline, ["base", str(database), str(file)])
    assert abs(int(start) / 1e6 - since) < 0.001

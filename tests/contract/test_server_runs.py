"""Rule 8: a database that moved to another server run, which may have forgotten claims.

What moved (MOVES) times what is drawn (DRAWS); what a tag may say about it; moves in the middle of something; servers
that come back; fleets; and how each database tells that it is another one.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import count, pairwise
from pathlib import Path
from struct import pack_into
from time import time, time_ns
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from sqlalchemy import make_url, text
from support.distinct import distinct
from support.faults.meanwhile import die, meanwhile
from support.kit import ON_MYSQL, ON_POSTGRES, ON_SERVERS, SERVERS, SQLITE, database_of, on, run
from support.processes.patience import patiently, until
from support.rules import rule
from support.servers.administrator import administrator, execute, values
from support.servers.fleets import bare

from allocator import Allocator, SnowflakeSettings, errors
from allocator.database import sqlite as sqlite_file
from allocator.database.dialect import GUARD_RESTARTS
from allocator.database.postgresql import PostgreSQL
from allocator.database.store import Database
from allocator.database.verbs import segments
from allocator.errors import DatabaseUnavailable, InvalidSetting, ServerReplaced
from allocator.fleet.tag_administration import Tags
from allocator.schemes.failover import NODES_SKIPPED, TICKETS_SKIPPED
from allocator.schemes.meteor import METEOR
from allocator.schemes.slots import Shard
from allocator.schemes.tag import Tag

LEAST = 1 << 22
ROWS = ("segment", "ticket", "node", "lease", "shard")
MOVED = "UPDATE allocator_shard SET server_run = 'elsewhere'"
FORGET = "UPDATE allocator_segment SET max_value = max_value - {0}"
numbers = count()


def other(url: str, **settings: object) -> Allocator:
    """Another process, which has seen nothing."""
    return Allocator(url, **{"step": 100, "max_step": 100, **settings})


def ids_of_another(url: str, tag: str, count: int) -> list[int]:
    with other(url) as ids:
        return ids.next_ids(tag, count)


# -- what moved, times what is drawn


class Draw(NamedTuple):
    """one: what a process draws. skips: so many numbers, at the least, lie between the last one before a move and the
    first one after it."""

    one: Callable[[Allocator], int]
    skips: int


DRAWS = {
    "id": Draw(lambda ids: ids.next_id("order"), LEAST),
    "block": Draw(lambda ids: ids.reserve("order", 10)[0], LEAST),
    "ticket": Draw(lambda ids: ids.ticket("job"), TICKETS_SKIPPED),
    "node": Draw(lambda ids: METEOR.unpack(ids.meteor())["node"], NODES_SKIPPED),
    "tag by its first id": Draw(lambda ids: ids.next_id(f"new-{next(numbers)}"), LEAST),
    "tag that is created": Draw(lambda ids: ids.tags.create(f"made-{next(numbers)}").max_value, LEAST),
}


def drawn_by_another(url: str) -> dict[str, int]:
    """One of each kind."""
    with other(url) as ids:
        return {name: draw.one(ids) for name, draw in DRAWS.items()}


Move = Callable[[str], Callable[[], object]]
"""Begins while the rows are as they will be again; what it returns moves there."""


def standby(url: str) -> Callable[[], object]:
    """It lacks what was written last; or a database is restored from a dump."""
    into = " OVERRIDING SYSTEM VALUE" if url.startswith("postgres") else ""
    execute(url, *(f"CREATE TABLE kept_{rows} AS SELECT * FROM allocator_{rows}" for rows in ROWS))
    again = (
        (f"DELETE FROM allocator_{rows}", f"INSERT INTO allocator_{rows}{into} SELECT * FROM kept_{rows}")
        for rows in ROWS
    )
    return lambda: execute(url, *(statement for pair in again for statement in pair), MOVED)


def nothing_written(url: str) -> Callable[[], object]:
    """All that was ever written is gone, but for the row that tells."""
    return lambda: execute(url, *(f"DELETE FROM allocator_{rows}" for rows in ROWS[:-1]), MOVED)


def command(url: str) -> Callable[[], object]:
    """An operator says so; twice, since the first one may have been lost too."""
    said = [sys.executable, "-m", "allocator", "db", "mark-restored", "--url", url]
    return lambda: [subprocess.run(said, check=True) for _ in range(2)]


def older_file(url: str) -> Callable[[], object]:
    file = make_url(url).database
    shutil.copyfile(file, f"{file}.old")
    return lambda: Path(f"{file}.old").replace(file)


def logical_replica(url: str) -> Callable[[], object]:
    """It has the rows, and not what their sequences came to, which was further than a move skips."""
    execute(url, "SELECT setval('allocator_node_id_seq', 200000)")
    return lambda: execute(url, "SELECT setval('allocator_node_id_seq', 1)", MOVED)


ALL_MOVES = [(kind, move) for kind in ("sqlite", *SERVERS) for move in (standby, nothing_written, command)]
ALL_MOVES += [("sqlite", older_file), ("postgres", logical_replica)]


@rule(8)
@pytest.mark.parametrize(("kind", "move"), ALL_MOVES, indirect=["kind"], ids=lambda of: getattr(of, "__name__", of))
def test_after_a_move_a_process_begins_above_all_that_may_be_forgotten(fresh, move: Move, caplog):
    drawn_by_another(fresh)
    moved = move(fresh)
    before = [drawn_by_another(fresh) for _ in range(3)]
    moved()
    after = [drawn_by_another(fresh) for _ in range(2)]

    for name, draw in DRAWS.items():
        first, last = min(one[name] for one in after), max(one[name] for one in after)
        assert first > max(one[name] for one in before) + draw.skips - 1, name
        assert last < first + 10_000, f"{name}: skipped twice"
    assert len([line for line in caplog.messages if "moved to another server" in line and "the server was" in line]) < 2


@rule(8)
def test_control_without_a_move_nothing_is_skipped(fresh):
    before, after = drawn_by_another(fresh), drawn_by_another(fresh)

    assert [name for name in DRAWS if after[name] - before[name] >= 10_000] == []


@rule(8)
def test_control_without_a_gap_the_ids_come_again(sync, fresh):
    before = sync(fresh, failover_gap=0).reserve("order", 100)
    execute(fresh, FORGET.format(100), MOVED)

    assert sync(fresh).reserve("order", 100) == before


# -- one tag


@rule(8)
def test_processes_and_tags_that_cross_at_once_skip_once_each(fresh):
    """One has seen more than the row has, and less than what the row is raised to."""
    tags, several = [f"order-{number}" for number in range(8)], [other(fresh) for _ in range(6)]
    for name in tags:
        several[0].reserve(name, 100)
    execute(fresh, FORGET.format(100), MOVED)
    with ThreadPoolExecutor(6) as pool:
        for name in tags:
            blocks = list(pool.map(lambda ids, name=name: ids.reserve(name, 10), several))
            assert distinct(one for block in blocks for one in block) == 60
            first = min(block[0] for block in blocks)
            assert LEAST < first == max(block[-1] for block in blocks) - 59
    for ids in several:
        ids.close()


def test_what_is_skipped_is_not_issued(sync, fresh):
    ids = sync(fresh)
    assert ids.tags.create("order", start_after=5000).max_value == 5000
    ids.reserve("order", 100)
    ids.tags.set("order", start_after=9000)
    ids.reserve("order", 50)
    assert (ids.tags.get("order").max_value, ids.tags.get("order").skipped) == (9050, 8900)
    before = ids.tags.get("order")
    execute(fresh, MOVED)
    ids.reserve("order", 50)
    after = ids.tags.get("order")

    assert after.max_value - after.skipped == 200
    assert 1000 * time() - 60_000 < before.claimed_at <= after.claimed_at < 1000 * time() + 60_000


@rule(8)
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"failover_gap": "refuse"}, "server changed.*its failover_gap is 'refuse'.*allocator tags repair order"),
        ({"limit": 5000, "max_step": 1000}, "only 4950 ids are left below its limit, too few to skip"),
    ],
    ids=["as it says", "too close to its limit"],
)
def test_a_tag_that_refuses_waits_to_be_repaired(sync, fresh, settings, words):
    ids = sync(fresh, **settings)
    ids.reserve("order", 100)
    execute(fresh, FORGET.format(50), MOVED)
    with pytest.raises(ServerReplaced, match=words):
        ids.next_id("order")
    with other(fresh) as another:
        another.tags.set("order", start_after=60, step=7)  # leaves the tag as it is
        with pytest.raises(ServerReplaced):
            another.reserve("order", 1)
        assert another.tags.repair("order", above=2000).max_value == 2000

    assert patiently(lambda: ids.reserve("order", 10), ServerReplaced) == range(2001, 2011)


def test_the_gap_is_a_setting_of_the_tag_and_what_it_says_of_itself_can_be_set_again(sync, place, tag):
    ids = sync(place, failover_gap=77)
    ids.next_id(tag)
    assert ids.tags.set(tag, step=5).failover_gap == 77
    for gap in ("auto", "refuse", 0, 10**12):
        made = ids.tags.set(tag, failover_gap=gap)
        said = {"step": made.step, "max_step": made.max_step, "limit": made.limit, "start_after": made.max_value}
        assert ids.tags.set(tag, failover_gap=made.failover_gap, **said) == made, gap
        assert [one.failover_gap for one in ids.tags.list() if one.name == tag] == [gap]
    assert ids.tags.create(f"{tag}-made", failover_gap=5).failover_gap == 5
    assert ids.tags.create(f"{tag}-like-ours").failover_gap == 77
    assert sync(place).tags.create(f"{tag}-usual").failover_gap == "auto"
    for wrong in (-1, "most"):
        with pytest.raises(InvalidSetting, match="failover_gap must be"):
            ids.tags.set(tag, failover_gap=wrong)


def test_repair_skips_a_gap_unless_it_is_said_where_to_go_on(sync, url, tag):
    ids = sync(url, failover_gap=5000)
    ids.reserve(tag, 10)

    assert (first := ids.tags.repair(tag).max_value) >= 5010
    assert ids.tags.repair(tag).max_value >= first + 5000
    assert ids.tags.repair(tag, above=10**12).max_value == 10**12
    assert ids.reserve(tag, 1)[0] == 10**12 + 1
    with pytest.raises(InvalidSetting, match="above must be 1000000000001 to"):
        ids.tags.repair(tag, above=10)
    with pytest.raises(errors.UnknownTag):
        ids.tags.repair(f"{tag}-unknown")


@SQLITE
def test_repair_goes_on_where_one_tag_does_not_fit(fresh):
    with other(fresh) as ids:
        ids.tags.create("a", limit=50), ids.tags.create("b", limit=2**53 - 1)
        done = run(fresh, "tags", "repair", "--all")
        assert (done.code, ids.tags.get("b").max_value > 0) == (1, True)
    assert "tag 'a' has only 50 ids left" in done.err


# -- moves in the middle of something


def moving(connection, *_: object) -> None:
    connection.exec_driver_sql(MOVED)


@SQLITE
def test_a_tag_whose_making_meets_a_failover_begins_above_it_and_a_start_that_was_said_is_refused(
    fresh, database, monkeypatch
):
    database.snapshot()
    meanwhile(monkeypatch, segments, "make", moving)
    assert database.open_segment(Tag("order"), create=True).max_value > LEAST
    meanwhile(monkeypatch, segments, "make", moving)
    with pytest.raises(InvalidSetting, match="tag 'bill' was left as it is; it may have given ids"):
        database.create_tag(Tag("bill"), database.settled_shard())
    assert database.create_tag(Tag("bill"), database.settled_shard())
    assert database.fetch_tag("bill").max_value == 0
    execute(fresh, "CREATE TABLE given (id INTEGER PRIMARY KEY)")
    tags = Tags(lambda: [database], Tag("tags"))
    for call, tag, verb in (
        (lambda: tags.create("late", start_after=7), "late", "fetch_tag"),
        (lambda: tags.create("late", start_after_column="given.id"), "late", "read_column"),
        (lambda: tags.set("bill", start_after=7), "bill", "fetch_tag"),
        (lambda: tags.repair("bill", above=7), "bill", "fetch_tag"),
    ):
        meanwhile(monkeypatch, Database, verb, lambda *_: execute(fresh, MOVED))
        with pytest.raises(InvalidSetting, match=f"tag '{tag}' was left as it is"):
            call()
    repair = tags.repairing(7)
    execute(fresh, MOVED)
    with pytest.raises(InvalidSetting, match="tag 'bill' was left as it is"):
        repair("bill")


def test_a_move_that_is_cut_off_leaves_nothing(fresh, database, monkeypatch):
    database.register_node()
    execute(fresh, MOVED)

    meanwhile(monkeypatch, type(database.dialect), "skip_nodes", die)
    with pytest.raises(KeyboardInterrupt):
        database.settled_snapshot()
    assert values(fresh, "SELECT server_run FROM allocator_shard") == ["elsewhere"]
    assert database.register_node() > NODES_SKIPPED


@contextmanager
def held_row(url: str) -> Iterator[None]:
    with administrator(url) as hanging:
        hanging.exec_driver_sql("BEGIN")
        hanging.exec_driver_sql("UPDATE allocator_shard SET made = made + 1")
        yield
        hanging.exec_driver_sql("ROLLBACK")


@ON_SERVERS
def test_while_a_new_tag_or_a_move_hangs_claims_of_other_tags_go_on(fresh, database):
    """As where its process was stopped between two statements."""
    with other(fresh, timeout=2) as ids:
        ids.reserve("order", 10)
        with held_row(fresh):
            assert [len(ids.reserve("order", 10)) for _ in range(3)] == [10] * 3
            began = time()
            with pytest.raises(DatabaseUnavailable):
                ids.next_id("bill")
            assert time() - began < 5
    # Closed: else its next try could note the move before the row hangs again.
    database.timeout = 1
    execute(fresh, MOVED)
    with held_row(fresh):
        began = time()
        with pytest.raises(DatabaseUnavailable):
            database.settled_snapshot()
        assert time() - began < 3
    assert database.settled_snapshot().shard.move.first_value > LEAST


@ON_SERVERS
def test_who_is_late_to_note_a_failover_needs_no_lock(fresh, kind):
    """Else each of hundreds that notice it would have to get the lock of the row once, and most would not in time."""
    with closing(Database(fresh, 1)) as late, closing(Database(fresh)) as first:
        execute(fresh, MOVED)
        start = late.snapshot()
        first.settled_snapshot()
        with held_row(fresh):
            assert not late.write_move(start)


def test_after_a_failover_a_new_process_has_no_snowflake_for_a_minute_and_others_go_on(sync, fresh):
    short = {"snowflake": SnowflakeSettings(lease=6)}
    before = sync(fresh, **short)
    ids = [before.snowflake()]
    execute(fresh, MOVED)

    with pytest.raises(DatabaseUnavailable, match=r"numbers are leased again in [56]\d s, and renewed meanwhile"):
        sync(fresh, timeout=1, **short).snowflake()
    renewals = "SELECT renewals FROM allocator_lease"
    assert until(lambda: ids.append(before.snowflake()) or values(fresh, renewals) != [0])
    ids += [before.snowflake() for _ in range(10_000)]
    assert distinct(ids)


def test_a_clock_that_is_years_ahead_delays_no_lease_for_years(sync, fresh, monkeypatch):
    """A process that only makes a tag may be the first to notice a failover."""
    sync(fresh).next_id("before")
    execute(fresh, MOVED)
    monkeypatch.setattr("allocator.database.store.time_ns", lambda: time_ns() + 10 * 365 * 86_400 * 10**9)
    sync(fresh).next_id("order")
    monkeypatch.undo()

    with pytest.raises(DatabaseUnavailable, match=r"numbers are leased again in (19|20)\d s"):
        sync(fresh).worker("billing").__enter__()


def test_a_missing_row_is_damage(sync, fresh):
    ids = sync(fresh)
    ids.next_id("order")
    execute(fresh, "DELETE FROM allocator_shard")
    for call in (lambda: ids.reserve("order", 1), lambda: ids.next_id("bill"), ids.meteor, ids.create_tables):
        with pytest.raises(errors.SchemaDamaged, match="no row in allocator_shard.*restore the row from a backup"):
            call()
    execute(fresh, "DELETE FROM allocator_segment")
    with other(fresh) as another:
        assert another.next_id("order") == 1  # as of tables that somebody's migration has made


# -- servers that come back


def serve(file: Path, other: Path) -> None:
    """Another server goes on: its file takes this place, and keeps its inode and its birth."""
    file.rename(f"{file}.then")
    other.rename(file)
    Path(f"{file}.then").rename(other)


NOTED = {
    "claim": lambda database, tag: database.claim_segment(tag.name, 10, {}),
    "repair": lambda database, tag: database.repair_segment(tag, None, Shard()),
    "node": lambda database, tag: database.register_node(),
    "new tag": lambda database, tag: database.create_tag(Tag("fresh")),
}


@rule(8)
@SQLITE
@pytest.mark.parametrize("verb", NOTED)
def test_a_server_that_comes_back_gives_nothing_of_what_was_forgotten(verb, fresh, file):
    """Tags that were quiet while another one served are not taken for rows that it wrote."""
    standby = Path(f"{file}.standby")
    with other(fresh) as ids:
        ids.tags.create("strict", failover_gap="refuse")
        before = [one for name in ("quiet", "strict", "busy") for one in ids.next_ids(name, 100)]
    shutil.copyfile(file, standby)
    before += [one for name in ("quiet", "strict", "busy") for one in ids_of_another(fresh, name, 100)]
    serve(file, standby)
    with closing(Database(fresh)) as database:
        NOTED[verb](database, database.fetch_tag("busy"))
    shutil.copyfile(file, standby)  # the old primary is copied anew
    serve(file, standby)

    assert ids_of_another(fresh, "quiet", 100)[0] > max(before) + LEAST
    with other(fresh) as ids, pytest.raises(ServerReplaced):
        ids.next_id("strict")


# -- fleets


def test_a_slot_skips_ids_of_its_own(fleet):
    urls = fleet(2)
    with Allocator(shards=urls, step=10, max_step=10) as ids:
        before = ids.next_ids("order", 40)
    for url in urls:
        execute(bare(url), f"{FORGET.format(20)}, move = 7")
    with Allocator(shards=urls, step=10, max_step=10) as ids:
        after = ids.next_ids("order", 40)

    assert distinct([*before, *after]) == 80
    assert min(after) > 2 * LEAST
    assert {one % 2 for one in after} == {0, 1}


@on("sqlite", of="fleet_kind")
@pytest.mark.parametrize("act", ["use", "set", "set a start"])
def test_a_slot_that_forgot_a_young_tag_begins_it_above_all_ids_of_it(fleet, act):
    """Whatever makes its row again, though another slot knows a lower id of the tag."""
    urls = fleet(2)
    with Allocator(shards=urls) as ids:
        drawn = [*ids.reserve("order", 10_000), *ids.reserve("order", 10)]
        assert drawn[0] % 2 == 0  # of the second one
    execute(bare(urls[1]), "DELETE FROM allocator_segment", MOVED)
    with Allocator(shards=urls) as ids:
        if act == "set":
            ids.tags.set("order", step=500)
        elif act == "set a start":
            with pytest.raises(InvalidSetting, match="start_after must be at least"):
                ids.tags.set("order", start_after=5)
    with Allocator(shards=urls) as ids:
        for _ in range(4):
            drawn += ids.reserve("order", 1000)

    assert distinct(drawn) == 14_010


@on("sqlite", of="fleet_kind")
def test_a_limit_that_leaves_a_slot_no_ids_after_a_failover_is_set_on_all(fleet):
    urls = fleet(2)
    with Allocator(shards=urls) as ids:
        ids.reserve("order", 10)
        ids.reserve("order", 10)
        execute(bare(urls[1]), "DELETE FROM allocator_segment", MOVED)

        assert ids.tags.last_claimed("order") > LEAST
        assert ids.tags.set("order", limit=1_000_000).limit == 1_000_000
    for url in urls:
        assert values(bare(url), "SELECT id_limit FROM allocator_segment WHERE tag = 'order'") == [1_000_000]


# -- each database's own ways


@pytest.fixture
def file(fresh: str, kind: str) -> Path:
    return Path(make_url(fresh).database or "")


def on_volume(monkeypatch: pytest.MonkeyPatch, fsid: int) -> None:
    """Let statvfs() tell this of every file system."""
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_fsid=fsid))


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


EXT4, ANOTHER_EXT4 = 0xED5DFE61172DB1BD, 0x0AA92C0A081511D6
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere statvfs() tells nothing that lasts")
PLACES = {
    "a copy with the same inode on another volume": (on_volume, EXT4, ANOTHER_EXT4, True),
    "a copy that got the inode of a file that was removed": (born, 1000, 1001, True),
    "the number of a device after a reboot": (on_volume, 0xFE00, 0x10301, False),
    "musl": (on_volume, EXT4, EXT4 & 0xFFFFFFFF, False),
    "a network file system": (on_volume, 0, 0xFE00, False),
}
"""What the system tells of a file and its place, before and after, and whether it is another one."""


@ON_LINUX
@SQLITE
@pytest.mark.parametrize(("place", "before", "after", "is_moved"), PLACES.values(), ids=PLACES)
def test_a_file_is_told_by_its_inode_and_its_volume_or_birth(fresh, place, before, after, is_moved, monkeypatch):
    drawn = []
    for told in (before, after, after):
        place(monkeypatch, told)
        with other(fresh) as ids:
            drawn.append([ids.next_ids("order", 100)[-1], ids.ticket("job")])
    skipped = [[late - early > 1000 for early, late in zip(*pair, strict=True)] for pair in pairwise(drawn)]

    assert skipped == [[is_moved, is_moved], [False, False]]


@ON_LINUX
def test_the_birth_of_a_file_is_what_the_system_tells(tmp_path):
    file = tmp_path / "ids.db"
    file.touch()
    told = subprocess.check_output(["stat", "--format=%W", file], text=True).strip()
    nanoseconds = sqlite_file.run_of_file(str(file)).partition("+")[2]

    assert int(nanoseconds or "0", 16) // 10**9 == int(told)


@SQLITE
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


def run_at(url: str) -> str:
    with closing(Database(url)) as database:
        return database.snapshot().run


@ON_MYSQL
def test_a_server_whose_restarts_are_guarded_is_another_one_after_each_start(fresh, monkeypatch):
    with other(fresh) as ids:
        ids.reserve("order", 10)
    monkeypatch.setenv(GUARD_RESTARTS, "1")
    with other(fresh) as ids:
        first = ids.reserve("order", 10)[-1]
    here = run_at(fresh)
    server, _, start = here.partition("-")
    execute(fresh, "DO BENCHMARK(17000000, UUID_SHORT())")  # after so many it tells a later start

    assert first > LEAST
    assert run_at(fresh) == here
    assert ids_of_another(fresh, "order", 1)[0] == first + 1
    for was in (f"{server}-{int(start) + 99}", f"{server}-{int(start) - 99}", f"{'0' * 8}-{start}"):
        execute(fresh, f"UPDATE allocator_shard SET server_run = '{was}'")
        assert run_at(fresh) != was


@ON_MYSQL
def test_a_session_that_was_changed_under_us_says_again_where_it_is(fresh):
    """As a proxy does that leads a connection to another server."""
    with other(fresh) as ids:
        database = database_of(ids)
        for draw in (lambda: ids.reserve("order", 1)[0], lambda: ids.ticket("job")):
            first = draw()
            database.run(lambda connection, _: connection.exec_driver_sql("SET @allocator_run = NULL"))
            assert [first, draw()] == [1, 2]


AT_COMMIT = """CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO at_commit VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$"""


NOTING = """CREATE CONSTRAINT TRIGGER noting AFTER INSERT OR UPDATE ON allocator_{0}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION noted()"""


@ON_POSTGRES
def test_each_claim_is_written_to_disk_whatever_the_role_is_set_to(sync, fresh, monkeypatch):
    """A crash of a process of the server's forgets commits that were not, and begins no other run."""
    monkeypatch.setattr(PostgreSQL, "words", PostgreSQL.words._replace(mends="NULL"))  # no trigger that notes
    sync(fresh).ticket("job")
    off = f"ALTER DATABASE {make_url(fresh).database} SET synchronous_commit = off"
    tables = (NOTING.format(table) for table in ("segment", "node", "lease"))
    execute(fresh, off, "CREATE TABLE at_commit (setting text)", AT_COMMIT, *tables)
    ids = sync(fresh)
    draws = [lambda: ids.ticket("job"), lambda: ids.ticket("case"), ids.meteor, ids.snowflake]
    for draw in (*draws, lambda: ids.reserve("order", 1)):
        draw()
        assert {*values(fresh, "SELECT setting FROM at_commit")} == {"on"}
        execute(fresh, "DELETE FROM at_commit")
    execute(fresh, MOVED)
    with closing(Database(fresh)) as database:
        database.settled_snapshot()
    execute(fresh, "DELETE FROM at_commit")
    assert sync(fresh).reserve("order", 1)[0] > LEAST

    assert values(fresh, "SELECT setting FROM at_commit") == ["on"]
    assert values(fresh, "SHOW synchronous_commit") == ["off"]


@ON_POSTGRES
def test_maintenance_is_no_failover_and_a_table_that_was_made_again_from_a_dump_is_one(fresh):
    before = run_at(fresh)
    with other(fresh) as ids:
        for number, work in enumerate(
            ("VACUUM FULL allocator_segment", "REINDEX TABLE allocator_segment", "CHECKPOINT")
        ):
            ids.reserve("order", 1)
            execute(fresh, work)
            assert ids.reserve("order", 1)[0] == 2 * number + 2, work
    execute(
        fresh,
        "CREATE TABLE dump AS SELECT * FROM allocator_segment",
        "DROP TABLE allocator_segment",
        "ALTER TABLE dump RENAME TO allocator_segment",
    )

    assert run_at(fresh) != before


@ON_POSTGRES
def test_a_run_of_postgresql_is_a_cluster_a_timeline_a_database_and_a_table(fresh, monkeypatch):
    with administrator(fresh) as connection:
        cluster, timeline, table, database, since = connection.execute(
            text("""SELECT system_identifier, timeline_id, CAST(CAST('allocator_segment' AS regclass) AS oid),
                (SELECT oid FROM pg_database WHERE datname = current_database()),
                extract(epoch FROM pg_postmaster_start_time())
            FROM pg_control_system(), pg_control_checkpoint()""")
        ).one()
    run = f"{cluster}/{timeline:08X}/{database}/{table}"

    assert run_at(fresh) == run
    monkeypatch.setenv(GUARD_RESTARTS, "1")
    each, _, start = run_at(fresh).partition("@")
    assert each == run
    assert abs(int(start) / 1e6 - float(since)) < 0.001

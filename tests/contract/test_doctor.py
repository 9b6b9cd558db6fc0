"""What `allocator doctor` finds on real databases: each thing is made, seen, and was not there before."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from support.faults.ill_databases import Patient, as_nobody, changed, named
from support.kit import ON_POSTGRES, ON_SERVERS, SQLITE
from support.servers.administrator import administrator, execute
from support.servers.available import server
from support.servers.databases import one_of_each, with_schema
from support.servers.fleets import made

from allocator import Allocator, AsyncAllocator
from allocator.database import checks as of_files
from allocator.database import sqlite as sqlite_file
from allocator.database.tables import REVISIONS
from allocator.doctor import DANGER, NOTE, OUTAGE, Finding, Severity, examine
from allocator.errors import InvalidDatabase, InvalidSetting
from allocator.testing import MemoryAllocator


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Patient]]:
    """One database of each kind for all these tests, each of which leaves it as it was."""
    with one_of_each("doctor", tmp_path_factory.mktemp("doctor"), Patient) as get:
        yield get


@pytest.fixture
def patient(kind: str, patients: Callable[[str], Patient]) -> Patient:
    return patients(kind)


# -- nothing is wrong


def test_a_plain_database_has_no_danger_and_no_outage(patient):
    assert examine(patient.url) == []


def test_looking_changes_nothing(kind, patient):
    with Allocator(patient.url) as ids:
        ids.tags.create("untouched", start_after=7)
        before = content(patient.url)
        examine(ids)

    assert content(patient.url) == before
    execute(patient.url, "DELETE FROM allocator_segment")


def content(url: str) -> list[object]:
    with administrator(url) as connection:
        return [
            connection.exec_driver_sql(f"SELECT * FROM allocator_{name}").all()
            for name in ("segment", "ticket", "shard", "node", "lease", "schema_version")
        ]


# -- what the rows say


TAG = "INSERT INTO allocator_segment (tag, max_value, step, max_step, id_limit, failover_gap, move) VALUES"
OURS = "(SELECT move FROM allocator_shard)"
LEASED = ", ".join(
    f"('@snowflake', {number}, 10, 20000, 'a', 0, 9000000000000, 9000000000000, 'host', 1, '1/41/5/5/12 1288834974657')"
    for number in range(820)
)
ROWS = (
    f"INSERT INTO allocator_lease VALUES {LEASED}",
    f"{TAG} ('ends', 95, 1, 10, 100, 1000000000, {OURS}), ('astray', 5, 1, 10, 9000000000000000000, 10, {OURS})",
    "UPDATE allocator_segment SET shard_offset = 2, shard_step = 3 WHERE tag = 'astray'",
    f"{TAG} ('bare', 5, 1, 10, 9000000000000000000, 0, {OURS}), ('waiting', 5, 1, 10, 100000, -1, 7)",
)
NODE = {"postgres": "INSERT INTO allocator_node OVERRIDING SYSTEM VALUE VALUES (900000, 'host', 1, '1', now(), 1, 1)"}
PLAIN_NODE = "INSERT INTO allocator_node VALUES (900000, 'host', 1, '1', '2026-11-01', 1, 1)"
EMPTY = tuple(f"DELETE FROM allocator_{name}" for name in ("segment", "node", "lease"))


OF_ROWS = {
    "tag-near-limit": (OUTAGE, "'ends' has 5 of 100 ids left"),
    "tag-of-another-lane": (DANGER, "'astray' has offset 2 and step 3, but this database is slot 1 of 1"),
    "failover-gap-zero": (NOTE, "'bare' skip no ids after a failover"),
    "failover-gap-near-limit": (OUTAGE, "'ends' has 5 ids left"),
    "server-replaced": (OUTAGE, "'waiting' issue no ids: the database server changed"),
    "workers-run-out": (OUTAGE, "820 of 1024 worker numbers of the space '@snowflake' are held"),
    "nodes-run-out": (OUTAGE, "900000 of 1048575 node numbers"),
}


def wrong(found: dict[str, Finding], expected: dict[str, tuple[Severity, str]]) -> dict[str, Finding | None]:
    """What is not found with its severity and its words, by name."""
    return {
        name: found.get(name)
        for name, (severity, words) in expected.items()
        if name not in found or found[name].severity is not severity or words not in found[name].found
    }


@pytest.mark.statements
def test_rows_that_will_stop_ids_or_repeat_them(kind, patient):
    with changed(patient.url, (*ROWS, NODE.get(kind, PLAIN_NODE)), EMPTY):
        found = patient.found()

    assert OF_ROWS.keys() & patient.healthy == set()
    assert wrong(found, OF_ROWS) == {}
    assert all(found[name].mend for name in OF_ROWS)


@ON_SERVERS
def test_a_clock_that_differs_from_the_databases(patient):
    for by, severity, said in ((8, NOTE, "8 s ahead of"), (-8, NOTE, "8 s behind"), (3600, OUTAGE, "3600 s ahead of")):
        found = patient.found(clock=lambda by=by: time.time() + by)["clocks-differ"]
        assert (found.severity, f"is {said} the database's" in found.found) == (severity, True)
    assert "clocks-differ" not in patient.healthy


def test_tables_that_are_ahead_or_missing(kind, patient, new_database):
    ahead = patient.shows(
        "schema-out-of-date",
        "UPDATE allocator_schema_version SET version_num = '9999'",
        f"UPDATE allocator_schema_version SET version_num = '{REVISIONS[-1]}'",
    )
    assert "is at revision 9999" in ahead.found
    if kind != "sqlite":
        none = named(examine(new_database(kind)))["schema-out-of-date"]
        assert none.severity == OUTAGE
        assert none.mend == "run: allocator db upgrade"


# -- the tables and the server


@ON_POSTGRES
def test_a_server_that_refuses_claims(patient):
    database = patient.url.rpartition("/")[2]
    setting = f"ALTER DATABASE {database} {{}} default_transaction_read_only"
    make, undo = f"{setting.format('SET')} = on", setting.format("RESET")
    found = patient.shows("claims-refused", make, undo, admin=server("postgres").url)

    assert (found.severity, "is read-only" in found.found) == (OUTAGE, True)
    assert "ALTER ROLE" in found.mend


# -- a file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ids.db"


def test_a_file_on_a_network_file_system(file, monkeypatch, tmp_path_factory):
    mounts = tmp_path_factory.mktemp("proc") / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/ids {file.parent} nfs4 rw 0 0\n")
    patient = Patient(f"sqlite:///{file}")
    monkeypatch.setattr(of_files, "MOUNTS", mounts)
    found = patient.found()["network-file-system"]

    assert (found.severity, patient.healthy) == (DANGER, set())
    assert f"{file} is on a network file system (nfs4)" in found.found


def test_a_file_with_two_names(file, monkeypatch):
    patient = Patient(f"sqlite:///{file}")
    os.link(file, file.with_name("other.db"))
    monkeypatch.setattr(sqlite_file, "checked", set())  # as another process
    found = patient.found()

    assert {name: one.severity for name, one in found.items()} == {"refused": OUTAGE}
    assert "has 2 hard links" in found["refused"].found


def test_a_file_that_another_program_has_locked(file):
    patient = Patient(f"sqlite:///{file}")
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    found = patient.found(timeout=0.2)["claims-refused"]
    holder.execute("ROLLBACK")
    holder.close()

    assert (found.severity, "is locked by another process" in found.found) == (OUTAGE, True)


@pytest.mark.parametrize("barred", ["file", "folder"])
def test_what_may_not_be_written(open_folder, barred):
    file = open_folder / "ids.db"
    patient = Patient(f"sqlite:///{file}")
    file.chmod(0o666 if barred == "folder" else 0o444)
    open_folder.chmod(0o777 if barred == "file" else 0o555)
    with as_nobody():
        found = patient.found()["claims-refused"]

    assert (found.severity, "that this user may write both" in found.mend) == (OUTAGE, True)


def test_a_file_that_is_not_there_is_not_made(file):
    found = [*examine(f"sqlite:///{file}"), *examine(f"sqlite:///{file.parent}/nowhere/ids.db")]

    assert [(one.name, one.mend) for one in found] == [("unreachable", "check the path, or put it back")] * 2
    assert not file.exists()


# -- a fleet


def new_fleet(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    urls = made([with_schema(f"sqlite:///{folder}/{name}.db") for name in ("one", "two", "three")])
    with Allocator(shards=urls) as ids:
        for _ in range(3):
            ids.ticket("job")
            ids.reserve("order", 5)
            ids.ping()
    return urls


CHANGES = {
    "shard-is-another": (DANGER, "and the database is slot", "UPDATE allocator_shard SET slot = 1"),
    "tag-of-another-lane": (DANGER, "has offset 3 and step 3", "UPDATE allocator_segment SET shard_offset = 3"),
    "tag-half-deleted": (
        OUTAGE,
        "their deletion has begun",
        "UPDATE allocator_segment SET shard_step = 0, shard_offset = 1",
    ),
}


def test_a_slot_that_was_changed_by_hand(tmp_path):
    for name, (severity, words, change) in CHANGES.items():
        fleet = new_fleet(tmp_path / name)
        assert examine(fleet) == []
        execute(fleet[1].partition("?shard=")[0], change)
        found = named(examine(fleet))[name]
        assert (found.severity, words in found.found) == (severity, True), found
        assert found.mend, name


def test_a_url_that_names_no_slot_and_one_that_was_not_given(tmp_path):
    one, two, three = new_fleet(tmp_path)
    silent = named(examine(one.partition("?shard=")[0]))
    fewer = named(examine([one, two]))["not-looked-at"]

    assert (silent["url-names-no-slot"].severity, fewer.severity) == (NOTE, NOTE)
    assert silent["url-names-no-slot"].mend.startswith(f"add ?shard={one.rpartition('shard=')[2]} to the URL")
    assert "slot 3" in fewer.found
    with pytest.raises(InvalidDatabase, match="both say slot"):
        examine([one, two, three, one])


# -- what may be given


@SQLITE
def test_an_allocator_of_either_face_an_engine_and_a_list_are_examined_alike(patient):
    async def through_asyncio() -> list[Finding]:
        async with AsyncAllocator(patient.url) as ids:
            return examine(ids)

    engine = create_engine(patient.url)
    with Allocator(patient.url) as ids:
        answers = [examine(one) for one in (patient.url, [patient.url], ids, engine)]
    engine.dispose()

    assert all(answer == answers[0] for answer in [*answers, asyncio.run(through_asyncio())])


def test_what_is_no_database_is_refused():
    for address in ("http://127.0.0.1:1", "unix:///run/allocator/ids.sock"):
        with Allocator(address) as ids, pytest.raises(InvalidSetting, match=f"and ids come from {address}"):
            examine(ids)
    with MemoryAllocator() as ids, pytest.raises(InvalidSetting, match="and ids come from memory; pass the URL"):
        examine(ids)
    with pytest.raises(InvalidDatabase):
        examine("not a url")

"""What `allocator doctor` finds on real databases: each thing is made, seen, and was not there before."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, make_url
from support.faults.ill_databases import Patient, changed, named
from support.kit import ON_MYSQL, ON_POSTGRES, ON_SERVERS, SQLITE, database_of, on
from support.processes.patience import until
from support.servers.administrator import administrator, execute, opened, values
from support.servers.available import own
from support.servers.databases import with_schema
from support.servers.fleets import made

from allocator import Allocator
from allocator.database import checks as of_files
from allocator.database.store import Database
from allocator.database.tables import REVISIONS
from allocator.doctor import DANGER, NOTE, OUTAGE, Finding, Severity, examine
from allocator.errors import InvalidDatabase

OPTIONS = {
    "mysql": (),
    "postgres": (),
    "mariadb": (
        "--log-bin",
        "--wsrep-on=ON",
        "--wsrep-provider=/usr/lib/libgalera_smm.so",
        "--wsrep-new-cluster",
        "--wsrep-cluster-address=gcomm://",
        "--binlog-format=ROW",
        "--sync-binlog=1",
    ),
}
"""MariaDB is a Galera cluster of one node, and no cluster where it is switched off, as it is but for its own tests."""


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Patient]]:
    """One server of each kind, started when it is first asked for; each test leaves it as it was."""
    with ExitStack() as stack:

        @cache
        def get(kind: str) -> Patient:
            if kind == "sqlite":
                return Patient(f"sqlite:///{tmp_path_factory.mktemp('doctor')}/ids.db")
            url = stack.enter_context(own(kind, *OPTIONS[kind]))
            if kind == "mariadb":
                execute(url, "SET GLOBAL wsrep_on = OFF")
            execute(url, "CREATE DATABASE patient")
            return Patient(make_url(url).set(database="patient").render_as_string(hide_password=False))

        yield get


ON_MARIADB = on("mariadb")


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
        examine(patient.url)

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


def test_rows_that_will_stop_ids_or_repeat_them(kind, patient):
    with changed(patient.url, (*ROWS, NODE.get(kind, PLAIN_NODE)), EMPTY):
        found = patient.found()

    assert OF_ROWS.keys() & patient.healthy == set()
    assert wrong(found, OF_ROWS) == {}
    assert all(found[name].mend for name in OF_ROWS)


@ON_SERVERS
def test_a_clock_that_differs_from_the_databases(patient):
    found = patient.found(clock=lambda: time.time() - 8)["clocks-differ"]

    assert (found.severity, "is 8 s behind the database's" in found.found) == (NOTE, True)
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
def test_a_database_that_refuses_claims(patient):
    setting, admin = "ALTER DATABASE patient {} default_transaction_read_only", make_url(patient.url)
    make, undo = f"{setting.format('SET')} = on", setting.format("RESET")
    found = patient.shows("claims-refused", make, undo, admin=admin.set(database="postgres").render_as_string(False))

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
def test_an_engine_and_a_list_are_examined_alike(patient):
    engine = create_engine(patient.url)
    answers = [examine(one) for one in (patient.url, [patient.url], engine)]
    engine.dispose()

    assert all(answer == answers[0] for answer in answers)


def test_what_is_no_database_is_refused():
    with pytest.raises(InvalidDatabase):
        examine("not a url")


# -- a server's own settings: PostgreSQL


def await_setting(url: str, name: str, value: str) -> None:
    """A reload is told to the processes of a server, and not awaited."""
    assert until(lambda: values(url, f"SHOW {name}") == [value], 10)


@contextmanager
def system(url: str, name: str, value: str) -> Iterator[None]:
    with administrator(url) as connection:
        before = connection.exec_driver_sql(f"SHOW {name}").scalar_one()
    make = (f"ALTER SYSTEM SET {name} = '{value}'", "SELECT pg_reload_conf()")
    with changed(url, make, (f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")):
        await_setting(url, name, value)
        yield
    await_setting(url, name, before)


@ON_POSTGRES
def test_settings_of_postgresql_that_lose_commits_are_one_finding_and_the_guard_counts_each_start(patient):
    names = ("fsync", "full_page_writes")
    before = server_run(patient.url)
    neon = "ALTER DATABASE patient {} neon.timeline_id"
    for name in names:
        with system(patient.url, name, "off"):
            found = patient.found()["not-durable"]
            assert server_run(patient.url).startswith(f"{before}@")
            with changed(patient.url, f"{neon.format('SET')} = 'f00'", neon.format("RESET")):
                on_neon = set(patient.found())
            execute(patient.url, *found.mend.split("; "))
            await_setting(patient.url, name, "on")
            mended = set(patient.found())

        assert (found.severity, "off: a crash of the server may lose commits" in found.found) == (DANGER, True)
        assert on_neon == mended == patient.healthy == set()


def server_run(url: str) -> str:
    """By a new connection, as the failover guard sees it."""
    with closing(Database(url)) as database:
        return database.snapshot().run


# -- MySQL and MariaDB


@contextmanager
def variables(url: str, **values: str) -> Iterator[None]:
    with administrator(url) as connection:
        before = {name: connection.exec_driver_sql(f"SELECT @@GLOBAL.{name}").scalar_one() for name in values}
    make = tuple(f"SET GLOBAL {name} = {value}" for name, value in values.items())
    with changed(url, make, tuple(f"SET GLOBAL {name} = {value!r}" for name, value in before.items())):
        yield


ON_BOTH = [
    ("binlog-of-statements", "STATEMENT", {"binlog_format": "'STATEMENT'"}),
    ("several-writers", "is 2 and auto_increment_offset 1", {"auto_increment_increment": "2"}),
]
OF_MYSQL = {
    "mysql": [*ON_BOTH, ("not-durable", "innodb_doublewrite is DETECT_ONLY", {"innodb_doublewrite": "DETECT_ONLY"})],
    "mariadb": ON_BOTH,
}


@ON_MYSQL
def test_settings_of_mysql(kind, patient):
    for name, words, settings in OF_MYSQL[kind]:
        with variables(patient.url, **settings):
            found = patient.found()[name]
        assert (found.severity, words in found.found, name in patient.healthy) == (DANGER, True, False)


@ON_MYSQL
def test_a_server_that_refuses_claims(patient):
    """An administrator may write all the same."""
    made = ("CREATE USER drawer IDENTIFIED BY 'Secret-1'", "GRANT ALL ON patient.* TO drawer")
    plain = make_url(patient.url).set(username="drawer", password="Secret-1")
    with changed(patient.url, made, "DROP USER drawer"), variables(patient.url, read_only="ON"):
        (found,) = [one for one in examine(plain) if one.name == "claims-refused"]

    assert (found.severity, "is read-only" in found.found) == (OUTAGE, True)


@ON_MYSQL
def test_settings_of_mysql_that_lose_commits_are_one_finding_and_the_guard_counts_each_start(kind, patient):
    before = server_run(patient.url)
    settings = {"innodb_flush_log_at_trx_commit": "2", "sync_binlog": "0"}
    for name, value in settings.items():
        with variables(patient.url, **{name: value}):
            assert f"{name} is {value}" in patient.found()["not-durable"].found
            assert server_run(patient.url).startswith(f"{before}-")
        assert server_run(patient.url) == before
    if kind == "mariadb":
        with variables(patient.url, innodb_flush_log_at_trx_commit="3"):  # in three steps, and durable
            assert "not-durable" not in patient.found()
            assert server_run(patient.url) == before
    with variables(patient.url, **settings):
        found = patient.found()["not-durable"]

    assert "not-durable" not in patient.healthy
    assert found.severity == DANGER
    assert "set innodb_flush_log_at_trx_commit = 1, sync_binlog = 1 in the server's configuration" in found.mend


FOLLOW = {
    "mysql": (
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_USER = 'x', SOURCE_PASSWORD = 'x'",
        "RESET REPLICA ALL",
    ),
    "mariadb": ("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'x'", "RESET SLAVE ALL"),
}


@ON_MYSQL
@pytest.mark.nightly
def test_a_replica_that_can_be_written_to(kind, patient):
    with changed(patient.url, *FOLLOW[kind]):
        found = patient.found()
        with variables(patient.url, read_only="ON"):
            quiet = patient.found()

    assert "replica-written" not in patient.healthy
    assert found["replica-written"].severity == DANGER
    assert "replica-written" not in quiet


@ON_MARIADB
@pytest.mark.nightly
def test_a_run_names_the_cluster_of_its_server_and_another_cluster_is_a_failover(patient):
    """Also to the connection of an application, in a migration."""
    alone = server_run(patient.url)
    with changed(patient.url, "SET GLOBAL wsrep_on = ON", "SET GLOBAL wsrep_on = OFF"), Allocator(patient.url) as ids:
        first = ids.next_id("member")
        database = database_of(ids)
        run = database.settled_snapshot().shard.move.run
        session = database.run(lambda connection, _: connection.exec_driver_sql("SELECT @allocator_run").scalar())
        joined = ids.reserve("member", 1)[0]
        with opened(patient.url) as engine, engine.begin() as connection:
            Operations(MigrationContext.configure(connection)).create_tag("migrated")
        assert ids.tags.get("migrated").move == ids.tags.get("member").move
        execute(patient.url, "UPDATE allocator_shard SET server_run = 'F00.'")
        after = ids.reserve("member", 1)[0]

        assert run == session == f"{crc32(b'my_wsrep_cluster/patient'):X}." != alone
        assert (joined < first + 100, database.settled_snapshot().shard.move.run) == (True, run)
        assert after > first + 2**22

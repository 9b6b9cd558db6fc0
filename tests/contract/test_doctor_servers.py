"""What the doctor finds of a server's own settings: on servers that these tests may change."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from zlib import crc32

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, make_url
from support.faults.ill_databases import Patient, changed, replica_of
from support.processes.patience import until
from support.servers.administrator import execute, values
from support.servers.available import own
from support.servers.throwaway import postgres_binaries

from allocator import Allocator
from allocator.database.store import Database
from allocator.database.verbs import servers
from allocator.doctor import DANGER, NOTE, OUTAGE, Finding, Severity, examine

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
def patients() -> Iterator[Callable[[str], Patient]]:
    """One server of each kind, started when it is first asked for."""
    with ExitStack() as stack:

        @cache
        def get(kind: str) -> Patient:
            url = stack.enter_context(own(kind, *OPTIONS[kind]))
            if kind == "mariadb":
                execute(url, "SET GLOBAL wsrep_on = OFF")
            execute(url, "CREATE DATABASE patient")
            return Patient(make_url(url).set(database="patient").render_as_string(hide_password=False))

        yield get


@pytest.fixture
def patient(kind: str, patients: Callable[[str], Patient]) -> Patient:
    return patients(kind)


ON_POSTGRES = pytest.mark.parametrize("kind", ["postgres"], indirect=True)
ON_MYSQL = pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
ON_MARIADB = pytest.mark.parametrize("kind", ["mariadb"], indirect=True)


@pytest.mark.parametrize("kind", OPTIONS, indirect=True)
def test_a_plain_server_has_no_danger_and_no_outage(patient):
    assert patient.healthy == set()


# -- PostgreSQL


def await_setting(url: str, name: str, value: str) -> None:
    """A reload is told to the processes of a server, and not awaited."""
    assert until(lambda: values(url, f"SHOW {name}") == [value], 10)


@contextmanager
def system(url: str, name: str, value: str) -> Iterator[None]:
    engine = create_engine(url)
    with engine.connect() as connection:
        before = connection.exec_driver_sql(f"SHOW {name}").scalar_one()
    engine.dispose()
    make = (f"ALTER SYSTEM SET {name} = '{value}'", "SELECT pg_reload_conf()")
    with changed(url, make, (f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")):
        await_setting(url, name, value)
        yield
    await_setting(url, name, before)


@ON_POSTGRES
def test_settings_of_postgresql_that_lose_commits_are_one_finding_and_the_guard_counts_each_start(patient):
    names = ("fsync", "full_page_writes")
    before = server_run(patient.url)
    for name in names:
        with system(patient.url, name, "off"):
            assert f"{name} is off; so each restart of the server skips ids" in patient.found()["not-durable"].found
            assert server_run(patient.url) != before
    neon = "ALTER DATABASE patient {} neon.timeline_id"
    with system(patient.url, names[0], "off"), system(patient.url, names[1], "off"):
        found = patient.found()["not-durable"]
        with changed(patient.url, f"{neon.format('SET')} = 'f00'", neon.format("RESET")):
            on_neon = set(patient.found())
        execute(patient.url, *found.mend.split("; "))
        for name in names:
            await_setting(patient.url, name, "on")
        mended = set(patient.found())

    assert found.severity == DANGER
    assert "fsync is off, full_page_writes is off" in found.found
    assert on_neon == mended == patient.healthy == set()


def server_run(url: str) -> str:
    """By a new connection, as the failover guard sees it."""
    with closing(Database(url)) as database:
        return database.run(servers.fetch_run, "").run


def severity_without_a_gap(patient: Patient) -> Severity:
    """Of a tag that skips nothing after a failover."""
    columns = "tag, max_value, step, max_step, id_limit, failover_gap"
    row = f"INSERT INTO allocator_segment ({columns}) VALUES ('bare', 5, 1, 10, 9000000000, 0)"
    with changed(patient.url, row, "DELETE FROM allocator_segment"):
        return patient.found()["failover-gap-zero"].severity


@contextmanager
def standby_of(url: str, folder: object, name: str) -> Iterator[None]:
    """Whoever takes the log of a server as it comes, as a standby does."""
    target = make_url(url)
    who = f"user={target.username} password='{target.password or ''}' application_name={name}"
    words = [
        str(postgres_binaries("pg_receivewal") / "pg_receivewal"),
        "-d",
        f"host={target.host} port={target.port} {who}",
        "-D",
        str(folder),
        "--synchronous",
        "--status-interval=1",  # or it looks only every ten seconds whether it is to end
        "--no-password",
    ]
    receiver = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_standby(url, name)
        yield
    finally:
        receiver.terminate()
        receiver.wait(10)


def await_standby(url: str, name: str) -> None:
    asked = f"SELECT pid FROM pg_stat_replication WHERE application_name = '{name}' AND state = 'streaming'"
    assert until(lambda: values(url, asked), 10)


@ON_POSTGRES
@pytest.mark.nightly
def test_a_standby_that_follows_asynchronously_is_a_danger_where_no_gap_is_skipped(patient, tmp_path):
    alone = severity_without_a_gap(patient)
    with standby_of(patient.url, tmp_path, "second"):
        assert set(patient.found()) == patient.healthy
        asynchronous = severity_without_a_gap(patient)
        with system(patient.url, "synchronous_standby_names", "second"):
            synchronous = severity_without_a_gap(patient)

    assert (alone, asynchronous, synchronous) == (NOTE, DANGER, NOTE)


@ON_POSTGRES
@pytest.mark.nightly
def test_a_role_that_may_not_see_the_standbys(patient, tmp_path):
    made = ("CREATE ROLE watcher LOGIN PASSWORD 'Secret-1'", "GRANT SELECT ON allocator_schema_version TO watcher")
    gone = ("DROP OWNED BY watcher", "DROP ROLE watcher")
    url = make_url(patient.url).set(username="watcher", password="Secret-1")
    with changed(patient.url, made, gone), standby_of(patient.url, tmp_path, "second"):
        (found,) = [one for one in examine(url) if one.name == "not-looked-at" and "standbys" in one.found]
        execute(patient.url, found.mend)
        mended = [one for one in examine(url) if one.name == "not-looked-at" and "standbys" in one.found]

    assert found.found == "cannot check the standbys of this server: this role may not read pg_stat_replication"
    assert found.mend == "GRANT pg_monitor TO watcher"
    assert mended == []


@ON_POSTGRES
@pytest.mark.nightly
def test_a_tool_that_copies_the_log_is_no_standby(patient, tmp_path):
    with standby_of(patient.url, tmp_path, "pg_receivewal"):
        assert severity_without_a_gap(patient) == NOTE


# -- MySQL and MariaDB


@contextmanager
def variables(url: str, **values: str) -> Iterator[None]:
    engine = create_engine(url)
    with engine.connect() as connection:
        before = {name: connection.exec_driver_sql(f"SELECT @@GLOBAL.{name}").scalar_one() for name in values}
    engine.dispose()
    make = tuple(f"SET GLOBAL {name} = {value}" for name, value in values.items())
    with changed(url, make, tuple(f"SET GLOBAL {name} = {value!r}" for name, value in before.items())):
        yield


OF_MYSQL = {
    "binlog-of-statements": (DANGER, "STATEMENT", {"binlog_format": "'STATEMENT'"}),
    "several-writers": (DANGER, "is 2 and auto_increment_offset 1", {"auto_increment_increment": "2"}),
    "server-read-only": (OUTAGE, "read_only is ON", {"read_only": "ON"}),
}


@ON_MYSQL
def test_settings_of_mysql(patient):
    found = {}
    for name, (_, _, settings) in OF_MYSQL.items():
        with variables(patient.url, **settings):
            found[name] = patient.found()[name]

    assert OF_MYSQL.keys() & patient.healthy == set()
    assert {name: one.severity for name, one in found.items()} == {name: row[0] for name, row in OF_MYSQL.items()}
    assert [one.found for name, one in found.items() if OF_MYSQL[name][1] not in one.found] == []


@ON_MYSQL
def test_settings_of_mysql_that_lose_commits_are_one_finding_and_the_guard_counts_each_start(patient):
    before = server_run(patient.url)
    settings = {"innodb_flush_log_at_trx_commit": "2", "sync_binlog": "0"}
    for name, value in settings.items():
        with variables(patient.url, **{name: value}):
            words = f"{name} is {value}; so each restart of the server skips ids"
            assert words in patient.found()["not-durable"].found
            assert server_run(patient.url) != before
    with variables(patient.url, **settings):
        found = patient.found()["not-durable"]

    assert "not-durable" not in patient.healthy
    assert found.severity == DANGER
    assert "set innodb_flush_log_at_trx_commit = 1, sync_binlog = 1 in the server's configuration" in found.mend


@pytest.mark.parametrize("kind", ["mysql"], indirect=True)
@pytest.mark.nightly
def test_pages_that_cannot_be_mended(patient):
    with variables(patient.url, innodb_doublewrite="DETECT_ONLY"):
        found = patient.found()["not-durable"]

    assert found.severity == DANGER
    assert found.found.endswith("innodb_doublewrite is DETECT_ONLY")


@ON_MARIADB
def test_a_log_that_is_flushed_in_three_steps_is_durable(patient):
    before = server_run(patient.url)
    with variables(patient.url, innodb_flush_log_at_trx_commit="3"):
        assert "not-durable" not in patient.found()
        assert server_run(patient.url) == before


@ON_MYSQL
@pytest.mark.nightly
def test_a_replica_that_follows_asynchronously_is_a_danger_where_no_gap_is_skipped(kind, patient):
    alone = severity_without_a_gap(patient)
    with replica_of(patient.url):
        asynchronous = severity_without_a_gap(patient)
        if kind == "mariadb":
            with variables(patient.url, rpl_semi_sync_master_enabled="ON"):
                assert severity_without_a_gap(patient) == NOTE

    assert (alone, asynchronous) == (NOTE, DANGER)


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
    assert quiet["server-read-only"].severity == OUTAGE


@ON_MARIADB
@pytest.mark.nightly
def test_a_run_names_the_cluster_of_its_server_and_another_cluster_is_a_failover(patient):
    alone = server_run(patient.url)
    with changed(patient.url, "SET GLOBAL wsrep_on = ON", "SET GLOBAL wsrep_on = OFF"), Allocator(patient.url) as ids:
        first = ids.next_id("member")
        run = ids.tags.get("member").server_run
        database = ids._backend.databases()[0]
        session = database.run(lambda connection, _: connection.exec_driver_sql("SELECT @allocator_run").scalar())
        execute(patient.url, "UPDATE allocator_segment SET server_run = 'F00.A' WHERE tag = 'member'")
        execute(patient.url, "UPDATE allocator_failover SET server_run = 'F00.A'")
        after = ids.reserve("member", 1)[0]

        assert run == session == f"{crc32(b'my_wsrep_cluster'):X}.{alone}"
        assert ids.tags.get("member").server_run == run
        assert after > first + 2**22


@ON_MARIADB
@pytest.mark.nightly
def test_a_migration_on_a_member_of_a_cluster_makes_a_tag(patient):
    """Its connection is the application's, and must tell the run as our own do."""
    engine = create_engine(patient.url)
    with changed(patient.url, "SET GLOBAL wsrep_on = ON", "SET GLOBAL wsrep_on = OFF"), Allocator(patient.url) as ids:
        ids.next_id("member")
        with engine.begin() as connection:
            Operations(MigrationContext.configure(connection)).create_tag("migrated")

        assert ids.tags.get("migrated").server_run == ids.tags.get("member").server_run
    engine.dispose()


@ON_MARIADB
@pytest.mark.nightly
def test_a_node_of_galera(patient):
    with changed(patient.url, "SET GLOBAL wsrep_on = ON", "SET GLOBAL wsrep_on = OFF"):
        found: dict[str, Finding] = patient.found()

    assert set(found) - patient.healthy == {"galera-several-writers"}
    assert "this is one of 1 nodes" in found["galera-several-writers"].found
    assert found["galera-several-writers"].severity == NOTE

"""What the doctor finds of a server's own settings: on servers that these tests may change."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from zlib import crc32

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, make_url
from support.faults.ill_databases import Patient, changed
from support.kit import ON_MYSQL, ON_POSTGRES, database_of, on
from support.processes.patience import until
from support.servers.administrator import administrator, execute, values
from support.servers.available import own

from allocator import Allocator
from allocator.database.store import Database
from allocator.doctor import DANGER, OUTAGE, examine

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


ON_MARIADB = on("mariadb")


@pytest.mark.parametrize("kind", OPTIONS, indirect=True)
def test_a_plain_server_has_no_danger_and_no_outage(patient):
    assert patient.healthy == set()


# -- PostgreSQL


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
        return database.start().run


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
def test_settings_of_mysql_that_lose_commits_are_one_finding_and_the_guard_counts_each_start(patient):
    before = server_run(patient.url)
    settings = {"innodb_flush_log_at_trx_commit": "2", "sync_binlog": "0"}
    for name, value in settings.items():
        with variables(patient.url, **{name: value}):
            assert f"{name} is {value}" in patient.found()["not-durable"].found
            assert server_run(patient.url).startswith(f"{before}-")
        assert server_run(patient.url) == before
    with variables(patient.url, **settings):
        found = patient.found()["not-durable"]

    assert "not-durable" not in patient.healthy
    assert found.severity == DANGER
    assert "set innodb_flush_log_at_trx_commit = 1, sync_binlog = 1 in the server's configuration" in found.mend


@ON_MARIADB
def test_a_log_that_is_flushed_in_three_steps_is_durable(patient):
    before = server_run(patient.url)
    with variables(patient.url, innodb_flush_log_at_trx_commit="3"):
        assert "not-durable" not in patient.found()
        assert server_run(patient.url) == before


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
    alone = server_run(patient.url)
    with changed(patient.url, "SET GLOBAL wsrep_on = ON", "SET GLOBAL wsrep_on = OFF"), Allocator(patient.url) as ids:
        first = ids.next_id("member")
        database = database_of(ids)
        run = database.current().shard.move.run
        session = database.run(lambda connection, _: connection.exec_driver_sql("SELECT @allocator_run").scalar())
        joined = ids.reserve("member", 1)[0]
        execute(patient.url, "UPDATE allocator_shard SET server_run = 'F00.'")
        after = ids.reserve("member", 1)[0]

        assert run == session == f"{crc32(b'my_wsrep_cluster/patient'):X}." != alone
        assert (joined < first + 100, database.current().shard.move.run) == (True, run)
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

        assert ids.tags.get("migrated").move == ids.tags.get("member").move
    engine.dispose()

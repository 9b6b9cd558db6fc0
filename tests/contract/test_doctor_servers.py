"""What the doctor finds of a server's own settings: on servers that these tests may change."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

import pytest
from sqlalchemy import create_engine, make_url
from support.faults.ill_databases import Patient, changed, replica_of
from support.processes.patience import until
from support.servers.administrator import execute, values
from support.servers.available import own
from support.servers.throwaway import postgres_binaries

from allocator.doctor import DANGER, NOTE, OUTAGE, Finding, examine

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
        "--innodb-autoinc-lock-mode=1",
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
    assert patient.healthy == {"role-is-superuser"}


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


OF_POSTGRES = {
    "fsync-off": (DANGER, "fsync", "off"),
    "full-page-writes-off": (DANGER, "full_page_writes", "off"),
    "synchronous-standby-away": (OUTAGE, "synchronous_standby_names", "ghost"),
}


@ON_POSTGRES
def test_settings_of_postgresql(patient):
    found = {}
    for name, (_, setting, value) in OF_POSTGRES.items():
        with system(patient.url, setting, value):
            found[name] = patient.found()[name]

    assert OF_POSTGRES.keys() & patient.healthy == set()
    assert {name: one.severity for name, one in found.items()} == {name: row[0] for name, row in OF_POSTGRES.items()}
    assert [one.found for name, one in found.items() if OF_POSTGRES[name][2] not in one.found] == []


@contextmanager
def standby_of(url: str, folder: object, name: str) -> Iterator[None]:
    """Whoever takes the log of a server as it comes, as a standby does."""
    target = make_url(url)
    who = f"user={target.username} password='{target.password or ''}' application_name={name}"
    words = [
        str(postgres_binaries() / "pg_receivewal"),
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
    columns = "tag, max_value, step, max_step, id_limit, failover_gap"
    row = f"INSERT INTO allocator_segment ({columns}) VALUES ('bare', 5, 1, 10, 9000000000, 0)"
    with standby_of(patient.url, tmp_path, "second"):
        found = patient.found()
        with changed(patient.url, row, "DELETE FROM allocator_segment"):
            bare = patient.found()

    assert "asynchronous-standby" not in patient.healthy
    assert found["asynchronous-standby"].severity == NOTE
    assert "1 standbys follow asynchronously (second)" in found["asynchronous-standby"].found
    assert "failover-gap-zero" not in found
    assert bare["failover-gap-zero"].severity == DANGER


@ON_POSTGRES
@pytest.mark.nightly
def test_a_role_that_may_not_see_the_standbys(patient, tmp_path):
    made = ("CREATE ROLE watcher LOGIN PASSWORD 'Secret-1'", "GRANT SELECT ON allocator_schema_version TO watcher")
    gone = ("DROP OWNED BY watcher", "DROP ROLE watcher")
    url = make_url(patient.url).set(username="watcher", password="Secret-1")
    with changed(patient.url, made, gone), standby_of(patient.url, tmp_path, "second"):
        (found,) = [one for one in examine(url) if one.name == "not-looked-at" and "standbys" in one.found]
        execute(patient.url, found.mend)
        seen = {one.name for one in examine(url)}

    assert found.found == "cannot check the standbys of this server: this role may not read pg_stat_replication"
    assert found.mend == "GRANT pg_monitor TO watcher"
    assert "asynchronous-standby" in seen


@ON_POSTGRES
@pytest.mark.nightly
def test_a_standby_that_is_waited_for(patient, tmp_path):
    with standby_of(patient.url, tmp_path, "second"), system(patient.url, "synchronous_standby_names", "second"):
        names = set(patient.found())

    assert names == patient.healthy


@ON_POSTGRES
@pytest.mark.nightly
def test_a_standby_that_claims_do_not_wait_for(patient):
    database = "ALTER DATABASE patient"
    with (  # in this order: no commit ends while one waits for a standby that is away
        changed(patient.url, f"{database} SET synchronous_commit = local", f"{database} RESET synchronous_commit"),
        system(patient.url, "synchronous_standby_names", "second"),
    ):
        found = patient.found()

    assert "synchronous-commit-local" not in patient.healthy
    assert found["synchronous-commit-local"].severity == NOTE
    assert "synchronous-standby-away" not in found


@ON_POSTGRES
@pytest.mark.nightly
def test_a_tool_that_copies_the_log_is_no_standby(patient, tmp_path):
    with standby_of(patient.url, tmp_path, "pg_receivewal"):
        assert set(patient.found()) == patient.healthy


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
    "innodb-flush": (DANGER, "is 2", {"innodb_flush_log_at_trx_commit": "2"}),
    "sync-binlog": (DANGER, "sync_binlog is 0", {"sync_binlog": "0"}),
    "binlog-of-statements": (DANGER, "STATEMENT", {"binlog_format": "'STATEMENT'"}),
    "several-writers": (DANGER, "is 2 and auto_increment_offset 1", {"auto_increment_increment": "2"}),
    "server-read-only": (OUTAGE, "read_only is ON", {"read_only": "ON"}),
    "sql-mode-not-strict": (NOTE, "sql_mode is ''", {"sql_mode": "''"}),
    "connections-few": (OUTAGE, "max_connections leaves room for", {"max_connections": "12"}),
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


@pytest.mark.parametrize("kind", ["mysql"], indirect=True)
@pytest.mark.nightly
def test_pages_that_cannot_be_mended(patient):
    with variables(patient.url, innodb_doublewrite="DETECT_ONLY"):
        found = patient.found()["doublewrite-off"]

    assert "doublewrite-off" not in patient.healthy
    assert found.severity == DANGER
    assert "innodb_doublewrite is DETECT_ONLY" in found.found


@ON_MARIADB
@pytest.mark.nightly
def test_a_statement_may_take_no_time(patient):
    with variables(patient.url, max_statement_time="0.5"):
        assert patient.found()["statement-timeout"].severity == OUTAGE
    assert "statement-timeout" not in patient.healthy


@ON_MYSQL
@pytest.mark.nightly
def test_a_replica_that_follows_asynchronously(kind, patient):
    with replica_of(patient.url):
        found = patient.found()["asynchronous-standby"]
        if kind == "mariadb":
            with variables(patient.url, rpl_semi_sync_master_enabled="ON"):
                assert "asynchronous-standby" not in patient.found()

    assert "asynchronous-standby" not in patient.healthy
    assert found.severity == NOTE
    assert "1 replicas follow" in found.found


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
def test_a_node_of_galera(patient):
    with changed(patient.url, "SET GLOBAL wsrep_on = ON", "SET GLOBAL wsrep_on = OFF"):
        found: dict[str, Finding] = patient.found()

    galera = {"galera-too-small", "galera-several-writers", "autoinc-lock-mode"}
    assert set(found) - patient.healthy == galera
    assert found["galera-too-small"].severity == OUTAGE
    assert "the cluster has 1 nodes" in found["galera-too-small"].found
    assert found["galera-several-writers"].severity == NOTE
    assert "innodb_autoinc_lock_mode is 1" in found["autoinc-lock-mode"].found

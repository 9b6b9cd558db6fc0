"""Settings of a server, a role or a database that change a session: what was given is committed all the same."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from time import time, time_ns
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.pool import base as pool_base
from support.distinct import distinct
from support.kit import ON_POSTGRES, database_of
from support.rules import rule
from support.servers.administrator import administrator, execute
from support.servers.available import own
from support.servers.databases import with_schema

from allocator import Allocator
from allocator.database.address import dialect_of
from allocator.database.dialect import Dialect, transaction
from allocator.database.schema import HEAD
from allocator.database.store import Database
from allocator.database.verbs import worker_number_rows
from allocator.errors import DatabaseRefused, DatabaseUnavailable
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease

LEASE = 30_000
COMMITTED = {
    "ticket": "SELECT max(id) FROM (SELECT id FROM allocator_ticket "
    "UNION SELECT max_value FROM allocator_segment WHERE tag = '.ticket:job') t",
    "node": "SELECT max(id) FROM allocator_node",
    "number": "SELECT max(used_until_ms) FROM allocator_lease",
}
numbers = itertools.count(1)


def transact(connection: Connection, dialect: Dialect) -> None:
    with transaction(connection, dialect):
        connection.exec_driver_sql("SELECT 1")


@contextmanager
def drawn(source: Any, **settings: Any) -> Iterator[dict[str, int]]:
    """The greatest of each thing that can be given, by its name or its tag; whoever drew it is still connected."""
    single = f"tag{next(numbers)}"
    with (
        Allocator(source, step=10, max_step=10, failover_gap=0, **settings) as ids,
        closing(Database(source)) as database,
    ):
        for name in (single, f"{single}-b"):
            ids.tags.create(name, step=10)
        assert {single, f"{single}-b"} <= {tag.name for tag in ids.tags.list()}, "a limit of the server hides no tag"
        found = {single: max(ids.next_ids(single, 15)), "ticket": ids.ticket("job")}
        found[single] = ids.reserve(single, 7)[-1]
        found["ticket"] = ids.ticket("job")
        ids.meteor()
        database.run(transact)
        found["node"] = database.register_node()
        wall = time_ns() // 1_000_000
        held = NumberLease("pods", next(numbers), f"{next(numbers)}", LEASE)
        claim = NumberClaim("pods", 31, LEASE, wall, held.holder)
        # Not by `lease_number`, which waits where a setting made the server another run.
        assert database.run(worker_number_rows.take, held.number, claim, database.settled_snapshot().shard)
        database.renew_number(held, wall + 1)
        found["number"] = wall + 1 + LEASE
        yield found


def committed(connection: Connection, name: str) -> int:
    question = COMMITTED.get(name, f"SELECT max_value FROM allocator_segment WHERE tag = '{name}'")
    return connection.exec_driver_sql(question).scalar() or 0


def check(source: Any, reader: Connection, **settings: Any) -> None:
    """Nothing that was given is greater than what another connection sees, while whoever drew it has not ended."""
    with drawn(source, **settings) as found:
        lost = {name: value for name, value in found.items() if committed(reader, name) < value}
    assert not lost


# -- MySQL and MariaDB

EVERYWHERE = """
* autocommit = 0
  init_connect = 'SET autocommit = 0'
* init_connect = 'SET autocommit = 0, completion_type = 1'
* init_connect = 'START TRANSACTION'
* completion_type = CHAIN
  completion_type = 2
* sql_mode = ''
  sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'
  sql_mode = 'TRADITIONAL,NO_AUTO_VALUE_ON_ZERO'
  sql_safe_updates = 1
* sql_select_limit = 1
  max_join_size = 1
  sql_auto_is_null = 1
  foreign_key_checks = 0
  unique_checks = 0
* auto_increment_increment = 7, GLOBAL auto_increment_offset = 3
  innodb_lock_wait_timeout = 1
  lock_wait_timeout = 1
  max_error_count = 0
  default_storage_engine = MyISAM
  innodb_flush_log_at_trx_commit = 2
"""
"""With each change those with a star are tried; by night all."""
OF_KIND = {
    "mysql": """
  transaction_isolation = 'READ-UNCOMMITTED'
* transaction_isolation = 'SERIALIZABLE'
* transaction_read_only = 1
  max_execution_time = 1
  sql_require_primary_key = 1
  binlog_row_image = MINIMAL
""",
    "mariadb": """
  tx_isolation = 'READ-UNCOMMITTED'
* tx_isolation = 'SERIALIZABLE'
* tx_read_only = 1
  sql_mode = ORACLE
  sql_mode = 'MAXDB,SIMULTANEOUS_ASSIGNMENT,EMPTY_STRING_IS_NULL'
  max_statement_time = 0.001
  system_versioning_alter_history = KEEP
  old_mode = ''
""",
}


def tried(*before: str, settings: str) -> list[Any]:
    """Each setting, after what is the same for all."""
    lines = settings.strip("\n").splitlines()
    return [pytest.param(*before, line[2:], marks=() if line[0] == "*" else pytest.mark.nightly) for line in lines]


PLAIN = ("plain", "plain")


class Own:
    """A server of this module's own, with a database that a plain user may use: `init_connect` is for such alone."""

    def __init__(self, kind: str, stack: ExitStack) -> None:
        self.admin = make_url(stack.enter_context(own(kind)))
        name, password = PLAIN
        execute(
            self.admin,
            "CREATE DATABASE settings",
            f"CREATE USER {name}@'%' IDENTIFIED BY '{password}'",
            f"GRANT ALL ON settings.* TO {name}@'%'",
        )
        plain = self.admin.set(username=name, password=password, database="settings")
        self.url = with_schema(plain.render_as_string(hide_password=False))
        self.reader = stack.enter_context(administrator(self.admin.set(database="settings")))
        """Its session is from before whatever is set."""

    @contextmanager
    def set(self, setting: str) -> Iterator[None]:
        names = [part.split(" = ")[0] for part in setting.split(", GLOBAL ")]
        before = {name: self.reader.exec_driver_sql(f"SELECT @@GLOBAL.{name}").scalar_one() for name in names}
        self.reader.exec_driver_sql(f"SET GLOBAL {setting}")
        try:
            yield
        finally:
            again = ", GLOBAL ".join(f"{name} = {value!r}" for name, value in before.items())
            self.reader.exec_driver_sql(f"SET GLOBAL {again}")


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], Own]]:
    with ExitStack() as stack:
        yield cache(lambda kind: Own(kind, stack))


@pytest.fixture
def server(kind: str, servers: Callable[[str], Own]) -> Own:
    return servers(kind)


ROWS = [one for kind in OF_KIND for one in tried(kind, settings=EVERYWHERE.rstrip() + OF_KIND[kind])]


@rule(1)
@pytest.mark.parametrize(("kind", "setting"), ROWS)
def test_a_setting_of_the_server_takes_no_id_back(server, setting):
    with server.set(setting):
        check(server.url, server.reader)


FROM_NOTHING = [
    *tried("mysql", settings="* autocommit = 0"),
    *tried("mysql", settings="  auto_increment_increment = 3, GLOBAL auto_increment_offset = 7"),
    *tried("mariadb", settings="* completion_type = CHAIN\n  init_connect = 'SET autocommit = 0'"),
    *tried("mariadb", settings="  sql_mode = ORACLE\n* auto_increment_increment = 7, GLOBAL auto_increment_offset = 3"),
]


@pytest.mark.parametrize(("kind", "setting"), FROM_NOTHING)
def test_what_an_upgrade_has_done_is_there_when_it_says_so(server, setting):
    server.reader.exec_driver_sql("DROP DATABASE settings")
    server.reader.exec_driver_sql("CREATE DATABASE settings")
    server.reader.exec_driver_sql("USE settings")
    with server.set(setting):
        with closing(Database(server.url, 60)) as database:
            database.upgrade_schema()
            found = server.reader.exec_driver_sql("SELECT version_num FROM allocator_schema_version").scalars().all()
        check(server.url, server.reader)

    assert found == [HEAD]


@pytest.mark.parametrize("kind", OF_KIND)
def test_a_server_that_is_numbered_as_one_of_several_is_warned_of(server, caplog):
    with Allocator(server.url) as ids:
        ids.ticket("alone")
    assert not [record for record in caplog.records if "auto_increment_offset" in record.message]

    with server.set("auto_increment_increment = 2, GLOBAL auto_increment_offset = 2"), Allocator(server.url) as ids:
        tickets = [ids.ticket("alone") for _ in range(3)]
    (told,) = [record.message for record in caplog.records if "auto_increment_offset" in record.message]

    assert "has auto_increment_offset = 2 and auto_increment_increment = 2, as one of 2 servers" in told
    assert tickets[2] - tickets[0] == 2


@pytest.mark.parametrize("kind", OF_KIND)
def test_a_process_that_runs_learns_within_a_minute_that_its_server_is_not_durable(server, monkeypatch):
    """Else a crash of the server, which its sessions would survive by their retry, would forget what they claim."""

    def known() -> str:
        return database.run(lambda connection, _: connection.exec_driver_sql("SELECT @allocator_run").scalar())

    with closing(Database(server.url)) as database:
        before = known()
        with server.set("innodb_flush_log_at_trx_commit = 2"):
            assert known() == before
            monkeypatch.setattr(pool_base, "time", SimpleNamespace(time=lambda: time() + 61))
            assert known().startswith(f"{before}-")


@pytest.mark.parametrize("kind", ["mysql"])
def test_a_binary_log_of_statements_is_refused_in_a_sentence(server):
    with server.set("binlog_format = 'STATEMENT'"), Allocator(server.url) as ids:
        for call in (lambda: ids.next_id("order"), lambda: ids.ticket("job"), ids.meteor):
            with pytest.raises(DatabaseRefused, match="SET GLOBAL binlog_format = 'ROW'"):
                call()


class Silent:
    """A driver that does not say whether a transaction is open, as mysqlclient does not."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        if name in {"server_status", "_read_timeout", "_write_timeout"}:
            raise AttributeError(name)
        return getattr(self._connection, name)


CHANGES = {
    "sqlite": (("CREATE TEMP TABLE shop AS SELECT 'shop'",), "SELECT * FROM shop"),
    "postgres": (("SET application_name = 'shop'",), "SELECT current_setting('application_name')"),
    **dict.fromkeys(OF_KIND, (("SET @shop = 'shop'", "START TRANSACTION", "SELECT 1"), "SELECT @shop")),
}
"""What a listener does, which begins a transaction on a server, and how it is seen."""
LISTENERS = [(kind, "engine") for kind in CHANGES] + [("postgres", "class"), *((kind, "silent") for kind in OF_KIND)]


@rule(1, 4)
@pytest.mark.parametrize(("kind", "where"), LISTENERS, indirect=["kind"])
def test_what_a_listener_sets_lasts_and_a_transaction_that_it_begins_is_over_before_the_first_claim(fresh, kind, where):
    """A listener on the class Engine prepares the connections of all engines, ours too."""
    url, (changes, question) = make_url(fresh), CHANGES[kind]
    place = dict(host=url.host, port=url.port, user=url.username, password=url.password, database=url.database)

    def connect() -> Any:
        connection = pymysql.connect(**place, autocommit=True)
        return Silent(connection) if where == "silent" else connection

    engine = create_engine(url, **{"creator": connect} if kind in OF_KIND else {})
    target = Engine if where == "class" else engine

    def prepare(connection: Any, record: object) -> None:
        with closing(connection.cursor()) as cursor:
            for words in changes:
                cursor.execute(words)

    with administrator(url) as reader, ExitStack() as stack:
        event.listen(target, "connect", prepare)
        stack.callback(event.remove, target, "connect", prepare)
        source = fresh if where == "class" else engine
        check(source, reader)
        with closing(Database(source)) as database:
            assert database.run(lambda connection, _: connection.exec_driver_sql(question).scalar()) == "shop"
    engine.dispose()


# -- PostgreSQL

OF_POSTGRES = """
  default_transaction_isolation = 'repeatable read'
* default_transaction_isolation = 'serializable'
  default_transaction_deferrable = on
* synchronous_commit = off
  session_replication_role = replica
  standard_conforming_strings = off
* statement_timeout = '4s'
  lock_timeout = '1s'
  idle_in_transaction_session_timeout = '1s'
  row_security = off
  transform_null_equals = on
"""


@contextmanager
def set_in(url: str, setting: str) -> Iterator[Connection]:
    """Of a database, for sessions that begin then; with one from before."""
    with administrator(url) as reader:
        reader.exec_driver_sql(f"ALTER DATABASE {make_url(url).database} SET {setting}")
        yield reader


@rule(1)
@ON_POSTGRES
@pytest.mark.parametrize("setting", tried(settings=OF_POSTGRES))
def test_a_setting_of_the_database_takes_no_id_back(fresh, setting):
    with set_in(fresh, setting) as reader:
        check(fresh, reader)


@ON_POSTGRES
def test_a_role_that_is_read_only_hears_how_to_mend_it(fresh):
    with set_in(fresh, "default_transaction_read_only = on"), Allocator(fresh, timeout=2) as ids:
        for draw in (lambda: ids.reserve("order", 1), lambda: ids.ticket("job")):
            with pytest.raises(DatabaseUnavailable, match="is read-only: .* SET default_transaction_read_only = off"):
                draw()


@ON_POSTGRES
def test_a_transaction_of_ours_is_not_what_the_role_is_set_to(fresh):
    def seen(connection: Connection, dialect: Dialect) -> tuple[str, str]:
        with transaction(connection, dialect):
            shown = ("transaction_isolation", "transaction_read_only")
            return tuple(connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in shown)

    for setting in ("isolation = serializable", "read_only = on"):
        with set_in(fresh, f"default_transaction_{setting}"), closing(Database(fresh)) as database:
            assert database.run(seen) == ("read committed", "off")


@ON_POSTGRES
def test_a_database_of_bytes_is_read_as_texts(fresh):
    name = f"{make_url(fresh).database}_ascii"
    execute(fresh, f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    with Allocator(make_url(fresh).set(database=name)) as ids:
        ids.create_tables()
        assert ids.next_id("order") == 1
    execute(fresh, f"DROP DATABASE {name}")


# -- the proof, whatever a session was made to be


@contextmanager
def held_open(url: str) -> Iterator[tuple[Allocator, list[Any]]]:
    """An allocator whose next connection is in a transaction that nobody commits, as behind a proxy; and that one."""
    engine, held = create_engine(url), []

    def begin(connection: Any, *_: object) -> None:
        if not held:
            held.append(connection)
            with closing(connection.cursor()) as cursor:
                cursor.execute("BEGIN")

    with Allocator(engine, failover_gap=0) as ids:
        assert list(ids.reserve("order", 5)) == [1, 2, 3, 4, 5]
        event.listen(database_of(ids).engine, "checkout", begin)
        yield ids, held
    engine.dispose()


@rule(1)
@pytest.mark.parametrize("what", ["ids", "tickets"])
def test_what_is_given_in_a_transaction_that_stays_open_is_burnt(fresh, what):
    with held_open(fresh) as (ids, held):
        draw = {"ids": lambda: [*ids.reserve("order", 5)], "tickets": lambda: [ids.ticket("job")]}[what]
        with pytest.raises(DatabaseUnavailable, match="a transaction was still open .*; what it claimed is burnt"):
            draw()
        before = draw()
    with Allocator(fresh) as ids:
        after = draw()

    assert len(held) == 1
    assert distinct([*before, *after])


@rule(1)
def test_control_without_the_proof_they_are_given_twice(fresh, kind, monkeypatch):
    monkeypatch.setattr(type(dialect_of(make_url(fresh).get_backend_name())), "leaves_open", lambda *_: False)
    with held_open(fresh) as (ids, held):
        before = list(ids.reserve("order", 5))
        held[0].close()  # as when the process is killed
    with Allocator(fresh) as ids:
        after = list(ids.reserve("order", 5))

    assert before == after == [6, 7, 8, 9, 10]

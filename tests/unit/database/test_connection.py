"""Which connections are used again, and which exceptions reach the caller as they are."""

from __future__ import annotations

import ast
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from sqlalchemy import Connection, MetaData, event
from sqlalchemy.exc import DBAPIError, OperationalError, StatementError
from sqlalchemy.pool import QueuePool
from support.rules import rule

import allocator
from allocator import Allocator
from allocator.database import connection as module
from allocator.database import verbs
from allocator.database.address import address_of, dialect_of
from allocator.database.django.transaction import DjangoCaller
from allocator.database.driver_errors import (
    MISPLACED,
    is_contended,
    translate,
    translate_drawn,
    upgrade_of,
)
from allocator.database.mysql import MySQL
from allocator.database.postgresql import PostgreSQL
from allocator.database.store import Database
from allocator.database.tables import Stored, metadata
from allocator.database.verbs.gapless_number_rows import number_dialect, translated
from allocator.database.verbs.number_columns import engine_for
from allocator.errors import (
    AllocatorError,
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    InvalidDatabase,
    NumberBusy,
    NumberConflict,
    SchemaOutOfDate,
)
from allocator.runtime.threads import takes_signals


class TooLate(Exception):
    """As a task queue raises it in a signal handler, at a soft time limit."""


INTERRUPTS = (TooLate(), MemoryError(), ValueError(), KeyboardInterrupt(), SystemExit())


def plain(connection: Connection, dialect: object, error: BaseException | None = None, sql: str = "SELECT 1") -> object:
    """Raises in the middle of its statement."""
    used = connection.connection.dbapi_connection
    connection.exec_driver_sql(sql)
    if error:
        raise error
    return used


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """With a pool, as of a server."""
    monkeypatch.setattr(module, "NullPool", QueuePool)
    monkeypatch.setattr("allocator.database.sqlite.left", deque(maxlen=0))  # a connection may stay open
    made = Database(f"sqlite:///{tmp_path}/ids.db")
    yield made
    made.close()


def test_what_the_database_answers_is_translated_and_its_connection_stays(runner):
    used = runner.run(plain)
    with pytest.raises(SchemaOutOfDate):
        runner.run(plain, None, "SELECT 1 FROM allocator_nowhere")
    with pytest.raises(DatabaseUnavailable, match="ours"):
        runner.run(plain, DatabaseUnavailable("ours"))

    assert runner.run(plain) is used


@pytest.mark.parametrize("raised", [*INTERRUPTS, StatementError("no cursor", "SELECT 1", {}, TooLate())])
def test_what_interrupts_a_verb_reaches_the_caller_and_ends_the_connection(runner, raised):
    """Half of an answer may still be on the wire, which the next statement would read as its own."""
    error, used = getattr(raised, "orig", raised), runner.run(plain)
    with pytest.raises(type(error)) as caught:
        runner.run(plain, raised)

    assert caught.value is error
    assert runner.run(plain) is not used


def test_a_database_in_memory_is_not_ended():
    runner = Database("sqlite://")

    @event.listens_for(runner.engine, "do_execute")
    def interrupt(cursor: object, sql: str, *_: object) -> None:
        if sql == "SELECT 2":
            raise KeyboardInterrupt

    used = runner.run(plain)
    for error in INTERRUPTS:
        with pytest.raises(type(error)):
            runner.run(plain, error)
    with pytest.raises(KeyboardInterrupt):
        runner.run(plain, None, "SELECT 2")

    assert runner.run(plain) is used
    runner.close()


def test_an_interrupt_while_a_connection_is_opened_reaches_the_caller(runner):
    """A hook that fails with an error of Python's is told as such, since a driver refuses arguments with them too."""
    raised: list[BaseException] = [TooLate(), MemoryError(), TimeoutError(), KeyboardInterrupt(), KeyError("token")]

    @event.listens_for(runner.engine, "do_connect")
    def hook(*_: object) -> None:
        if raised:
            raise raised.pop(0)

    for error in raised[:4]:
        with pytest.raises(type(error)) as caught:
            runner.run(plain)
        assert caught.value is error
    with pytest.raises(AllocatorError, match="cannot be used: KeyError: 'token'; the driver, or a listener"):
        runner.run(plain)
    runner.run(plain)


def test_a_verb_runs_where_no_signal_handler_can_interrupt_the_pool(runner):
    """One that raised inside of the pool's lock would leave it taken, and one a little later lose a connection."""
    assert takes_signals()
    assert not runner.run(lambda *_: takes_signals())


def test_an_answer_of_an_audit_may_take_longer_than_its_connection():
    told: dict[str, object] = {}

    def note(dialect: object, record: object, arguments: object, given: dict[str, object]) -> None:
        told.update(given)
        raise TooLate

    with engine_for(address_of("mysql+pymysql://user@host/ids"), 3600.0) as engine:
        event.listen(engine, "do_connect", note)
        with pytest.raises(TooLate):
            engine.connect()

    assert (told["connect_timeout"], told["read_timeout"]) == (10, 3600.0)


# -- what becomes of errors that no server of the tests gives: of clusters, TLS, poolers, networks


LEFT_ALONE = [
    (1047, "WSREP has not yet prepared node for application use"),
    (1180, "Error while appending streaming replication fragment"),
    (1290, "The MySQL server is running with the --super-read-only option"),
    (3100, "Error on observer while running replication hook 'before_commit'."),
]


def error(*told: object) -> DBAPIError:
    return DBAPIError("UPDATE", {}, Exception(*told))


def of_postgresql(code: str, words: str) -> DBAPIError:
    told = Exception(words)
    told.sqlstate = code  # type: ignore[attr-defined]
    return DBAPIError("SELECT", {}, told)


def meaning(found: DBAPIError, dialect: MySQL | PostgreSQL) -> AllocatorError:
    return translate(found, dialect, "here", 0.0)


def test_a_member_that_was_left_alone_is_unavailable_and_its_connections_are_left():
    for told in LEFT_ALONE:
        assert type(meaning(error(*told), MySQL())) is DatabaseUnavailable
        assert str(told[0]) in MISPLACED
        assert not is_contended(error(*told), MySQL())


@pytest.mark.parametrize(
    ("code", "words", "is_left"),
    [
        ("25006", "cannot execute UPDATE in a read-only transaction", True),
        ("55000", "recovery is in progress", True),
        ("55000", "Wiederherstellung läuft", True),
        ("55000", "wal_level must be set to 'logical'", False),  # of Aurora, on each connection
        *((code, "wal_level", False) for code in ("55000", "0A000", "42501", "42883", "42704")),
    ],
)
def test_a_standby_of_postgresql_is_left_and_what_comes_again_with_each_try_is_no_outage(code, words, is_left):
    found = of_postgresql(code, words)

    assert (PostgreSQL().code(found.orig) in MISPLACED) is is_left
    assert type(meaning(found, PostgreSQL())) is (DatabaseUnavailable if is_left else DatabaseRefused)


def test_what_certification_rolled_back_is_run_again():
    assert is_contended(error(3101, "Plugin instructed the server to rollback the current transaction."), MySQL())
    assert is_contended(error(1213, "Deadlock found when trying to get lock"), MySQL())


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        ('FATAL:  no pg_hba.conf entry for host "::1", user "u", no encryption', DatabaseRefused, "refuses the login"),
        ("FATAL:  no such database: ids", DatabaseRefused, "there is no such database"),
        ("FATAL:  unsupported startup parameter: options", DatabaseRefused, "is a pooler that refuses an argument"),
        ('root certificate file "/x" does not exist', DatabaseRefused, "do not agree on TLS"),
        ("SSL SYSCALL error: EOF detected", DatabaseUnavailable, "is not available"),
        ("FATAL:  the database system is starting up", DatabaseUnavailable, "is not available"),
        ("FATAL:  sorry, too many clients already", DatabaseUnavailable, "has no connection left"),
        ("expected authentication request from server, but received H", DatabaseRefused, "does not speak the protocol"),
        ("failed to resolve host 'x': [Errno -3] Temporary failure", DatabaseUnavailable, "no address is known"),
        ("Several attempts failed:\n- host: 'a': refused\n- host: 'b': gone", DatabaseUnavailable, "refused - host"),
    ],
)
def test_what_comes_without_a_code_is_told_by_its_words(words, kind, sentence):
    """From libpq and PyMySQL, which refuse or lose a connection."""
    found = meaning(error(words), PostgreSQL())

    assert (type(found), sentence in str(found)) == (kind, True), found


VERIFIED = "Can't connect to MySQL server on 'h' ([SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed)"
REFUSED = "Can't connect to MySQL server on 'h' ([Errno 111] Connection refused)"


@pytest.mark.parametrize(
    ("code", "words", "kind", "sentence"),
    [
        (2003, VERIFIED, DatabaseRefused, "do not agree on TLS"),
        (2003, REFUSED, DatabaseUnavailable, "is not"),
        (2026, "SSL connection error: SSL is required but the server doesn't support it", DatabaseRefused, "on TLS"),
        (1130, "Host 'h' is not allowed to connect to this MySQL server", DatabaseRefused, "refuses: "),
        (1235, "function LOCK IN SHARE MODE has only noop implementation in tidb now", DatabaseRefused, "noop"),
        (3032, "The server is currently in offline mode", DatabaseUnavailable, "is not available"),
        (1969, "Query execution was interrupted (max_statement_time exceeded)", DatabaseUnavailable, "ended the"),
        (1030, "Got error 28 'No space left on device' from storage engine", DatabaseUnavailable, "no space left"),
        (1146, "Table 'allocator_shop.bills' doesn't exist", DatabaseRefused, "lacks what is not the allocator's"),
        (1146, "Table 'shop.allocator_segment' doesn't exist", SchemaOutOfDate, "run: allocator db upgrade"),
        (3, "Error writing file './x' (errno: 28)", DatabaseUnavailable, "has no space left"),
        (1467, "Failed to read auto-increment value from storage engine", DatabaseUnavailable, "was not free"),
    ],
)
def test_what_only_the_words_of_a_code_tell(code, words, kind, sentence):
    found = meaning(error(code, words), MySQL())

    assert (type(found), sentence in str(found)) == (kind, True), found


def test_the_command_that_makes_the_tables_takes_no_driver_for_asyncio():
    for url, shown in [
        ("mysql+asyncmy://host/shop?ssl=require", "mysql"),
        ("mysql+pymysql://host/shop", "mysql+pymysql"),
        ("postgresql+asyncpg://host/shop?ssl=require", "postgresql"),
        ("sqlite+aiosqlite://host/shop", "sqlite"),
    ]:
        assert upgrade_of(url) == f"allocator db upgrade --url {shown}://host/shop"


# -- each verb that is run on a connection of our own is in the table of what a retry may repeat, and why


PACKAGE = Path(allocator.__file__).parent
RUN = {"run", "on_tables", "transact", "_run", "attempt"}
"""What runs a verb, or passes it on."""


def listed(table: str) -> Counter[str]:
    """The names of verbs in the table: its indented lines, after the reason."""
    lines = [line.split() for line in table.splitlines() if line.startswith("    ")]
    return Counter(name for words in lines for name in words if "." in name)


def verbs_run(path: Path) -> Iterator[str]:
    """The verbs that a module has run: functions on a connection, by the names of their modules and their own."""
    tree = ast.parse(path.read_text())
    known = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("allocator.database")
        for alias in node.names
    }
    known |= {
        node.name: f"allocator.database.{path.stem}.{node.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and [one.arg for one in node.args.args][:1] == ["connection"]
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in RUN:
            for given in node.args:
                yield from verbs_in(given, known)


def verbs_in(given: ast.expr, known: dict[str, str]) -> Iterator[str]:
    if isinstance(given, ast.IfExp):
        yield from (*verbs_in(given.body, known), *verbs_in(given.orelse, known))
    elif isinstance(given, ast.Lambda) and isinstance(given.body, ast.Call):
        yield from verbs_in(given.body.func, known)
    elif isinstance(given, ast.Attribute | ast.Name):
        first, *rest = ast.unparse(given).split(".")
        if found := known.get(first):
            yield ".".join([*found.split("."), *rest][-2:])


def test_each_verb_that_is_run_is_listed_once_with_what_a_retry_does():
    known = listed(verbs.__doc__ or "")
    run = {name for path in sorted(PACKAGE.rglob("*.py")) for name in verbs_run(path)}

    assert {"segments.make", "token_rows.add", "shard_row.fetch", "schema.current"} <= run
    assert sorted(run) == sorted(known.elements())


# -- what a driver's error means for a number that was drawn in a caller's transaction


class Failed(Exception):
    """As of the drivers: MySQL's has its number first, the others a code of their own."""

    def __init__(self, code: str) -> None:
        is_number = code.isdecimal() and len(code) == 4
        super().__init__(int(code) if is_number else "words of the driver on allocator_number")
        self.sqlstate = self.sqlite_errorname = code


@pytest.mark.parametrize(
    ("name", "code", "kind", "words"),
    [
        ("postgresql", "55P03", NumberBusy, "another transaction has drawn numbers of 'invoice'"),
        ("mysql", "1205", NumberBusy, "waited 2 seconds; roll back and run the whole transaction again"),
        ("postgresql", "57014", NumberBusy, "the server ended the wait for a number of 'invoice'"),
        ("sqlite", "SQLITE_BUSY", NumberBusy, "SQLite has one writer at a time"),
        ("sqlite", "SQLITE_LOCKED_SHAREDCACHE", NumberBusy, "BEGIN IMMEDIATE"),
        ("postgresql", "40P01", NumberConflict, "draw numbers last, and those of several scopes in one order"),
        ("mysql", "1213", NumberConflict, "deadlock while drawing a number of 'invoice'"),
        ("mysql", "1206", NumberConflict, "rolled back this whole transaction"),
        ("postgresql", "40001", NumberConflict, "or use READ COMMITTED, which waits instead"),
        ("mysql", "1020", NumberConflict, "since this one began"),
        ("mysql", "3101", NumberConflict, "run the whole transaction again"),
        ("sqlite", "SQLITE_BUSY_SNAPSHOT", NumberConflict, "since this one began"),
        ("postgresql", "25P02", InvalidDatabase, "this transaction has failed before"),
        ("postgresql", "25006", DatabaseRefused, "is a replica, or the transaction is read-only"),
        ("mysql", "1290", DatabaseRefused, "use the primary"),
        ("sqlite", "SQLITE_READONLY", DatabaseRefused, "use the primary"),
        ("mysql", "1690", Exhausted, "fewer numbers of 'invoice' are left"),
        ("sqlite", "SQLITE_CONSTRAINT_CHECK", Exhausted, "fewer numbers of 'invoice' are left"),
        ("postgresql", "42P01", SchemaOutOfDate, "run: python manage.py migrate, with"),
        ("mysql", "2013", DatabaseUnavailable, "here is not available"),
    ],
)
def test_what_it_means_and_what_to_do(name, code, kind, words):
    error = OperationalError("INSERT", {}, Failed(code))
    found = translate_drawn(error, dialect_of(name), "here", "'invoice'", 2.0)

    assert (type(found), words in str(found)) == (kind, True), found


# -- numbers drawn in a transaction that the server has rolled back, or in none


def test_a_timeout_whose_extent_the_server_does_not_tell_counts_as_one_of_the_transaction():
    caller = Mock(**{"run.side_effect": OperationalError("", None, Exception("lost"))})

    assert number_dialect(dialect_of("mysql"), is_mariadb=False).rolls_back_at_timeout(caller)


class Alarm(Exception):
    """Of a signal handler."""


TIMED_OUT, NO_MEMORY = (OperationalError("", None, Exception(code, "words")) for code in (1205, 1206))


@pytest.mark.parametrize(
    ("kind", "raised", "is_refused"),
    [("mysql", Alarm(), True), ("mysql", TIMED_OUT, True), ("mysql", NO_MEMORY, True), ("postgresql", Alarm(), False)],
)
def test_an_exception_of_the_callers_leaves_nothing_but_the_rollback_where_nobody_could_look(kind, raised, is_refused):
    """The server may have rolled back at that moment: the number would be committed, and given again."""
    caller = Mock(numbers=number_dialect(dialect_of(kind), is_mariadb=False), **{"run.side_effect": Alarm()})
    with pytest.raises((Alarm, NumberConflict)):
        translated(caller, {"name": "case", "scope": "", "period": ""}, Mock(side_effect=raised))

    assert caller.refuse_more.called is is_refused


def test_in_django_nothing_but_the_rollback_is_left():
    connection = Mock(in_atomic_block=True, needs_rollback=False, vendor="sqlite")
    DjangoCaller(connection).refuse_more()
    connection.set_rollback.assert_called_once_with(True)

    connection.in_atomic_block = False
    with pytest.raises(InvalidDatabase, match="draw numbers inside transaction.atomic"):
        DjangoCaller(connection)


# -- a file of SQLite has one name, at each connection


def test_a_link_that_is_made_while_ids_are_drawn_is_refused(tmp_path: Path) -> None:
    with Allocator(f"sqlite:///{tmp_path}/ids.db") as ids:
        assert list(ids.reserve("order", 1)) == [1]
        (tmp_path / "other.db").hardlink_to(tmp_path / "ids.db")

        with pytest.raises(DatabaseRefused, match="2 hard links"):
            ids.reserve("order", 1)


# -- the options of our tables, which are made when they are asked for


def test_no_thread_finds_options_that_are_not_filled_in():
    for table in metadata.sorted_tables:
        made = table.to_metadata(MetaData())
        vars(made).pop("dialect_options", None)

        assert Stored.dialect_options.func(made)["mysql"]["engine"] == "InnoDB"
        assert "dialect_options" not in vars(made)  # until the property is finished


@rule(9)
def test_sqlite_reuses_no_number():
    numbered = {"allocator_node", "allocator_ticket", "allocator_token"}

    assert {one.name for one in metadata.sorted_tables if one.dialect_options["sqlite"]["autoincrement"]} == numbered

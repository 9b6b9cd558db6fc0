"""What becomes of errors that no server of the tests gives: of clusters, TLS, poolers, networks."""

from __future__ import annotations

import sqlite3
from unittest.mock import MagicMock

import pytest
from sqlalchemy.exc import DBAPIError

from allocator.database.driver_errors import (
    FILE_BUSY_CODES,
    FILE_LOCKED_CODES,
    MISPLACED,
    is_contended,
    translate,
    upgrade_of,
)
from allocator.database.mysql.dialect import MySQL
from allocator.database.postgresql.dialect import PostgreSQL
from allocator.database.verbs import tickets
from allocator.errors import DatabaseRefused, DatabaseUnavailable, Exhausted, SchemaOutOfDate
from allocator.rules.fleet_consistency import Shard
from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.ticket import ShardNumbering

NOT_PREPARED = (1047, "WSREP has not yet prepared node for application use")
NOT_PRIMARY = (1180, "Error while appending streaming replication fragment")
READ_ONLY = (1290, "The MySQL server is running with the --super-read-only option")
HOOK = (3100, "Error on observer while running replication hook 'before_commit'.")
ROLLED_BACK = (3101, "Plugin instructed the server to rollback the current transaction.")


def error(*told: object) -> DBAPIError:
    return DBAPIError("UPDATE", {}, Exception(*told))


def test_a_member_that_was_left_alone_is_unavailable_and_its_connections_are_left():
    for told in [NOT_PREPARED, NOT_PRIMARY, READ_ONLY, HOOK]:
        found = translate(error(*told), MySQL(), "here", 0.0)

        assert type(found) is DatabaseUnavailable, told
        assert str(told[0]) in MISPLACED, told
        assert not is_contended(error(*told), MySQL()), told


def test_a_standby_of_postgresql_is_left_and_a_server_that_hides_its_wal_is_not():
    for code, words, is_left in [
        ("25006", "cannot execute UPDATE in a read-only transaction", True),
        ("55000", "recovery is in progress", True),
        ("55000", "Wiederherstellung läuft", True),
        ("55000", "wal_level must be set to 'logical'", False),  # of Aurora, on each connection
    ]:
        told = Exception(words)
        told.sqlstate = code  # type: ignore[attr-defined]

        assert (PostgreSQL().code(told) in MISPLACED) is is_left, (code, words)
        kind = DatabaseUnavailable if is_left else DatabaseRefused
        assert type(translate(DBAPIError("SELECT", {}, told), PostgreSQL(), "here", 0.0)) is kind, (code, words)


def test_what_comes_again_with_each_try_is_no_outage():
    for code in ["55000", "0A000", "42501", "42883", "42704"]:
        told = Exception("wal_level")
        told.sqlstate = code  # type: ignore[attr-defined]

        assert type(translate(DBAPIError("SELECT", {}, told), PostgreSQL(), "here", 0.0)) is DatabaseRefused, code


def test_what_certification_rolled_back_is_run_again():
    assert is_contended(error(*ROLLED_BACK), MySQL())
    assert is_contended(error(1213, "Deadlock found when trying to get lock"), MySQL())


def test_what_an_engine_does_not_have_is_refused_and_not_tried_for_ever():
    told = (1235, "function LOCK IN SHARE MODE has only noop implementation in tidb now")

    assert type(translate(error(*told), MySQL(), "here", 0.0)) is DatabaseRefused


def test_what_comes_without_a_code_is_told_by_its_words():
    """From libpq and PyMySQL, which refuse or lose a connection."""
    for words, kind, sentence in [
        ('FATAL:  no pg_hba.conf entry for host "::1", user "u", no encryption', DatabaseRefused, "refuses the login"),
        ('FATAL:  "trust" authentication failed', DatabaseRefused, "refuses the login"),
        ("FATAL:  no such database: ids", DatabaseRefused, "there is no such database"),
        ("FATAL:  unsupported startup parameter: options", DatabaseRefused, "is a pooler that refuses an argument"),
        ('root certificate file "/x" does not exist', DatabaseRefused, "do not agree on TLS"),
        ("SSL error: certificate verify failed", DatabaseRefused, "do not agree on TLS"),
        ("SSL SYSCALL error: EOF detected", DatabaseUnavailable, "is not available"),
        ("SSL connection has been closed unexpectedly", DatabaseUnavailable, "is not available"),
        ("server closed the connection unexpectedly", DatabaseUnavailable, "is not available"),
        ("FATAL:  the database system is starting up", DatabaseUnavailable, "is not available"),
        ("FATAL:  sorry, too many clients already", DatabaseUnavailable, "has no connection left"),
        ("expected authentication request from server, but received H", DatabaseRefused, "does not speak the protocol"),
        ("failed to resolve host 'x': [Errno -3] Temporary failure", DatabaseUnavailable, "no address is known"),
        (
            "Several attempts failed:\n- host: 'a': refused\n- host: 'b': gone",
            DatabaseUnavailable,
            "'a': refused - host",
        ),
    ]:
        found = translate(error(words), PostgreSQL(), "here", 0.0)

        assert (type(found), sentence in str(found)) == (kind, True), (words, found)


def test_what_only_the_words_of_a_code_tell():
    verified = "Can't connect to MySQL server on 'h' ([SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed)"
    for told, kind, sentence in [
        ((2003, verified), DatabaseRefused, "do not agree on TLS"),
        (
            (2003, "Can't connect to MySQL server on 'h' ([Errno 111] Connection refused)"),
            DatabaseUnavailable,
            "is not",
        ),
        ((2026, "SSL connection error: SSL is required but the server doesn't support it"), DatabaseRefused, "on TLS"),
        ((2026, "SSL connection error: unexpected eof while reading"), DatabaseUnavailable, "is not available"),
        ((1129, "Host 'h' is blocked because of many connection errors"), DatabaseRefused, "refuses: "),
        ((1130, "Host 'h' is not allowed to connect to this MySQL server"), DatabaseRefused, "refuses: "),
        ((3032, "The server is currently in offline mode"), DatabaseUnavailable, "is not available"),
        ((1969, "Query execution was interrupted (max_statement_time exceeded)"), DatabaseUnavailable, "ended the"),
        ((1030, "Got error 28 'No space left on device' from storage engine"), DatabaseUnavailable, "no space left"),
        ((1146, "Table 'allocator_shop.bills' doesn't exist"), DatabaseRefused, "lacks what is not the allocator's"),
        ((1146, "Table 'shop.allocator_segment' doesn't exist"), SchemaOutOfDate, "run: allocator db upgrade"),
        ((3, "Error writing file './x' (errno: 28)"), DatabaseUnavailable, "has no space left"),
    ]:
        found = translate(error(*told), MySQL(), "here", 0.0)

        assert (type(found), sentence in str(found)) == (kind, True), (told, found)


def test_a_counter_that_cannot_be_read_is_at_its_end_or_locked():
    connection = MagicMock()
    connection.execute.side_effect = error(1467, "Failed to read auto-increment value from storage engine")
    connection.exec_driver_sql.return_value.scalar.side_effect = [MAX_ID, 5]

    shard = Shard("main", "key", "", 1, ShardNumbering(), 1, ())

    with pytest.raises(Exhausted, match="last ticket"):
        tickets.draw(connection, MySQL(), "job", shard)
    with pytest.raises(DBAPIError) as locked:
        tickets.draw(connection, MySQL(), "job", shard)
    assert type(translate(locked.value, MySQL(), "here", 0.0)) is DatabaseUnavailable


def test_the_command_that_makes_the_tables_takes_no_driver_for_asyncio():
    known = {"sqlite": "aiosqlite", "postgresql": "psycopg_async asyncpg", "mysql": "asyncmy aiomysql"}
    for name, drivers in known.items():
        for driver in drivers.split():
            assert (
                upgrade_of(f"{name}+{driver}://host/shop?ssl=require")
                == f"allocator db upgrade --url {name}://host/shop"
            )
    assert upgrade_of("mysql+pymysql://host/shop") == "allocator db upgrade --url mysql+pymysql://host/shop"


def test_each_name_of_a_lock_that_sqlite_has_is_known():
    """Python names the codes it knows of, so that a newer one would show here."""
    known = {name for name in vars(sqlite3) if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))}

    assert known <= {*FILE_BUSY_CODES.split(), *FILE_LOCKED_CODES.split(), "SQLITE_BUSY_SNAPSHOT"}

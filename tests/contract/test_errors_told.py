"""Each error that a real server gives: refused for good or unavailable for now, and a sentence that names the cause."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest
from sqlalchemy import URL, create_engine, event, make_url
from support.kit import SQLITE
from support.servers.administrator import execute

from allocator import Allocator
from allocator.database.store import Database
from allocator.errors import AllocatorError, DatabaseRefused, DatabaseUnavailable, SchemaOutOfDate

numbers = count(1)
USER = {
    "postgres": (
        "CREATE ROLE {user} LOGIN PASSWORD 'word'",
        "GRANT CONNECT ON DATABASE {name} TO {user}",
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}",
    ),
    "mysql": ("CREATE USER {user} IDENTIFIED BY 'word'", "GRANT ALL ON {name}.* TO {user}"),
}
GONE = {"postgres": ("DROP OWNED BY {user}", "DROP ROLE {user}"), "mysql": ("DROP USER {user}",)}
LOCK = "UPDATE allocator_segment SET step = step + 1"


class Case(NamedTuple):
    """What a user meets. The first statements are the administrator's, with semicolons between them."""

    error: type[AllocatorError]
    sentence: str
    by: str = ""
    url: dict[str, Any] = {}
    sql: str = LOCK
    holds: str = ""
    """What another session of the user has done in a transaction that is open."""


def signal(code: int | str) -> str:
    """For an error that a healthy server does not give."""
    if isinstance(code, int):
        return f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'as told'"
    return f"DO $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{code}'; END $$"


def setting(words: str) -> dict[str, Any]:
    return {"query": {"init_command": words}}


refused, away, behind = (partial(Case, error) for error in (DatabaseRefused, DatabaseUnavailable, SchemaOutOfDate))


ANYWHERE = (
    refused("refuses the login: .*; check user and password", url={"password": "s3cret"}),
    away("no address is known for the host: .*; check its name", url={"host": "nosuch.invalid"}),
    away("is not available: .*[Cc]onnection refused", url={"port": 1, "password": "s3cret"}),
    refused("lacks what is not the allocator's: .*bills.*; create it, or look for the", sql="SELECT n FROM bills"),
    behind("of the allocator: .*allocator_x.*; run: allocator db upgrade", sql="SELECT n FROM allocator_x"),
    behind("of the allocator: .*nix.*; run: allocator db", sql="SELECT nix FROM allocator_segment"),
    refused("refuses: .*syntax", sql="SELEKT 1"),
)
OF_POSTGRES = (
    *ANYWHERE,
    refused("there is no such database.*no_such", url={"database": "no_such"}),
    refused("lacks a right: .*not permitted to log in", "ALTER ROLE {user} NOLOGIN"),
    refused(
        "lacks a right: .*permission denied for database .*; grant it",
        "REVOKE CONNECT ON DATABASE {name} FROM PUBLIC, {user}",
    ),
    refused("lacks a right: permission denied for table", "REVOKE ALL ON allocator_segment FROM {user}"),
    refused(
        r"row-level security policy .*; give the user a policy there, or: ALTER TABLE",
        "ALTER TABLE allocator_number ENABLE ROW LEVEL SECURITY",
        sql="INSERT INTO allocator_number VALUES ('case', '', '', 1)",
    ),
    refused("refuses a setting .*no_such.*: URL, engine or user", url={"query": {"options": "-c no_such=1"}}),
    refused("client and server do not agree on TLS: .*SSL", url={"query": {"sslmode": "require"}}),
    away("has no connection left: .*too many.*; raise", "ALTER ROLE {user} CONNECTION LIMIT 0"),
    away(
        "ended the statement: .*statement timeout; retry, or raise the timeout",
        "ALTER ROLE {user} SET statement_timeout = '50ms'",
        sql="SELECT pg_sleep(5)",
    ),
    away(
        "other transactions hold what this one needs: .*lock timeout",
        "ALTER ROLE {user} SET lock_timeout = '50ms'",
        holds=LOCK,
    ),
    away("has no space left: as told; free some", sql=signal("53100")),
    refused("refuses: null value", sql="INSERT INTO allocator_segment (tag) VALUES ('x')"),
    away("is not available: .*administrator", sql="SELECT pg_terminate_backend(pg_backend_pid())"),
)
OF_MYSQL = (
    *ANYWHERE,
    refused("there is no such database.*no_such", url={"database": "no_such"}),
    refused("lacks a right: .*denied.*; grant it", "REVOKE UPDATE ON {name}.* FROM {user}"),
    *(
        refused(f"refuses a setting .*{named}.*: URL, engine or user", url=setting(words))
        for named, words in (
            ("NIX", "SET sql_mode = 'NIX'"),
            ("nix", "SET nix = 1"),
            ("GLOBAL", "SET SESSION max_connections = 3"),
        )
    ),
    refused(
        "lacks what is not .*seen",
        "CREATE TABLE things (n INT); CREATE VIEW seen AS SELECT n FROM things; DROP TABLE things",
        sql="SELECT n FROM seen",
    ),
    refused(
        "refuses the login: .*, and without TLS", "ALTER USER {user} REQUIRE SSL", {"query": {"ssl_disabled": "true"}}
    ),
    refused("refuses: .*(expired|SET PASSWORD)", "ALTER USER {user} PASSWORD EXPIRE"),
    away(
        "has no connection left: .*max_user_connections.*; raise",
        "ALTER USER {user} WITH MAX_USER_CONNECTIONS 1",
        holds="SELECT 1",
    ),
    away("other transactions hold what this one needs: .*Lock wait", holds=LOCK),
    away("ended the statement: .*interrupted", sql="KILL QUERY CONNECTION_ID()"),
    away(
        "has no space left: .*is full.*; free some",
        "SET SESSION max_heap_table_size = 16384; "
        "CREATE TABLE {name}.narrow (n VARCHAR(9000) CHARACTER SET latin1) ENGINE = MEMORY",
        sql="INSERT INTO narrow SELECT repeat('x', 9000) FROM information_schema.columns LIMIT 100",
    ),
    refused("client and server do not agree on TLS", sql=signal(3159)),
    refused("writes a binary log of statements, .*as told", sql=signal(1665)),
    away("is read-only: .*; use the primary", sql=signal(1290)),
    away("has no connection left", sql=signal(1040)),
    away("has no space left", sql=signal(1021)),
    away("is not available", sql=signal(1053)),
)
CASES = {"postgres": OF_POSTGRES, "mysql": OF_MYSQL, "mariadb": OF_MYSQL}


def changed(url: URL, given: dict[str, Any]) -> URL:
    others = {name: value for name, value in given.items() if name != "query"}
    return url.set(**others).update_query_dict(given.get("query", {}))


def told(url: URL | str, sql: str) -> AllocatorError | None:
    with closing(Database(url, 2.0)) as database:
        try:
            database.run(lambda connection, _: connection.exec_driver_sql(sql))
        except AllocatorError as error:
            return error
    return None


def everything_said(error: BaseException | None) -> str:
    said = ""
    while error is not None:
        said += f"{error!s} {error!r} "
        error = error.__cause__ or error.__context__
    return said


@pytest.mark.parametrize("kind", CASES, indirect=True)
def test_what_a_server_says(fresh, kind):
    with Allocator(fresh) as ids:
        ids.reserve("order", 1)
    place, of = make_url(fresh), "postgres" if kind == "postgres" else "mysql"
    wrong = []
    for case in CASES[kind]:
        names = {"user": f"told_{next(numbers)}_{place.database}"[:32], "name": place.database}
        execute(fresh, *(words.format(**names) for words in (*USER[of], *filter(None, case.by.split("; ")))))
        theirs = place.set(username=names["user"], password="word")
        with ExitStack() as stack:
            if case.holds:
                engine = create_engine(theirs)
                stack.callback(engine.dispose)
                stack.enter_context(engine.connect()).exec_driver_sql(case.holds)
            found = told(changed(theirs, case.url), case.sql)
        words = re.search(case.sentence, str(found))
        if type(found) is not case.error or not words or "s3cret" in everything_said(found):
            wrong.append(f"{case.sentence}: {found!r}")
        execute(fresh, *(words.format(**names) for words in GONE[of]))

    assert not wrong, "\n".join(wrong)


OF_SQLITE = (
    refused("lacks what is not the allocator's: no such table: bills;", sql="SELECT n FROM bills"),
    behind("of the allocator: no such column: nix; run:", sql="SELECT nix FROM allocator_segment"),
    refused(r"ids.db refuses: near .*syntax error$", sql="SELEKT 1"),
    away("has no space left: .* full; free some", sql="CREATE TABLE more AS SELECT zeroblob(100000)"),
)


def test_what_sqlite_says(tmp_path):
    url = f"sqlite:///{tmp_path}/ids.db"
    with Allocator(url) as ids:
        ids.reserve("order", 1)
    wrong = []
    for case in OF_SQLITE:
        engine = create_engine(url)
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
        found = told(engine, case.sql)
        engine.dispose()
        if type(found) is not case.error or not re.search(case.sentence, str(found)):
            wrong.append(f"{case.sentence}: {found!r}")

    assert wrong == []


@SQLITE
def test_a_table_that_a_trigger_misses_is_not_called_ours(fresh):
    writes = "BEFORE UPDATE ON allocator_segment BEGIN INSERT INTO audit_log VALUES (1); END"
    with Allocator(fresh) as ids:
        ids.reserve("order", 1)
        execute(fresh, f"CREATE TRIGGER logs {writes}")
        with pytest.raises(DatabaseRefused, match="lacks what is not the allocator's: .*audit_log.*trigger or view"):
            ids.reserve("order", 1)


@contextmanager
def answering(greeting: bytes, *, first: bool) -> Iterator[int]:
    """The port of a server of another protocol; it greets `first`, or answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as client:
                if not first:
                    client.recv(8)
                client.sendall(greeting)
                client.recv(1000)

        serving = threading.Thread(target=serve)
        serving.start()
        yield server.getsockname()[1]
        serving.join()


def test_a_server_of_another_protocol_is_called_so():
    for scheme, greeting, first in (
        ("postgresql+psycopg", b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        ("postgresql+psycopg", b"J\x00\x00\x00\x0a9.0.0\x00", True),
        ("mysql+pymysql", b"SSH-2.0-OpenSSH_9.2\r\n", True),
    ):
        with answering(greeting, first=first) as port:
            found = told(f"{scheme}://root@127.0.0.1:{port}/x", "SELECT 1")

        assert type(found) is DatabaseRefused, (greeting, found)
        assert "does not speak the protocol of such a database" in str(found), (greeting, found)

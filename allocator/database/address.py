"""Where a database is, and which slot of a fleet: from the URL or engine that a user gives."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from sqlalchemy import URL, Engine, Pool, make_url
from sqlalchemy import Dialect as SQLDialect
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from allocator.database import fork_gate
from allocator.database.dialect import Dialect
from allocator.errors import InvalidDatabase
from allocator.schemes.slots import ARGUMENT, Word, word_of

BETWEEN_COMMAS = re.compile(r",\s*[a-zA-Z]\w*(?:\+\w+)?://")

BACKENDS = ("sqlite", "postgresql", "mysql", "mariadb", "postgres")
DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg", "mysql": "pymysql"}
"""By which a URL without one connects."""
EXTRAS = {"postgresql": "postgres", "mysql": "mysql"}
"""Of this package: they install the driver. Python brings that of SQLite."""
UNUSABLE = frozenset({"mysqlconnector"})
"""Drivers by which no claim succeeds: its timeouts, in fields named as PyMySQL's, are whole seconds."""
NAMES = frozenset({"database", "db", "read_default_file", "read_default_group"})
"""Arguments of a URL that may lead to the name of a database of MySQL, such as an option file."""


@cache
def dialect_of(backend: str) -> Dialect:
    """The dialect of one of `BACKENDS`. Imports it, with SQLAlchemy's part: few processes need more than one."""
    with fork_gate.closed():  # see `imported`
        if backend == "sqlite":
            from allocator.database.sqlite import SQLite

            return SQLite()
        if backend in {"mysql", "mariadb"}:
            from allocator.database.mysql import MySQL

            return MySQL()
        from allocator.database.postgresql import PostgreSQL

        return PostgreSQL()


@dataclass(frozen=True, slots=True)
class Address:
    """A database that can be reached: its dialect, its URL, and `shown`, the URL without its password."""

    dialect: Dialect
    url: URL = field(repr=False)
    shown: str
    pool: Pool | None = field(default=None, repr=False)
    """Opens connections as the user's engine does, without counting in the capacity of its pool; None for a URL."""
    word: Word | None = None
    """The fleet and slot that the URL says."""

    @property
    def file(self) -> str | None:
        """The path of an embedded database, None for a server or a database in memory."""
        return self.url.database if self.dialect.embedded and is_file(self.url.database) else None

    @property
    def is_in_memory(self) -> bool:
        return self.dialect.embedded and self.file is None


def address_of(database: object) -> Address:
    if isinstance(database, Address):
        return database
    if isinstance(database, Engine):
        return of_engine(database)
    if isinstance(database, str | URL):
        return of_url(database)
    if hasattr(database, "sync_engine"):
        raise InvalidDatabase(
            "an AsyncEngine cannot be used: claims run on threads, so that the event loop never waits; give its URL"
        )
    raise InvalidDatabase(f"a database is a URL or a SQLAlchemy Engine, got {type(database).__name__}")


def address_in(text: str, database: object) -> Address:
    """The address of a slot that is named beside it, as of an engine, whose URL cannot say it."""
    found, word = address_of(database), word_of(text)
    if found.word not in (None, word):
        raise InvalidDatabase(f"{found.shown} is named as slot {word}, and its URL says {found.word}")
    return replace(found, word=word)


def of_engine(engine: Engine) -> Address:
    check_password(engine.url, engine.url)
    dialect = dialect_named(engine.url.get_backend_name(), shown(engine.url))
    check_usable(engine.url, dialect)
    check_file(engine.url, dialect)
    # Same creator and events as the user's pool, but none of its connections and nothing of its capacity.
    return Address(dialect, absolute(engine.url, dialect), shown(engine.url), engine.pool.recreate())


def of_url(given: str | URL) -> Address:
    if isinstance(given, str) and not given.strip():
        raise InvalidDatabase(
            "the URL of the database is empty, as by an environment variable without a value; one looks like "
            "postgresql+psycopg://user@host/name"
        )
    if isinstance(given, str) and BETWEEN_COMMAS.search(given):
        raise InvalidDatabase("several URLs have commas between them; give a list: Allocator(shards=[…, …])")
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        # The text may hold a password, so neither it nor the error that quotes it is shown.
        raise InvalidDatabase(
            "this is not a database URL; one looks like sqlite:///ids.db or "
            "postgresql+psycopg://user:password@host/name, and an @ in the password is written %40"
        ) from None
    check_password(url, given)
    # Here alone: neither SQLAlchemy nor a driver knows this argument.
    word = word_of(str(url.query[ARGUMENT])) if ARGUMENT in url.query else None
    url = url.difference_update_query([ARGUMENT])
    backend, _, driver = url.drivername.partition("+")
    dialect = dialect_named(backend, shown(url))
    scheme = dialect.name if backend == "postgres" else backend
    url = url.set(drivername=f"{scheme}+{driver or DRIVERS[dialect.name]}")
    check_file(url, dialect)
    check_usable(url, dialect)
    check_tls(url)
    check_driver(url, dialect)
    # MySQL connects without a name, and then finds no table.
    if dialect.name == "mysql" and not url.database and NAMES.isdisjoint(url.query):
        raise InvalidDatabase(f"{shown(url)} names no database; a URL ends in /name")
    return Address(dialect, absolute(url, dialect), shown(url), word=word)


def absolute(url: URL, dialect: Dialect) -> URL:
    """With the whole path of a file: a daemon changes its folder later."""
    if dialect.embedded and url.database and is_file(url.database):
        return url.set(database=str(Path(url.database).absolute()))
    return url


def check_file(url: URL, dialect: Dialect) -> None:
    """Refuse `sqlite://ids.db`; `sqlite:///`, which is a database in memory; and a name of blanks alone."""
    if dialect.embedded and url.host:
        name = "/".join(filter(None, (url.host, url.database)))
        raise InvalidDatabase(f"the URL of a file has three slashes: {dialect.name}:///{name}")
    if dialect.embedded and url.database is not None and not url.database.strip():
        raise InvalidDatabase(f"{shown(url)} names no file; a URL ends in /name, and sqlite:// is a database in memory")


def check_password(url: URL, given: str | URL) -> None:
    """Refuse a password with an `@` in it: what follows is read as the host, the name or the query, and printed."""
    if url.password is None:
        return
    queries = given.partition("?")[2].split("&") if isinstance(given, str) else []
    # A name with an @ can be given as a URL object of SQLAlchemy's.
    name = url.database or "" if isinstance(given, str) else ""
    if any("@" in part for part in (url.host or "", name, *(query.partition("=")[0] for query in queries))):
        raise InvalidDatabase(
            f"{url.drivername}://{url.username}:… holds an @ that is not percent-encoded; write %40 for each @ of the "
            "password"
        )


def is_file(name: str | None) -> bool:
    return bool(name) and name != ":memory:" and not str(name).startswith("file:")


def dialect_named(backend: str, where: str) -> Dialect:
    if backend.lower() in {"http", "https"}:
        raise InvalidDatabase(f"{where} is a service; this needs the URL of the database itself")
    if backend not in BACKENDS:
        known = ", ".join(BACKENDS[:-1])
        raise InvalidDatabase(f"{where} names the database {backend!r}; known are {known}")
    return dialect_of(backend)


def imported(url: URL) -> type[SQLDialect]:
    """Import SQLAlchemy's dialect class for a URL, its driver, and what the driver imports at its first connect.

    Forks wait for this: a child would inherit modules that are half imported.
    """
    with fork_gate.closed():
        if url.get_backend_name() != "sqlite":
            import encodings.idna  # noqa: F401  # for the name of a host

        found = url.get_dialect()
        if not found.is_async:
            found.import_dbapi()
        return found


def check_usable(url: URL, dialect: Dialect) -> None:
    if url.get_driver_name() in UNUSABLE:
        raise InvalidDatabase(
            f"{shown(url)} names a driver that the allocator cannot use; give a URL that begins with "
            f"{url.get_backend_name()}+{DRIVERS[dialect.name]}://"
        )


def check_tls(url: URL) -> None:
    if "ssl" in url.query and url.get_backend_name() in {"mysql", "mariadb"}:
        raise InvalidDatabase(
            f"{shown(url)} has the argument ssl, of which its driver takes no text; write ?ssl_check_hostname=false "
            "for TLS without a check of the certificate, or ?ssl_ca=FILE"
        )


def check_driver(url: URL, dialect: Dialect) -> None:
    usual = f"{dialect.name}+{DRIVERS[dialect.name]}"
    try:
        found = imported(url)
        if found.is_async:
            raise InvalidDatabase(
                f"{shown(url)} names a driver for asyncio; claims run on threads, so that the event loop never waits: "
                f"use {usual}, with AsyncAllocator too"
            )
    except NoSuchModuleError:
        raise InvalidDatabase(f"{shown(url)} names a driver that SQLAlchemy does not know; use {usual}") from None
    except ImportError as error:
        hint = f"pip install 'segment-allocator[{EXTRAS[dialect.name]}]' brings {usual}"
        raise InvalidDatabase(f"{shown(url)} needs {error.name}, which is not installed; {hint}") from error


def shown(url: URL) -> str:
    """The URL without its password and its query, which may hold one too."""
    return URL.create(url.drivername, url.username, None, url.host, url.port, url.database).render_as_string()

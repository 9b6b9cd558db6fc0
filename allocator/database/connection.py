"""Verbs, run: each on a connection of our own, in a transaction of its own, with an end to every wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, Pool
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from allocator.database import schema
from allocator.database.address import Address, address_of
from allocator.database.dialect import Dialect
from allocator.database.driver_errors import is_contended, is_stale, translate, unforeseen
from allocator.database.sqlite_forks import GATE
from allocator.database.tables import SERVING
from allocator.database.verbs import shards, start
from allocator.database.verbs.start import Start
from allocator.errors import AllocatorClosed, AllocatorError, DatabaseUnavailable, SchemaDamaged, SchemaOutOfDate
from allocator.runtime.forks import catch_up

P = ParamSpec("P")
T = TypeVar("T")

CONTENDED_PAUSE = 0.005
MAX_CONTENDED_PAUSE = 0.2

abandoned: list[Pool] = []
"""Connections inherited by a fork belong to the parent: kept to the end, so that nothing here closes them."""


class Runner:
    """One database, reached by connections that belong to the allocator alone.

    Safe to use from several threads. Nothing is opened before the first verb.
    """

    def __init__(self, database: object, timeout: float = 5.0) -> None:
        self.address: Address = address_of(database)
        self.timeout = timeout
        self.dialect = self.address.dialect
        self.engine: Engine = self.address.engine(timeout)
        self._schema_seen = self._is_sound = self._closed = False
        self._has_revision = True
        self.may_create = True
        """Whether a file that is not there may be made, as the embedded database does."""

    def __repr__(self) -> str:
        return f"<Database {self.address.shown}>"

    def run(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on a connection of our own.

        It must burn what it claimed when it is run again: a lost connection may hide a commit.
        """
        self._check_there()
        began, pause, looked = monotonic(), CONTENDED_PAUSE, False
        for attempt in count():
            try:
                with self._whole(), self.engine.connect() as connection:
                    self.dialect.before(connection)
                    result = verb(connection, self.dialect, *args, **kwargs)
                    self.dialect.after(connection)
                    return result
            except SQLAlchemyError as error:
                passed = monotonic() - began
                if is_contended(error, self.dialect) and passed + pause < self.timeout:
                    sleep(pause)
                    pause = min(2 * pause, MAX_CONTENDED_PAUSE)
                elif not looked and self._identity_was_refused(error):
                    looked = True
                # One that was lost at once had gone stale in the pool; one that took its time is a server in trouble.
                elif attempt or not is_stale(error) or passed > self.timeout / 2:
                    raise translate(error, self.dialect, self.address.shown, passed) from error
            except AllocatorError:
                raise
            except Exception as error:
                raise unforeseen(error, self.address.shown) from error
        raise AssertionError("unreachable")

    def _identity_was_refused(self, error: SQLAlchemyError) -> bool:
        """Whether the server says less of itself than a statement asked, which is known from now on."""
        if not isinstance(error, DBAPIError) or not error.orig or not self.dialect.is_refusal(error.orig):
            return False
        with suppress(SQLAlchemyError), self._whole(), self.engine.connect() as connection:
            return self.dialect.find_identity(connection)
        return False

    def _whole(self) -> AbstractContextManager[None]:
        """Block forks while a SQLite statement runs."""
        return GATE.statement() if self.dialect.embedded else nullcontext()

    def _check_there(self) -> None:
        catch_up()
        if self._closed:
            raise AllocatorClosed
        if not self.may_create and self.is_missing():
            raise DatabaseUnavailable(f"there is no file {self.address.file}")

    # -- schema

    def check_schema(self) -> None:
        """Once: the tables have the revision that is needed, or `SchemaOutOfDate` is raised."""
        if not self._schema_seen:
            self.start()

    def start(self, name: str = "", *, with_nodes: bool = False, with_workers: bool = False) -> Start:
        """What the rows say now, with that of the tag `name`.

        Tables that do not fit are looked at closely, to say why; the embedded database makes and upgrades them.
        """
        for was_looked_at in (False, True):
            try:
                found = self.run(start.fetch, name, with_nodes, with_workers, self._has_revision)
                if not self._schema_seen and self._has_revision and found.revision not in SERVING:
                    raise schema.unlike(found.revision, self.address.shown)
            except (SchemaDamaged, SchemaOutOfDate):
                if was_looked_at:  # and found sound, as with a second revision, or where two servers answer in turn
                    raise
                self._is_sound = False  # not any more, if it was
                self.check_sound()
            else:
                self._schema_seen = True
                return found
        raise AssertionError("unreachable")

    def check_sound(self) -> None:
        """Once: each column and key is there, or `SchemaOutOfDate` or `SchemaDamaged` is raised."""
        if self._is_sound:
            return
        try:
            self._has_revision = self.run(schema.check_sound, self.address.shown)
        except SchemaOutOfDate:
            if not self.dialect.embedded:
                raise
            self.upgrade_schema()
        self._is_sound = True

    def is_missing(self) -> bool:
        return self.address.file is not None and not Path(self.address.file).exists()

    def has_siblings(self) -> bool:
        """Whether this is one of several shards."""
        self.check_sound()
        row = self.run(shards.fetch)
        return row is not None and len(row.members) > 1

    def upgrade_schema(self) -> None:
        self.run(schema.upgrade, self.address.shown, self.timeout)
        self.run(shards.begin_alone, self.address.told)

    # -- life

    def close(self) -> None:
        self._closed = True
        self.engine.dispose()

    def abandon(self) -> None:
        """After a fork, in the child: forget every connection without a word to its server."""
        abandoned.append(self.engine.pool)
        self.engine = self.address.engine(self.timeout)  # of the old one, a connection may have been half opened

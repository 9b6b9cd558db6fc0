"""`op.create_tag` on the migration's own connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from shlex import quote
from typing import Any, Concatenate, ParamSpec, TypeVar

from alembic.operations import MigrateOperation, Operations
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from allocator.database.connection import guards_restarts
from allocator.database.dialect import NOWHERE, Dialect, run_of
from allocator.database.driver_errors import translate
from allocator.database.store import Database
from allocator.database.verbs import servers
from allocator.database.verbs.start import Start
from allocator.errors import AllocatorError, InvalidSetting, SchemaOutOfDate, ServerReplaced
from allocator.fleet.tag_administration import Tags, whole
from allocator.integrations import make_tag
from allocator.schemes.shared.argument_checks import split_column
from allocator.schemes.slots import Shard
from allocator.schemes.tag import FailoverGap, Tag

P = ParamSpec("P")
T = TypeVar("T")


@Operations.register_operation("create_tag")
class CreateTag(MigrateOperation):
    @classmethod
    def create_tag(
        cls,
        operations: Operations,
        tag: str,
        *,
        step: int | None = None,
        max_step: int | None = None,
        limit: int | None = None,
        start_after: int = 0,
        start_after_column: str | None = None,
        failover_gap: FailoverGap | None = None,
    ) -> None:
        """Make a tag, with the arguments of `ids.tags.create`.

        One that exists keeps its settings, and is raised above `start_after` and the column. It has no reverse: a tag
        that is deleted and made again would repeat its ids.
        """
        settings: dict[str, Any] = {"step": step, "max_step": max_step, "limit": limit, "failover_gap": failover_gap}
        settings["start_after_column"] = start_after_column
        given = settings | {"start_after": start_after or None}
        named = {name.replace("_", "-"): str(value) for name, value in given.items() if value is not None}
        words = "".join(f" --{name} {quote(value)}" for name, value in named.items())
        if operations.migration_context.as_sql:
            raise InvalidSetting(
                "this step looks at the database, so it cannot be printed as SQL (--sql); run instead: allocator tags "
                f"create {tag}{words}"
            )
        database = alone(operations.get_bind(), tag)
        if start_after_column is not None:
            greatest, *_ = database.read_column(*split_column(start_after_column))
            start_after = max(start_after, whole(start_after_column, greatest))
        make_tag(Tags(lambda: [database], Tag(tag)), tag, start_after, settings)


class MigrationDatabase(Database):
    """A database reached by a connection that somebody else opened, commits and closes.

    On PostgreSQL a verb is a savepoint of the transaction, so that one that fails does not end it; in autocommit it has
    a transaction of its own.
    """

    def __init__(self, connection: Connection) -> None:
        url = connection.engine.url
        # Nothing connects by this URL. Without the driver, since the library refuses those for asyncio.
        super().__init__(url.set(drivername=url.get_backend_name()) if connection.dialect.is_async else url)
        self._connection = connection
        autocommit = getattr(connection.connection.dbapi_connection, "autocommit", False)
        self._is_nested = self.dialect.transactional_ddl and not self.dialect.embedded and not autocommit

    def run(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with self._connection.begin_nested() if self._is_nested else nullcontext():
                says = self.dialect.embedded or run_of(self._connection) != NOWHERE
                return verb(self._connection, self.dialect if says else self.dialect.imitation, *args, **kwargs)
        except SQLAlchemyError as error:
            raise translate(error, self.dialect, self.address.shown, self.timeout) from error

    def create_tag(self, tag: Tag, *, has_start: bool) -> Shard | None:
        """As of any database, but after a failover that nobody has noted it is refused: to note one takes connections
        of our own."""
        with self._identified():
            return super().create_tag(tag, has_start=has_start)

    def read_shard(self) -> Shard:
        with self._identified():
            return super().read_shard()

    def start_tag(self, fresh: Tag, changes: Mapping[str, FailoverGap]) -> Shard | None:
        with self._identified():
            return super().start_tag(fresh, changes)

    def transact(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(verb, *args, **kwargs)  # in the transaction of the migration

    def note(self, start: Start, before: Shard, *, waits: bool = False) -> bool:
        raise ServerReplaced(
            f"the tag was not made: {self.address.shown} moved to another server, and ids of the tag may be "
            "forgotten there; run: allocator db upgrade"
        )

    @contextmanager
    def _identified(self) -> Iterator[None]:
        """Let statements compare the server run, as on connections of our own; what the owner keeps there stays."""
        info = self._connection.info
        kept = {name: info[name] for name in ("run", "guards_restarts") if name in info}
        info["guards_restarts"] = guards_restarts()
        for words in self.dialect.runs(self._connection, info["guards_restarts"]):
            with suppress(AllocatorError):
                info["run"] = words
                self.run(servers.fetch_run, words)
                break
        try:
            yield
        finally:
            for name in ("run", "guards_restarts"):
                info.pop(name, None)
            info.update(kept)

    def upgrade_schema(self) -> None:
        raise SchemaOutOfDate(f"{self.address.shown} lacks tables of the allocator; run: allocator db upgrade")


def alone(connection: Any, what: str) -> MigrationDatabase:
    """The database of a connection. Raises `SchemaOutOfDate` without our tables, `InvalidSetting` in a fleet."""
    database = MigrationDatabase(connection)
    if database.read_row().fleet:
        raise InvalidSetting(
            f"{database.address.shown} is in a fleet, and a migration of one database cannot change {what!r} in all; "
            "use the command line with the URLs of all slots"
        )
    return database

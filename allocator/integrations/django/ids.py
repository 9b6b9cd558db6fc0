"""The allocator of a Django application: from its settings, and above the ids already in its tables."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from django.conf import settings  # type: ignore[import-untyped]
from django.core.signals import setting_changed  # type: ignore[import-untyped]
from django.db import DEFAULT_DB_ALIAS, Error, connections, models, router, transaction  # type: ignore[import-untyped]

from allocator.backend import database_list
from allocator.database.django.database_setting import url_of
from allocator.database.django.transaction import make_tables
from allocator.database.schema import TIMEOUT
from allocator.database.store import Database
from allocator.errors import AccessDenied, InvalidSetting, TagExists, UnknownTag
from allocator.remote.service_address import addresses
from allocator.schemes.shared.argument_checks import MAX_ID, check_whole
from allocator.schemes.tag_column import Column
from allocator.sync import Allocator

log = logging.getLogger("allocator")

SETTING = "ALLOCATOR"


def setting() -> dict[str, Any]:
    """The setting as a dict: the arguments of `Allocator`, and `start_after`."""
    given = getattr(settings, SETTING, None)
    return dict(given) if isinstance(given, Mapping) else {"database": given}


def arguments() -> dict[str, Any]:
    """The arguments of `Allocator` from the setting."""
    options = setting()
    if (start := options.pop("start_after", None)) is not None:
        check_whole("start_after", start, 0, MAX_ID)
    if options.get("database") is None and options.get("shards") is None:
        connection = connections[DEFAULT_DB_ALIAS]
        options["database"] = url_of(connection.vendor, connection.settings_dict)
    return options


def make_allocator() -> Allocator:
    """Make the allocator of the setting, without a connection."""
    try:
        return Allocator(**arguments())
    except TypeError as error:
        raise InvalidSetting(f"{SETTING} holds an invalid argument of Allocator: {error}") from error


made: dict[str, Allocator] = {}
"""Under `SETTING` the allocator of this process. No lock: another thread could hold it during a fork."""

lent: list[Allocator] = []


def allocator() -> Allocator:
    """The `Allocator` of this process, made of the setting `ALLOCATOR`.

    The setting is a URL, a list of addresses of a service, or a dict of arguments of `Allocator`. Without
    it, or without a database in it, ids come from `DATABASES["default"]`: from that PostgreSQL, MySQL or MariaDB
    itself, or from a file beside that of SQLite. With `start_after` in the dict, for tests, the ids of models are above
    that number, and no table is asked for its greatest id.

    Raises `InvalidSetting` and `InvalidDatabase`.
    """
    if lent:
        return lent[-1]
    try:
        return made[SETTING]
    except KeyError:
        fresh = make_allocator()
    kept = made.setdefault(SETTING, fresh)
    if kept is not fresh:  # another thread was first
        fresh.close()
    return kept


@contextmanager
def use(ids: Any) -> Iterator[Any]:
    """Draw from another allocator in all threads within a `with` block, for tests. The caller closes it."""
    lent.append(ids)
    try:
        yield ids
    finally:
        lent.pop()


@atexit.register
def close() -> None:
    while made:
        made.popitem()[1].close()


def on_setting(*, setting: str, **more: Any) -> None:
    """Make a new allocator on the next use. The old one stays open for its users."""
    if setting == SETTING:
        made.clear()


setting_changed.connect(on_setting)


def own_databases() -> list[Any]:
    """The databases whose tables `migrate` must create: none with a service."""
    options = arguments()
    if options.get("shards") is not None:
        return database_list(None, options["shards"])
    return [] if addresses(options["database"]) else [options["database"]]


def upgrade(**signal: Any) -> None:
    """Create or upgrade the tables. The tables of numbers are in the database of Django's rows."""
    for one in own_databases():
        with closing(Database(one, TIMEOUT)) as database:
            database.upgrade_schema()
    alias = signal.get("using", DEFAULT_DB_ALIAS)
    if router.allow_migrate(alias, "allocator"):
        make_tables(connections[alias])


def start_of(ids: Any, model: Any, column: str, limit: int) -> int:
    """The number that ids of a model must be above: that of the setting, else the greatest id in its table.

    An allocator of `use` begins as it is. A column up to `limit` that is too narrow for the setting keeps half of it.
    """
    if made.get(SETTING) is not ids:
        return 0
    start = setting().get("start_after")
    return greatest_in(router.db_for_write(model), model, column) if start is None else min(start, limit // 2)


def column_of(field: Any) -> Column:
    """The column of a field, in the database of the router."""
    kind, options = field.get_internal_type(), field.model._meta
    limit = connections[router.db_for_write(field.model)].ops.integer_field_range(kind)[1]
    return Column(min(limit or MAX_ID, MAX_ID), f"{options.db_table}.{field.column} ({kind})")


def greatest_in(alias: str, model: Any, column: str) -> int:
    """The greatest id in one database; 0 without the table. A savepoint protects the caller's transaction."""
    try:
        with transaction.atomic(using=alias):
            rows = model._base_manager.using(alias)
            greatest = rows.aggregate(greatest=models.Max(column))["greatest"]
            return int(model._meta.get_field(column).get_prep_value(greatest) or 0)
    except Error:
        if model._meta.db_table in connections[alias].introspection.table_names():
            raise
        return 0


def settle(ids: Any, tag: str, column: Column, greatest: int) -> int:
    """Let the next id of `tag` be above the greatest id of a table. Returns the value that it will be above.

    A missing tag is made, up to the end of its column; a warning names one that ends later.
    """
    if not greatest and column.limit >= MAX_ID:
        return 0
    try:
        found = tag_of(ids, tag, column)
        if found.limit > column.limit:
            log.warning(
                "tag %r has the limit %d, but %s holds ids only up to %d: INSERTs above that will fail; lower the "
                "limit: manage.py allocator tags set %s --limit %d",
                *(tag, found.limit, column.name, column.limit, tag, column.limit),
            )
        if greatest > found.max_value:
            ids.tags.set(tag, start_after=greatest)
    except InvalidSetting:
        if greatest > ids.tags.get(tag).max_value:  # else another process has just raised it
            raise
    except AccessDenied:
        return 0  # the token may only draw: the tag's creator has chosen its start
    return greatest


def tag_of(ids: Any, tag: str, column: Column) -> Any:
    """The tag. One that is missing is made without a start: a failover may have forgotten its ids."""
    try:
        return ids.tags.get(tag)
    except UnknownTag:
        if not ids._terms.create_missing:
            raise
    with suppress(TagExists):  # made just now
        ids.tags.create(tag, limit=min(column.limit, ids._template.limit))
    return ids.tags.get(tag)

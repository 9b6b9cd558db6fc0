"""Where the ids of a Django application come from: its settings, and what its tables hold already."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from django.conf import settings  # type: ignore[import-untyped]
from django.core.exceptions import ImproperlyConfigured  # type: ignore[import-untyped]
from django.core.signals import setting_changed  # type: ignore[import-untyped]
from django.db import DEFAULT_DB_ALIAS, Error, connections, models, router, transaction  # type: ignore[import-untyped]

from allocator.database.django_caller import make_tables
from allocator.database.django_settings import IN_MEMORY, is_same_file, url_of
from allocator.database.store import Database
from allocator.errors import AccessDenied, InvalidSetting, UnknownTag
from allocator.integrations.holding import Holder
from allocator.remote.http import addresses
from allocator.rules.column_limit import Column
from allocator.schemes.checks import MAX_ID
from allocator.sync import Allocator

SETTING = "ALLOCATOR"

UPGRADE_TIMEOUT = 600.0
"""Seconds for an upgrade to wait for another one, and for a single statement."""

PLACE = {"database", "shards", "shard_hosts", "fleet", "token"}
"""The arguments of `Allocator` that say where ids come from."""

IN_TESTS = 1_000_000
"""Ids begin above this in tests, clear of what fixtures bring, and for each other setting as much higher."""


def is_testing() -> bool:
    """Whether Django's `setup_test_environment` was called.

    An outbox of mails says nothing: the backend `locmem` makes one in any process.
    """
    utils = sys.modules.get("django.test.utils")  # whoever called it has imported it
    return hasattr(getattr(utils, "_TestState", None), "saved_data")


def arguments() -> dict[str, Any]:
    """Those of `Allocator`, as the setting has them; in tests the place is the memory of this process."""
    setting = getattr(settings, SETTING, None)
    options = dict(setting) if isinstance(setting, Mapping) else {"database": setting}
    if is_testing():
        return {name: value for name, value in options.items() if name not in PLACE} | {"database": IN_MEMORY}
    if options.get("database") is None and options.get("shards") is None:
        connection = connections[DEFAULT_DB_ALIAS]
        options["database"] = url_of(connection.vendor, connection.settings_dict)
    return options


def allocator_in_settings() -> Any:
    """The allocator that is the setting itself, None where it says how to make one."""
    setting = getattr(settings, SETTING, None)
    return setting if hasattr(setting, "next_id") else None


def make_allocator() -> Any:
    """What the setting says; nothing is opened."""
    if (ready := allocator_in_settings()) is not None:
        return ready
    try:
        return Allocator(**arguments())
    except TypeError as error:
        raise InvalidSetting(f"{SETTING} holds what Allocator does not take: {error}") from error


holder = Holder(make_allocator)


def allocator() -> Allocator:
    """The `Allocator` of this process, made of the setting `ALLOCATOR`; in tests one in memory.

    The setting is a URL, a list of addresses of a service, an allocator, or a dict of the arguments of `Allocator`.
    Without it, or without a database in it, `DATABASES["default"]` is used: PostgreSQL, MySQL or MariaDB itself, and
    for SQLite a file beside it. Raises `InvalidSetting` and `InvalidDatabase`.
    """
    ids: Allocator = holder.get()
    return ids


@contextmanager
def use(ids: Any) -> Iterator[Any]:
    """Draw from `ids` meanwhile, in all threads; for tests. Closing it is the caller's business."""
    with holder.use(ids):
        yield ids


def start_in_tests() -> int:
    """What ids begin above in tests: also above what was given before the setting changed, up to a million ids."""
    return IN_TESTS * (1 + holder.forgotten)


def is_own(ids: Any) -> bool:
    """Whether it was made here, and not given by the setting or lent by `use`."""
    return holder.has_made(ids) and ids is not allocator_in_settings()


def on_setting(*, setting: str, **more: Any) -> None:
    if setting == SETTING:
        holder.forget()


setting_changed.connect(on_setting)


def shares_file() -> bool:
    """Whether ids would come from a file that Django writes to."""
    entries = [(connection.vendor, connection.settings_dict) for connection in connections.all()]
    return any(is_same_file(one, *entry) for one in own_databases() for entry in entries)


def own_databases() -> list[Any]:
    """Those whose tables are ours to make: none in tests, and none behind a service."""
    if is_testing() or allocator_in_settings() is not None:
        return []
    options = arguments()
    if options.get("shards") is not None:
        return list(options["shards"])
    return [] if addresses(options["database"]) else [options["database"]]


def upgrade(**signal: Any) -> None:
    """Make the tables, or upgrade them to the revision that is needed; those of numbers stand beside Django's rows."""
    for one in own_databases():
        with closing(Database(one, UPGRADE_TIMEOUT)) as database:
            database.upgrade_schema()
    alias = signal.get("using", DEFAULT_DB_ALIAS)
    if router.allow_migrate(alias, "allocator"):
        make_tables(connections[alias])


def greatest_of(model: Any, column: str) -> int:
    """The greatest id that the model has in any database: an object is given its own before `using` is known.

    Other databases than the one that the router names count as far as they answer: they may be out of order.
    """
    chosen = router.db_for_write(model)
    greatest = [greatest_in(chosen, model, column)]
    for alias in connections:
        if alias != chosen and router.allow_migrate_model(alias, model):
            with suppress(Error, ImproperlyConfigured):
                greatest.append(greatest_in(alias, model, column))
    return max(greatest)


def column_of(field: Any) -> Column:
    """The column of a field, in the database that the router names."""
    kind, options = field.get_internal_type(), field.model._meta
    limit = connections[router.db_for_write(field.model)].ops.integer_field_range(kind)[1]
    return Column(min(limit or MAX_ID, MAX_ID), f"{options.db_table}.{field.column} ({kind})")


def greatest_in(alias: str, model: Any, column: str) -> int:
    """0 where a database has no such table; a transaction of the caller's goes on there."""
    try:
        with transaction.atomic(using=alias):
            rows = model._base_manager.using(alias)
            greatest = rows.aggregate(greatest=models.Max(column))["greatest"]
            return int(model._meta.get_field(column).get_prep_value(greatest) or 0)
    except Error:
        if model._meta.db_table in connections[alias].introspection.table_names():
            raise
        return 0


def raise_above(ids: Any, tag: str, greatest: int) -> int:
    """Let `tag` go on above the greatest id that a table holds already; returns what the next id will be above."""
    try:
        if greatest and greatest > max_value_of(ids, tag):
            ids.tags.set(tag, start_after=greatest)
    except InvalidSetting:
        if greatest > max_value_of(ids, tag):  # else another process has raised it meanwhile
            raise
    except AccessDenied:
        return 0  # a token of a service that is good for drawing alone: who made the tag has said where it begins
    return greatest


def max_value_of(ids: Any, tag: str) -> int:
    try:
        return int(ids.tags.get(tag).max_value)
    except UnknownTag:
        return int(ids.reserve(tag, 1)[-1])  # made as by any first use, and nothing of it stays in memory

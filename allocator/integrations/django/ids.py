"""The allocator of a Django application: from its settings, and above the ids already in its tables."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from multiprocessing import parent_process
from typing import Any

from django.conf import settings  # type: ignore[import-untyped]
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation  # type: ignore[import-untyped]
from django.core.signals import setting_changed  # type: ignore[import-untyped]
from django.db import DEFAULT_DB_ALIAS, Error, connections, models, router, transaction  # type: ignore[import-untyped]

from allocator.database.django.database_setting import IN_MEMORY, is_same_file, url_of
from allocator.database.django.transaction import empty_tables, make_tables
from allocator.database.store import Database
from allocator.errors import AccessDenied, InvalidSetting, UnknownTag
from allocator.remote.service_address import addresses
from allocator.rules.column_limit import Column
from allocator.runtime.forks import in_child
from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.sync import Allocator

SETTING = "ALLOCATOR"

UPGRADE_TIMEOUT = 600.0
"""Seconds that an upgrade may wait for another upgrade, and that one statement may take."""

SOURCE_ARGUMENTS = {"database", "shards", "shard_hosts", "fleet", "token", "headers"}
"""Arguments that name a source of ids: left out in tests, which draw from memory."""

START_IN_TESTS = 1_000_000
"""Ids in tests start above this, clear of fixtures, and higher by as much after each change of the setting or fork."""

LANES = 1000
"""Starts in tests of child processes, which may share a test database."""

IMPORTED_BY = os.getpid()

FORBIDDEN = (AssertionError, RuntimeError, SynchronousOnlyOperation)
"""What a query raises in a test that may not use the database: by Django, by pytest-django, and in async code."""


def is_testing() -> bool:
    """Tell whether Django's `setup_test_environment` was called.

    `django.core.mail.outbox` is no sign of it: the mail backend `locmem` creates that in any process.
    """
    utils = sys.modules.get("django.test.utils")  # its caller has imported it
    return hasattr(getattr(utils, "_TestState", None), "saved_data")


def arguments() -> dict[str, Any]:
    """The arguments of `Allocator` from the setting; in tests with a database in memory."""
    setting = getattr(settings, SETTING, None)
    options = dict(setting) if isinstance(setting, Mapping) else {"database": setting}
    if is_testing():
        own = {name: value for name, value in options.items() if name not in SOURCE_ARGUMENTS}
        return own | {"database": IN_MEMORY}
    if options.get("database") is None and options.get("shards") is None:
        connection = connections[DEFAULT_DB_ALIAS]
        options["database"] = url_of(connection.vendor, connection.settings_dict)
    return options


def allocator_in_settings() -> Any:
    """The setting if it is an allocator itself, else None."""
    setting = getattr(settings, SETTING, None)
    return setting if hasattr(setting, "next_id") else None


def make_allocator() -> Any:
    """Make the allocator of the setting, without a connection."""
    if (ready := allocator_in_settings()) is not None:
        return ready
    try:
        return Allocator(**arguments())
    except TypeError as error:
        raise InvalidSetting(f"{SETTING} holds an invalid argument of Allocator: {error}") from error


made: dict[str, Allocator] = {}
"""Under `SETTING` the allocator of this process. No lock: another thread could hold it during a fork."""

lent: list[Allocator] = []

times_forgotten = 0


def allocator() -> Allocator:
    """The `Allocator` of this process, made of the setting `ALLOCATOR`; in tests one in memory.

    The setting is a URL, a list of addresses of a service, an allocator, or a dict of arguments of `Allocator`. Without
    it, or without a database in it, ids come from `DATABASES["default"]`: from that PostgreSQL, MySQL or MariaDB
    itself, or from a file beside that of SQLite.

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


def forget() -> None:
    """Make a new allocator on the next use. The old one stays open for its users."""
    global times_forgotten
    times_forgotten += 1
    made.clear()


def start_in_tests(ids: Any, limit: int) -> int:
    """The value above which ids start in tests; 0 for an allocator that the application made itself.

    It rises with each change of the setting, so that ids do not repeat, and differs between a process and its children.
    A column up to `limit` that is too narrow for it keeps half of its range.
    """
    if not is_own(ids) or ids is allocator_in_settings():
        return 0
    is_child = parent_process() is not None or os.getpid() != IMPORTED_BY
    lane = os.getpid() % LANES if is_child else 0
    return min(START_IN_TESTS * (1 + times_forgotten + lane), limit // 2)


def is_own(ids: Any) -> bool:
    """Tell whether the allocator is that of the setting, and not one of `use`."""
    return made.get(SETTING) is ids


def on_fork() -> None:
    """Begin anew in a child of a test process: the database in memory is the parent's."""
    if is_testing():
        forget()


in_child(on_fork)


def on_setting(*, setting: str, **more: Any) -> None:
    if setting == SETTING:
        forget()


setting_changed.connect(on_setting)


def shares_file() -> bool:
    """Tell whether ids would come from a file that Django writes to."""
    entries = [(connection.vendor, connection.settings_dict) for connection in connections.all()]
    return any(is_same_file(one, *entry) for one in own_databases() for entry in entries)


def own_databases() -> list[Any]:
    """The databases whose tables `migrate` must create: none in tests, none with a service."""
    if is_testing() or allocator_in_settings() is not None:
        return []
    options = arguments()
    if options.get("shards") is not None:
        return list(options["shards"])
    return [] if addresses(options["database"]) else [options["database"]]


def upgrade(**signal: Any) -> None:
    """Create or upgrade the tables. The tables of numbers are in the database of Django's rows."""
    for one in own_databases():
        with closing(Database(one, UPGRADE_TIMEOUT)) as database:
            database.upgrade_schema()
    alias = signal.get("using", DEFAULT_DB_ALIAS)
    if router.allow_migrate(alias, "allocator"):
        make_tables(connections[alias])


def empty_numbers(**signal: Any) -> None:
    """Let numbers begin again where a test has ended by `flush`. The signal of `migrate` has a plan."""
    alias = signal.get("using", DEFAULT_DB_ALIAS)
    if is_testing() and "plan" not in signal and router.allow_migrate(alias, "allocator"):
        empty_tables(connections[alias])


def look(model: Any, column: str, greatest: dict[str, int]) -> bool:
    """Find the greatest id of the model in each database, since an object gets its id before its database is known.

    Only the database of the router must answer. Errors of others are ignored. Returns whether all were asked: a test
    may not be allowed to use some.
    """
    chosen, is_complete = router.db_for_write(model), True
    for alias in dict.fromkeys((chosen, *connections)):
        if alias in greatest or (alias != chosen and not router.allow_migrate_model(alias, model)):
            continue
        try:
            greatest[alias] = greatest_in(alias, model, column)
        except (Error, ImproperlyConfigured):
            if alias == chosen:
                raise
            greatest[alias] = 0
        except FORBIDDEN:
            if not is_testing():
                raise
            is_complete = False
    return is_complete


@contextmanager
def uncounted(connection: Any) -> Iterator[None]:
    """Hide statements from `assertNumQueries`, since only the first test of a process would count them."""
    count, wrappers = len(connection.queries_log), connection.execute_wrappers
    connection.execute_wrappers = []
    try:
        yield
    finally:
        connection.execute_wrappers = wrappers
        while len(connection.queries_log) > count:
            connection.queries_log.pop()


def column_of(field: Any) -> Column:
    """The column of a field, in the database of the router."""
    kind, options = field.get_internal_type(), field.model._meta
    limit = connections[router.db_for_write(field.model)].ops.integer_field_range(kind)[1]
    return Column(min(limit or MAX_ID, MAX_ID), f"{options.db_table}.{field.column} ({kind})")


def greatest_in(alias: str, model: Any, column: str) -> int:
    """The greatest id in one database; 0 without the table. A savepoint protects the caller's transaction."""
    hidden = uncounted(connections[alias]) if is_testing() else nullcontext()
    try:
        with hidden, transaction.atomic(using=alias):
            rows = model._base_manager.using(alias)
            greatest = rows.aggregate(greatest=models.Max(column))["greatest"]
            return int(model._meta.get_field(column).get_prep_value(greatest) or 0)
    except Error:
        if model._meta.db_table in connections[alias].introspection.table_names():
            raise
        return 0


def raise_above(ids: Any, tag: str, greatest: int) -> int:
    """Raise `tag` above the greatest id of a table. Returns the value that the next id will be above."""
    try:
        if greatest and greatest > max_value_of(ids, tag):
            ids.tags.set(tag, start_after=greatest)
    except InvalidSetting:
        if greatest > max_value_of(ids, tag):  # else another process has just raised it
            raise
    except AccessDenied:
        return 0  # the token may only draw: the tag's creator has chosen its start
    return greatest


def max_value_of(ids: Any, tag: str) -> int:
    try:
        return int(ids.tags.get(tag).max_value)
    except UnknownTag:
        return int(ids.reserve(tag, 1)[-1])  # creates the tag like any first use, without ids in memory

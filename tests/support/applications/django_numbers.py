"""Numbers without gaps in the transactions of a Django application, in a process of its own: `python -m` this module.

It runs on the example's project, with a second database beside its own.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from datetime import UTC, date, datetime
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection, connections, models, transaction  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402

from allocator import Numbers  # noqa: E402
from allocator.errors import (  # noqa: E402
    AllocatorError,
    DatabaseRefused,
    DatabaseUnavailable,
    InvalidDatabase,
    NumberBusy,
    SchemaOutOfDate,
)
from allocator.integrations.django.ids import upgrade  # noqa: E402
from support.applications.django_chapters import chapter, model, same, tell_all  # noqa: E402

KIND = connection.vendor
LIMITS = {
    "sqlite": "PRAGMA busy_timeout = 0",
    "postgresql": "SET LOCAL lock_timeout = '1ms'",
    "mysql": "SET innodb_lock_wait_timeout = 1",
}
MARCH = date(2026, 3, 9)
invoices = Numbers("invoice", format="INV-{year}-{n:05}", reset="year")


class Undo(Exception):
    pass


def draw(**more: Any) -> Any:
    return invoices.next(connection, "a", MARCH, **more)


def refusal(error: type[AllocatorError], call: Callable[[], object]) -> str:
    try:
        call()
    except error as refused:
        return str(refused)
    raise AssertionError(f"no {error.__name__}")


@chapter
def a_rollback_of_a_block_or_of_a_savepoint_takes_its_number_back() -> None:
    call_command("migrate", verbosity=0)
    assert refusal(InvalidDatabase, draw).startswith("draw numbers inside transaction.atomic()")
    with transaction.atomic():
        same(invoices.peek(connection, "a", MARCH), None)
        same(draw().text, "INV-2026-00001")
        with suppress(Undo), transaction.atomic():
            draw()
            raise Undo
        same(draw().n, 2)
    with suppress(Undo), transaction.atomic():
        draw()
        raise Undo
    with transaction.atomic():
        with suppress(Undo), transaction.atomic(savepoint=False):  # Django then wants a rollback of the whole block
            raise Undo
        calls = (draw, lambda: invoices.peek(connection, "a", MARCH), lambda: invoices.set(connection, 9, at=MARCH))
        said = {refusal(InvalidDatabase, call) for call in calls}
        same(said, {"no number can be drawn here: this transaction has failed before; roll it back"})
    with transaction.atomic():
        same([draw().n, [one.n for one in draw(count=2)]], [3, [4, 5]])
        same(invoices.peek(connection, "a", MARCH).n, 5)
        invoices.set(connection, 9, scope="a", at=MARCH)
        same(invoices.void(connection, draw(), "printed twice"), True)


@chapter
def who_finds_it_busy_goes_on_in_its_own_block() -> None:
    said: list[object] = []

    def elsewhere() -> None:
        def draw_at_once() -> None:
            with transaction.atomic():
                draw()

        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(LIMITS[KIND])
            said.append(refusal(NumberBusy, draw_at_once))
            cursor.execute("SELECT 1")
            said.append(cursor.fetchone()[0])
        connections.close_all()

    with transaction.atomic():
        draw()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(elsewhere).result()
    busy, alive = said
    assert "writer at a time" in busy or "drawn numbers of 'invoice' of scope 'a' in 2026" in busy, busy
    same(alive, 1)


@chapter
def django_sees_each_statement_and_an_upgrade_lowers_nothing() -> None:
    wrapped = []

    def wrapper(execute: Callable[..., Any], sql: str, parameters: Any, many: bool, context: Any) -> Any:
        wrapped.append((" ".join(sql.split(" ")[:3]), parameters["scope"]))
        return execute(sql, parameters, many, context)

    with transaction.atomic(), CaptureQueriesContext(connection) as seen, connection.execute_wrapper(wrapper):
        Numbers("wrapped").next(connection, "tenant-7")
    same([len(seen), "INSERT INTO allocator_number" in seen[0]["sql"]], [2, True])
    same(wrapped, [("INSERT INTO allocator_number", "tenant-7"), ("SELECT rule FROM", "tenant-7")])
    upgrade(using="default")  # as each migrate does
    with transaction.atomic():
        same(draw().n, 12)


@chapter
def each_database_counts_by_itself_in_its_own_block() -> None:
    upgrade(using="other")  # as migrate does with --database other
    here = Numbers("here")
    drawn = []
    for alias in ("default", "other") * 2:
        with transaction.atomic(using=alias):
            drawn.append(here.next(connections[alias]).n)
    same(drawn, [1, 1, 2, 2])
    with transaction.atomic(using="default"):
        said = refusal(InvalidDatabase, lambda: here.next(connections["other"]))
    assert said.startswith("draw numbers inside transaction.atomic()"), said


# -- rows that get their numbers after their commit


def text_or_none() -> models.CharField:
    return models.CharField(max_length=40, null=True)


Bill = model(
    "waiting",
    "Bill",
    meta={"unique_together": [("tenant", "number")]},
    tenant=models.CharField(max_length=20),
    booked=models.DateField(null=True),
    number=text_or_none(),
    count=models.IntegerField(null=True),
)
Firm = model("waiting", "Firm", id=models.UUIDField(primary_key=True))
Slip = model(
    "waiting",
    "Slip",
    id=models.UUIDField(primary_key=True, default=uuid4),
    tenant=models.ForeignKey(Firm, models.CASCADE),
    made=models.DateTimeField(),
    number=text_or_none(),
)
NEW_YEAR = datetime(2025, 12, 31, 23, 30, tzinfo=UTC)
"""In Berlin it is 2026."""
IN_BERLIN = {"reset": "year", "timezone": "Europe/Berlin"}
waiting = Numbers("waiting", format="INV-{year}-{n:05}", reset="year").waiting(
    Bill, number="number", scope="tenant", at="booked", order_by="id"
)


def called(*words: str) -> str:
    with redirect_stdout(StringIO()) as printed, suppress(SystemExit):
        call_command("allocator", "numbers", *words)
    return printed.getvalue()


@chapter
def rows_are_numbered_after_the_commit() -> None:
    with connection.schema_editor() as editor:
        for model in (Bill, Firm, Slip):
            editor.create_model(model)
    assigned = []

    def book(tenant: str = "a", booked: date | None = MARCH, undo: bool = False) -> None:
        with transaction.atomic():
            Bill.objects.create(tenant=tenant, booked=booked)
            transaction.on_commit(lambda: assigned.append(waiting.assign(connection, tenant)))
            transaction.set_rollback(undo)

    book(), book(undo=True), book("b", date(2025, 12, 31)), book(), book(booked=None)
    same(assigned, [1, 1, 1, 0])
    same(Numbers("count").waiting(Bill, number="count", order_by="id").assign(connection), 4)
    later = [Bill(tenant="a", booked=MARCH, count=5), Bill(tenant="b", booked=date(2025, 1, 1), count=6)]
    Bill.objects.bulk_create(later)
    with CaptureQueriesContext(connection) as seen:
        same(waiting.assign(connection), 2)
    updates = sum(one["sql"].startswith("UPDATE") for one in seen)
    same(updates, 2)  # one for each group
    rows = [("2026-00001", 1), ("2025-00001", 2), ("2026-00002", 3), (None, 4), ("2026-00003", 5), ("2025-00002", 6)]
    expected = [(n and f"INV-{n}", count) for n, count in rows]
    same(list(Bill.objects.order_by("id").values_list("number", "count")), expected)


@chapter
def rows_are_not_numbered_in_a_transaction_that_is_open() -> None:
    with transaction.atomic():
        said = refusal(InvalidDatabase, lambda: waiting.assign(connection))
        assert said.endswith("is still open; in an atomic block, call it by transaction.on_commit"), said
    connection.set_autocommit(False)
    said = refusal(InvalidDatabase, lambda: waiting.assign(connection))
    connection.set_autocommit(True)
    assert said.endswith("is still open; this connection is not in autocommit mode"), said


@chapter
def scopes_and_moments_are_those_that_the_application_gives() -> None:
    """Of one counter, in the year of Berlin, also where the command line asks."""
    slips, tenant = Numbers("slip", format="S-{year}-{n}", **IN_BERLIN), UUID(int=7)
    on_slips = slips.waiting(Slip, number="number", scope="tenant", at="made", order_by="id")
    Firm.objects.create(id=tenant)
    with transaction.atomic():
        same(slips.next(connection, tenant, NEW_YEAR).text, "S-2026-1")
    for scope, number in ((str(tenant), "S-2026-2"), (None, "S-2026-3")):
        slip = Slip.objects.create(tenant_id=tenant, made=NEW_YEAR)
        on_slips.assign(connection, scope)
        slip.refresh_from_db()
        same(slip.number, number)
    assert '"newest": "3"' in called("list", "slip", "--json")


@chapter
def a_database_that_is_away_is_said() -> None:
    connection.close()
    settings = dict(connection.settings_dict)
    connection.settings_dict.update({"HOST": "127.0.0.1", "PORT": "1", "NAME": "/nowhere/ids.db"})
    error = DatabaseRefused if KIND == "sqlite" else DatabaseUnavailable
    refusal(error, lambda: waiting.assign(connection))
    connection.settings_dict.update(settings)


@chapter
def without_the_table_the_command_is_named() -> None:
    """The last one: on MySQL it is dropped for good."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE allocator_number")
        said = refusal(SchemaOutOfDate, draw)
        transaction.set_rollback(True)
    end = "run: python manage.py migrate, with allocator.integrations.django in INSTALLED_APPS"
    assert said.endswith(end), said


if __name__ == "__main__":
    tell_all()

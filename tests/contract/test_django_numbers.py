"""Numbers without gaps in Django's `atomic`, on every database: a process tells what it found."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.applications.django_shop import AS_MYSQLDB, MIGRATED, environment, run
from support.servers.databases import one_of_each

pytest.importorskip("django")

STORY = """
import json, threading
from datetime import date
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from allocator import Numbers
from allocator.errors import AllocatorError, InvalidDatabase, NumberBusy
from allocator.integrations.django.ids import upgrade

invoices = Numbers("invoice", format="INV-{year}-{n:05}", reset="year")
march, found = date(2026, 3, 9), {}
LIMITS = {
    "sqlite": "PRAGMA busy_timeout = 0",
    "postgresql": "SET LOCAL lock_timeout = '1ms'",
    "mysql": "SET innodb_lock_wait_timeout = 1",
}

def draw(scope="a", **more):
    return invoices.next(connection, scope, march, **more)

class Undo(Exception):
    pass

try:
    draw()
except InvalidDatabase as error:
    found["outside"] = str(error)
with transaction.atomic():
    found["before the first"] = invoices.peek(connection, "a", march)
    found["first"] = draw().text
    try:
        with transaction.atomic():
            draw()
            raise Undo
    except Undo:
        pass
    found["after a savepoint"] = draw().n
try:
    with transaction.atomic():
        draw()
        raise Undo
except Undo:
    pass
with transaction.atomic():
    found["after a rollback"] = draw().n
    found["several"] = [one.n for one in draw(count=2)]
    found["peek"] = invoices.peek(connection, "a", march).n
    invoices.set(connection, 9, scope="a", at=march)
    found["void"] = invoices.void(connection, draw(), "printed twice")
    def elsewhere():
        try:
            with transaction.atomic():
                with connection.cursor() as cursor:
                    cursor.execute(LIMITS[connection.vendor])
                    try:
                        with transaction.atomic():
                            draw()
                    except NumberBusy as error:
                        found["busy"] = str(error)
                    cursor.execute("SELECT 1")
                    found["alive"] = cursor.fetchone()[0]
        finally:
            connections.close_all()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
wrapped = []
def wrapper(execute, sql, parameters, many, context):
    wrapped.append((sql, parameters))
    return execute(sql, parameters, many, context)

with transaction.atomic(), CaptureQueriesContext(connection) as captured, connection.execute_wrapper(wrapper):
    Numbers("case").next(connection, "tenant-7")
found["seen by Django"] = [
    len(captured),
    "INSERT INTO allocator_number" in captured[0]["sql"],
    [(" ".join(sql.split(" ")[:3]), parameters["scope"]) for sql, parameters in wrapped],
]
upgrade(using="default")  # as each migrate does
with transaction.atomic():
    found["last"] = draw().n
    try:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE allocator_number")
        draw()
    except AllocatorError as error:
        found["missing"] = str(error)
    transaction.set_rollback(True)
print(json.dumps(found))
"""

WAITERS = """
import json, threading
from django.db import connection, connections, transaction
from allocator import Numbers

cases, found = Numbers("case"), {}

def beside(act):
    def run():
        try:
            with transaction.atomic():
                act()
        finally:
            connections.close_all()
    thread = threading.Thread(target=run)
    thread.start()
    return thread

def draw_elsewhere():
    found.setdefault("other scope", []).append(cases.next(connection, "b").n)

def draw_when_free():
    is_asking.set()
    found.setdefault("waited", []).append(cases.next(connection, "a").n)

for ends_by_rollback in (True, True, False):  # of a scope that is new, and of one that is still
    is_asking = threading.Event()
    with transaction.atomic():
        found.setdefault("held", []).append(cases.next(connection, "a").n)
        beside(draw_elsewhere).join()
        waiter = beside(draw_when_free)
        assert is_asking.wait(60)
        transaction.set_rollback(ends_by_rollback)
    waiter.join()
print(json.dumps(found))
"""

USING = """
import json
from django.db import connections, transaction
from allocator import Numbers
from allocator.errors import InvalidDatabase
from allocator.integrations.django.ids import upgrade

upgrade(using="other")  # as migrate does with --database other

def draw(alias, numbers=Numbers("case")):
    with transaction.atomic(using=alias):
        return numbers.next(connections[alias]).n

found = {
    "in turn": [draw("default"), draw("other"), draw("default"), draw("other")],
    "from 1000": [draw("other", Numbers("member", start=1000)), draw("other", Numbers("member"))],
}
try:
    with transaction.atomic(using="default"):
        Numbers("case").next(connections["other"])
except InvalidDatabase as error:
    found["in the block of another"] = str(error)
print(json.dumps(found))
"""


WAITING = """
import json
from contextlib import redirect_stdout, suppress
from datetime import date, datetime, timezone
from io import StringIO
from uuid import UUID, uuid4
from django.core.management import call_command
from django.db import connection, models, transaction
from django.test.utils import CaptureQueriesContext
from allocator import Numbers
from allocator.errors import AllocatorError

IS_SQLITE = connection.vendor == "sqlite"  # which locks its counters by an UPDATE

class Bill(models.Model):
    tenant = models.CharField(max_length=20)
    booked = models.DateField(null=True)
    number = models.CharField(max_length=40, null=True)
    count = models.IntegerField(null=True)

    class Meta:
        app_label = "waiting"
        unique_together = [("tenant", "number")]

with connection.schema_editor() as editor:
    editor.create_model(Bill)
invoices = Numbers("waiting", format="INV-{year}-{n:05}", reset="year")
waiting = invoices.waiting(Bill, number="number", scope="tenant", at="booked", order_by="id")
counted = Numbers("count").waiting(Bill, number="count", order_by="id")
found = {"assigned": []}

def book(tenant="a", booked=date(2026, 3, 9), undo=False):
    with transaction.atomic():
        Bill.objects.create(tenant=tenant, booked=booked)
        transaction.on_commit(lambda: found["assigned"].append(waiting.assign(connection, tenant)))
        transaction.set_rollback(undo)

book()
book(undo=True)
book("b", date(2025, 12, 31))
book()
book(booked=None)
def refused():
    try:
        waiting.assign(connection)
    except AllocatorError as error:
        return str(error)

with transaction.atomic():
    found["inside"] = refused()
connection.set_autocommit(False)
found["without autocommit"] = refused()
connection.set_autocommit(True)
found["counted"] = counted.assign(connection)
later = [Bill(tenant="a", booked=date(2026, 3, 9), count=5), Bill(tenant="b", booked=date(2025, 1, 1), count=6)]
Bill.objects.bulk_create(later)
with CaptureQueriesContext(connection) as seen:
    found["together"] = [waiting.assign(connection), sum(one["sql"].startswith("UPDATE") for one in seen) - IS_SQLITE]

class Slip(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid4)
    tenant = models.ForeignKey("Firm", models.CASCADE)
    made = models.DateTimeField()
    number = models.CharField(max_length=40, null=True)

    class Meta:
        app_label = "waiting"

slips = Numbers("slip", format="S-{year}-{n}", reset="year", timezone="Europe/Berlin")
on_slips = slips.waiting(Slip, number="number", scope="tenant", at="made", order_by="id")

class Firm(models.Model):
    id = models.UUIDField(primary_key=True)

    class Meta:
        app_label = "waiting"

with connection.schema_editor() as editor:
    editor.create_model(Firm)
    editor.create_model(Slip)
tenant, made = UUID(int=7), datetime(2025, 12, 31, 23, 30, tzinfo=timezone.utc)
Firm.objects.create(id=tenant)
with transaction.atomic():
    found["slips"] = [slips.next(connection, tenant, made).text]
for scope in (tenant, None):
    slip = Slip.objects.create(tenant_id=tenant, made=made)
    on_slips.assign(connection, scope and str(scope))
    slip.refresh_from_db()
    found["slips"].append(slip.number)
class Trip(models.Model):
    tenant = models.IntegerField()
    made = models.DateTimeField()
    number = models.CharField(max_length=40, null=True)

    class Meta:
        app_label = "waiting"

def called(*words):
    with redirect_stdout(StringIO()) as printed, suppress(SystemExit):
        call_command("allocator", "numbers", *words)
    return printed.getvalue()

with connection.schema_editor() as editor:
    editor.create_model(Trip)
on_trips = Numbers("trip", format="T-{year}-{n}", reset="year", timezone="Europe/Berlin").waiting(
    Trip, number="number", scope="tenant", at="made", order_by="id"
)
words = ("waiting_trip.number", "trip", "--scope-column", "tenant", "--period-column", "made")
for assign in (lambda: on_trips.assign(connection), lambda: called("assign", *words, "--order-column", "id")):
    Trip.objects.create(tenant=1, made=made)
    assign()
found["trips"] = [*Trip.objects.order_by("id").values_list("number", flat=True), called("audit", *words)]

class Code(models.IntegerField):
    def to_python(self, value):  # what the application sees, as of a public id
        return f"code-{value}"

class Till(models.Model):
    shop = Code()
    n = models.IntegerField(null=True)

    class Meta:
        app_label = "waiting"

with connection.schema_editor() as editor:
    editor.create_model(Till)
Till.objects.create(shop=7)
found["coded"] = Numbers("till").waiting(Till, number="n", scope="shop", order_by="id").assign(connection)
with redirect_stdout(StringIO()) as printed:
    call_command("allocator", "numbers", "list", "slip", "--json")
found["listed"] = [one["newest"] for one in json.loads(printed.getvalue())]
found["rows"] = list(Bill.objects.order_by("id").values_list("number", "count"))
connection.close()
settings = dict(connection.settings_dict)
connection.settings_dict.update({"HOST": "127.0.0.1", "PORT": "1", "NAME": "/nowhere/ids.db"})
try:
    waiting.assign(connection)
except AllocatorError as error:
    found["away"] = type(error).__name__
connection.settings_dict.update(settings)
print(json.dumps(found))
"""


def project(kind: str, url: str, folder: Path) -> dict[str, str]:
    """The environment of a project whose tables are not there yet."""
    settings = "from project.settings import *\n"
    if kind == "sqlite":  # by IMMEDIATE an atomic block would wait where it begins
        settings += "DATABASES['default']['OPTIONS'] = {}\n"
    if kind in {"mysql", "mariadb"}:
        settings = AS_MYSQLDB + settings
    settings += "DATABASES['other'] = {'ENGINE': 'django.db.backends.sqlite3', 'NAME': FOLDER / 'other.sqlite3'}\n"
    (folder / "told.py").write_text(settings)
    return environment(folder, url, "told")


STORIES = {"waiters": WAITERS, "using": USING, "waiting": WAITING, "story": STORY}
"""One after the other in a process; the last one drops a table, for good on MySQL."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], dict[str, Any]]]:
    """What one of the stories has found on a database."""
    folder = tmp_path_factory.mktemp("numbers")
    with one_of_each("numbers", folder, lambda url: url) as url_of:

        @cache
        def all_of(kind: str) -> dict[str, dict[str, Any]]:
            (folder / kind).mkdir()
            stories = {name: STORIES[name] for name in STORIES if (kind, name) != ("sqlite", "waiters")}
            said = run(MIGRATED + "".join(stories.values()), project(kind, url_of(kind), folder / kind))
            found = [line for line in said.splitlines() if line.startswith("{")]
            return dict(zip(stories, map(json.loads, found), strict=True))

        yield lambda kind, story: all_of(kind)[story]


def test_numbers_inside_of_atomic(kind, told):
    found = told(kind, "story")

    assert found.pop("outside").startswith("draw numbers inside transaction.atomic()")
    assert "writer at a time" in found["busy"] or "drawn numbers of 'invoice' of scope 'a' in 2026" in found["busy"]
    assert found.pop("busy")
    assert found.pop("missing").endswith(
        "run: python manage.py migrate, with allocator.integrations.django in INSTALLED_APPS"
    )
    assert found == {
        "before the first": None,
        "first": "INV-2026-00001",
        "after a savepoint": 2,
        "after a rollback": 3,
        "several": [4, 5],
        "peek": 5,
        "void": True,
        "alive": 1,
        "seen by Django": [2, True, [["INSERT INTO allocator_number", "tenant-7"], ["SELECT rule FROM", "tenant-7"]]],
        "last": 11,
    }


def test_an_atomic_block_gives_its_number_to_the_next_where_it_is_rolled_back(kind, told):
    if kind == "sqlite":
        pytest.skip("one writer at a time: no scope beside another")
    found = told(kind, "waiters")

    assert found == {"held": [1, 2, 3], "waited": [1, 2, 4], "other scope": [1, 2, 3]}


def test_each_database_counts_by_itself_in_its_own_block(kind, told):
    found = told(kind, "using")

    assert found.pop("in the block of another").startswith("draw numbers inside transaction.atomic()")
    assert found == {"in turn": [1, 1, 2, 2], "from 1000": [1000, 1001]}


def test_rows_are_numbered_after_the_commit(kind, told):
    found = told(kind, "waiting")

    assert found.pop("inside").endswith("is still open; in an atomic block, call it by transaction.on_commit")
    assert found.pop("without autocommit").endswith("is still open; this connection is not in autocommit mode")
    assert found.pop("away") == ("DatabaseRefused" if kind == "sqlite" else "DatabaseUnavailable")
    assert found == {
        "assigned": [1, 1, 1, 0],
        "counted": 4,
        "together": [2, 1],  # rows, statements
        "listed": ["3"],
        "coded": 1,
        "slips": ["S-2026-1", "S-2026-2", "S-2026-3"],  # of one counter, in the year of Berlin
        "trips": ["T-2026-1", "T-2026-2", "2 rows: nothing was found\n"],
        "rows": [
            ["INV-2026-00001", 1],
            ["INV-2025-00001", 2],
            ["INV-2026-00002", 3],
            [None, 4],
            ["INV-2026-00003", 5],
            ["INV-2025-00002", 6],
        ],
    }

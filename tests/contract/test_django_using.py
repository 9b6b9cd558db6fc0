"""Keys of Django's models in several databases: what a table holds counts wherever it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.applications.django_shop import AS_MYSQLDB, environment, run

pytest.importorskip("django")

SETTINGS = """
from project.settings import *

def file(name):
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / name}

DATABASES |= {
    "other": file("other.sqlite3"),
    "lacking": file("lacking.sqlite3"),
    "away": file("no/folder.sqlite3"),
    "nothing": {},
}
"""
MODELS = """
import json
from allocator.integrations.django import AllocatedBigAutoField
from allocator.integrations.django.ids import upgrade
from django.db import connections, models, transaction

class Given(models.Model):
    id = AllocatedBigAutoField()
    class Meta:
        app_label = "using"
        db_table = "given"

class Created(models.Model):
    id = AllocatedBigAutoField()
    class Meta:
        app_label = "using"
        db_table = "created"

class Many(models.Model):
    id = AllocatedBigAutoField()
    class Meta:
        app_label = "using"
        db_table = "many"

def made(*aliases, model=Given):
    for alias in aliases:
        with connections[alias].schema_editor() as editor:
            editor.create_model(model)

upgrade()
"""


@pytest.fixture
def told(kind: str, new_database: Callable[[str], str], tmp_path: Path) -> Callable[[str], Any]:
    """What a program prints whose default database is of each kind in turn, beside four others."""
    (tmp_path / "several.py").write_text((AS_MYSQLDB if kind in {"mysql", "mariadb"} else "") + SETTINGS)
    here = environment(tmp_path, new_database(kind), "several")
    return lambda code: json.loads(run(MODELS + code, here))


def test_rows_of_another_database_have_ids_above_those_that_are_there(told):
    found = told("""
found = []
for model, act in (
    (Given, lambda: Given().save(using="other")),
    (Created, lambda: Created.objects.using("other").create()),
    (Many, lambda: Many.objects.using("other").bulk_create([Many(), Many()])),
):
    made("default", "other", model=model)
    model.objects.using("other").create(id=500)
    model.objects.create(id=20)
    act()
    found.append([sorted(model.objects.using("other").values_list("pk", flat=True))[1], model.objects.create().pk])
print(json.dumps(found))
""")

    assert found == [[501, 502], [501, 502], [501, 503]]


def test_the_database_that_the_router_names_need_not_have_the_table(told):
    """Also where the caller is in a transaction, which a statement that fails would end on PostgreSQL."""
    found = told("""
made("other")
Given.objects.using("other").create(id=500)
with transaction.atomic(), transaction.atomic(using="other"):
    number = Given.objects.using("other").create().pk
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT 1")
        print(json.dumps([number, cursor.fetchone()[0]]))
""")

    assert found == [501, 1]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_the_database_that_the_router_names_must_answer(told):
    """Else the first draw would settle for less than it holds."""
    found = told("""
class Away:
    def db_for_write(self, model, **hints):
        return "away"

from django.db import OperationalError, router
made("other")
router.routers = [Away()]
try:
    Given.objects.using("other").create()
except OperationalError as error:
    print(json.dumps(str(error)))
""")

    assert found == "unable to open database file"

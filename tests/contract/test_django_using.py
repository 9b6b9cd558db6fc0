"""Keys of Django's models in several databases: the rows in the database of the router count."""

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
    "unasked": file("unasked.sqlite3"),
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

class Routed(models.Model):
    id = AllocatedBigAutoField()
    class Meta:
        app_label = "using"
        db_table = "routed"

class Lacking(models.Model):
    id = AllocatedBigAutoField()
    class Meta:
        app_label = "using"
        db_table = "lacking"

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


def test_ids_are_above_the_rows_in_the_database_of_the_router_and_no_other_is_asked(told):
    """Also where the table is not there, in a transaction, which a statement that fails would end on PostgreSQL."""
    found = told("""
class Other:
    def db_for_write(self, model, **hints):
        return "other" if model is Routed else None

from django.db import router
router.routers = [Other()]
made("default", "other", model=Routed)
made("default")
Routed.objects.create(id=500)
Given.objects.create(id=20)
found = [Routed.objects.create().pk, Given.objects.create().pk]
with transaction.atomic():
    found.append(Lacking._meta.pk.next_id())
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT 7")
        found.append(cursor.fetchone()[0])
print(json.dumps([found, [alias for alias in connections if connections[alias].connection is None]]))
""")

    assert found == [[501, 21, 1, 7], ["unasked", "away", "nothing"]]


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

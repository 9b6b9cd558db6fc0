"""Tests of a Django project whose migration writes rows: parallel, on a database that is kept, forked and spawned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.applications.django_shop import environment, manage, run
from support.distinct import distinct

pytest.importorskip("django")

SETTINGS = """
import multiprocessing
from project.settings import *
INSTALLED_APPS += ["depot"]
DATABASES["default"]["TEST"] = {"NAME": str(FOLDER / "kept.sqlite3")} if "sqlite" in ENGINE else {}
if START == "fork":  # Django spawns no worker on a SQLite database that is kept
    DATABASES["other"] = {"ENGINE": "django.db.backends.sqlite3", "TEST": {"NAME": str(FOLDER / "other.sqlite3")}}
multiprocessing.set_start_method(START, force=True)
"""
DEPOT = {
    "__init__.py": "",
    "models.py": """
from django.db import models
from allocator.integrations.django import AllocatedBigAutoField

class Bin(models.Model):
    id = AllocatedBigAutoField()
    code = models.CharField(max_length=10)

class Key16(AllocatedBigAutoField):
    def get_internal_type(self):
        return "SmallIntegerField"

class Shelf(models.Model):
    id = Key16()
""",
    "migrations/__init__.py": "",
    "migrations/0001_initial.py": """
from django.db import migrations, models
from allocator.integrations.django import AllocatedBigAutoField
from depot.models import Key16

def fill(apps, editor):
    if editor.connection.alias == "default":
        apps.get_model("depot", "Bin").objects.create(code="lost")

class Migration(migrations.Migration):
    operations = [
        migrations.CreateModel("Bin", [("id", AllocatedBigAutoField()), ("code", models.CharField(max_length=10))]),
        migrations.CreateModel("Shelf", [("id", Key16())]),
        migrations.RunPython(fill),
    ]
""",
    "tests.py": """
from django.conf import settings
from django.core import serializers
from django.test import SimpleTestCase, TestCase
from allocator.integrations.django import give_ids
from depot.models import Bin, Shelf

class WithoutDatabase(SimpleTestCase):
    def test_an_object_has_an_id(self):
        self.assertIsNotNone(give_ids([Bin()])[0].pk)

class WithOne(TestCase):
    def test_a_row_is_one_statement(self):
        with self.assertNumQueries(1):
            new = Bin(code="new")
            new.save()
        self.assertEqual(["lost", "new"], [one.code for one in Bin.objects.order_by("id")])

    def test_ids_are_above_those_of_a_fixture(self):
        new = Bin.objects.create(code="new").pk
        fixture = [{"model": "depot.bin", "pk": new + 1, "fields": {"code": "loaded"}}]
        for row in serializers.deserialize("python", fixture):
            row.save()
        self.assertEqual(new + 2, Bin.objects.create(code="next").pk)

    def test_a_narrow_column_has_room(self):
        self.assertEqual(1, Shelf.objects.filter(id=Shelf.objects.create().pk).count())

class WithBoth(TestCase):
    databases = set(settings.DATABASES)

    def test_ids_are_above_those_in_either(self):
        Bin.objects.using(max(self.databases)).create(id=900_000_000_000, code="far")
        self.assertEqual(900_000_000_001, Bin.objects.create().pk)
""",
}


@pytest.mark.parametrize(
    ("kind", "start"),
    [("sqlite", "fork"), pytest.param("postgres", "spawn", marks=pytest.mark.nightly)],
)
def test_rows_of_a_migration_are_in_nobodys_way(
    kind: str, start: str, new_database: Callable[[str], str], tmp_path: Path
):
    """The first run draws an id in the migration, and then starts its workers; the second finds the row."""
    for name, text in DEPOT.items():
        (tmp_path / "depot" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "depot" / name).write_text(text)
    engine = f"START = {start!r}\nENGINE = {kind!r}\n"
    (tmp_path / "depot_settings.py").write_text(engine + SETTINGS)
    here = environment(tmp_path, new_database(kind), "depot_settings")

    for words in ("--keepdb --parallel 2", "--keepdb", "--keepdb --parallel 2"):
        done = manage(f"test depot {words}", here)
        assert done.returncode == 0, done.stderr
        assert "Ran 5 tests" in done.stderr
    done = manage("test depot.tests.WithoutDatabase --keepdb --parallel 2", here)  # nothing has looked before
    assert done.returncode == 0, done.stderr


CHILD = """
import django
django.setup()
from django.test.utils import setup_test_environment
from shop.models import Order
setup_test_environment()
print(Order._meta.pk.next_id(), flush=True)
"""
FAMILY = """
import multiprocessing, os, runpy, sys
from shop.models import Order
runpy.run_path("{child}")
for _ in range(2):
    if os.fork() == 0:
        print(Order._meta.pk.next_id(), Order._meta.pk.next_id(), flush=True)
        os._exit(0)
    os.wait()
    spawned = multiprocessing.get_context("spawn").Process(target=runpy.run_path, args=["{child}"])
    spawned.start()
    spawned.join()
print(Order._meta.pk.next_id())
"""


def test_children_of_a_test_that_share_its_database_draw_other_ids(tmp_path: Path):
    child = tmp_path / "child.py"
    child.write_text(CHILD)

    assert distinct(run(FAMILY.format(child=child), environment(tmp_path)).split()) == 8

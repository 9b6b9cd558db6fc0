"""Tests of a Django project whose migration writes rows: parallel, on a database that is kept, forked and spawned."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.applications.django_shop import environment, manage

pytest.importorskip("django")

SETTINGS = """
import multiprocessing
from project.settings import *
INSTALLED_APPS += ["depot"]
DATABASES["default"]["TEST"] = {"NAME": str(FOLDER / "kept.sqlite3")} if "sqlite" in ENGINE else {}
multiprocessing.set_start_method(START, force=True)
ALLOCATOR = {"database": f"sqlite:///{FOLDER}/test-ids.sqlite3", "start_after": 1_000_000}
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
    apps.get_model("depot", "Bin").objects.create(code="lost")

class Migration(migrations.Migration):
    operations = [
        migrations.CreateModel("Bin", [("id", AllocatedBigAutoField()), ("code", models.CharField(max_length=10))]),
        migrations.CreateModel("Shelf", [("id", Key16())]),
        migrations.RunPython(fill),
    ]
""",
    "tests.py": """
import os
from django.core import serializers
from django.test import SimpleTestCase, TestCase
from allocator.integrations.django import give_ids
from depot.models import Bin, Shelf

class WithoutDatabase(SimpleTestCase):
    def test_an_object_has_an_id(self):
        self.assertGreater(give_ids([Bin()])[0].pk, 1_000_000)

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

    def test_ids_of_forks_differ(self):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, str(Bin._meta.pk.draw()).encode())
            os._exit(0)
        os.wait()
        mine = [Bin.objects.create(code="mine").pk for _ in range(2)]
        self.assertNotIn(int(os.read(reader, 99)), mine)
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
    done = manage("test depot.tests.WithoutDatabase --keepdb --parallel 2", here)
    assert done.returncode == 0, done.stderr

"""`CreateTag` in a migration of Django's, there and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.applications.django_shop import environment, run

pytest.importorskip("django")

SETTINGS = """
from project.settings import *
INSTALLED_APPS += ["keys"]
"""
MODELS = """
from django.db import models
from allocator.integrations.django import AllocatedBigAutoField
class Item(models.Model):
    id = AllocatedBigAutoField()
"""
MIGRATION = """
from django.db import migrations
from allocator.integrations.django import AllocatedBigAutoField, CreateTag
class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Item", [("id", AllocatedBigAutoField(primary_key=True, serialize=False))]),
        CreateTag("keys_item", step=10, start_after=500),
    ]
"""
STORY = """
import json
from django.core.management import call_command
from keys.models import Item

made = []
for _ in range(2):
    call_command("migrate", "keys", verbosity=0)
    call_command("makemigrations", "keys", check=True, dry_run=True)
    made.append(Item.objects.create().pk)
    call_command("migrate", "keys", "zero", verbosity=0)
print(json.dumps(made))
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_tag_that_a_migration_makes_stays_when_it_is_reversed(
    kind: str, new_database: Callable[[str], str], tmp_path: Path
) -> None:
    folder = tmp_path / "keys" / "migrations"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    (folder.parent / "models.py").write_text(MODELS)
    (folder / "m1.py").write_text(MIGRATION)
    (tmp_path / "keyed.py").write_text(SETTINGS)
    said = run(STORY, environment(tmp_path, new_database(kind), "keyed"))

    assert json.loads(said.splitlines()[-1]) == [501, 502]

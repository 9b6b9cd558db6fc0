"""`CreateTag` in a migration of Django's, and the operations of 0.2 that do nothing any more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.applications.django_shop import AS_MYSQLDB, environment, run
from support.distinct import none_twice

pytest.importorskip("django")

SETTINGS = """
from project.settings import *
SILENCED_SYSTEM_CHECKS = ["models.W042"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS += ["keys"]
"""
TWO_HOSTS = """
DATABASES["default"] |= {name: "{0},{0}".format(DATABASES["default"][name]) for name in ("HOST", "PORT")}
"""
HEAD = """
from django.db import migrations, models
from allocator.integrations.django import AllocatedBigAutoField, BindTag, CreateTag, TakeOver
class Migration(migrations.Migration):
"""
MODELS = """
from django.db import models
from allocator.integrations.django import AllocatedBigAutoField
class Order(models.Model):
    id = models.BigAutoField(primary_key=True)
class Item(models.Model):
    id = AllocatedBigAutoField()
"""
STEPS = {
    "m1": """[
        migrations.CreateModel("Order", [("id", models.BigAutoField(primary_key=True, serialize=False))]),
        migrations.CreateModel("Item", [("id", AllocatedBigAutoField(primary_key=True, serialize=False))]),
        CreateTag("keys_item", step=10, start_after=500),
        BindTag("item"),
    ]""",
    "m2": "[TakeOver('start', 'order', tag='order')]",
    "m3": "[TakeOver('finish', 'order', idle='0s')]",
    "m4": "[TakeOver('back', 'order', duration='1h')]",
}
STORY = """
import json
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from allocator.integrations.django import allocator

def at(migration):
    call_command("migrate", "keys", migration, verbosity=0)
    return MigrationLoader(connection).project_state(("keys", migration)).apps
"""


@pytest.fixture
def keys(kind: str, new_database: Callable[[str], str], tmp_path: Path) -> tuple[dict[str, str], str]:
    """The environment of a project with these migrations, and the URL of its database."""
    folder, before = tmp_path / "keys" / "migrations", ""
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    (folder.parent / "models.py").write_text(MODELS)
    for name, steps in STEPS.items():
        follows = f"    dependencies = [('keys', {before!r})]\n" if before else "    initial = True\n"
        (folder / f"{name}.py").write_text(f"{HEAD}{follows}    operations = {steps}\n")
        before = name
    settings = (AS_MYSQLDB if kind in {"mysql", "mariadb"} else "") + SETTINGS
    (tmp_path / "keyed.py").write_text(settings + TWO_HOSTS * (kind == "postgres"))
    url = new_database(kind)
    return environment(tmp_path, url, "keyed"), url


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_history_that_took_over_and_bound_runs_there_and_back(kind, keys):
    """Nothing is left to migrate: the state of the project is what it was."""
    here, _ = keys
    found = json.loads(
        run(
            f"""{STORY}
apps = at("m4")
found = {{"item": apps.get_model("keys", "item").objects.create().pk}}
orders = apps.get_model("keys", "order").objects
made = [orders.create().pk, orders.create().pk]
call_command("makemigrations", "keys", check=True, dry_run=True)
found["models"] = sorted(MigrationLoader(connection).project_state(("keys", "m4")).models)
at("m1")
made += [orders.create().pk]
at("m4")
found["twice"] = len(made) - len(set(made))
call_command("migrate", "keys", "zero", verbosity=0)
found["applied"] = [one for one in MigrationRecorder(connection).applied_migrations() if one[0] == "keys"]
print(json.dumps(found))
""",
            here,
        ).splitlines()[-1]
    )

    none_twice(found.pop("twice"))
    assert found == {"item": 501, "models": [["keys", "item"], ["keys", "order"]], "applied": []}


def test_a_step_that_does_nothing_is_logged_and_written_as_before():
    code = """
import logging
logging.basicConfig(format="%(message)s")
from allocator.integrations.django import BindTag, TakeOver
for one in (BindTag("item"), TakeOver("finish", "order", idle="0s")):
    one.state_forwards("keys", None)
    one.database_forwards("keys", None, None, None)
    one.database_backwards("keys", None, None, None)
    print(one.deconstruct(), one.reversible, one.reduces_to_sql)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert [line.split(" ", 1)[0] for line in done.stderr.splitlines()] == ["BindTag"] * 2 + ["TakeOver"] * 2
    assert done.stdout.splitlines() == [
        "('BindTag', ('item',), {}) True False",
        "('TakeOver', ('finish', 'order'), {'idle': '0s'}) True False",
    ]

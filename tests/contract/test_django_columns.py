"""`CreateTag`, `BindTag` and `TakeOver` in a migration of Django's, on each database."""

from __future__ import annotations

import json
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
HEAD = """
from django.db import migrations, models
from allocator.integrations.django import AllocatedBigAutoField, BindTag, CreateTag, TakeOver
class Migration(migrations.Migration):
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
from allocator.integrations.django import allocator

def at(migration):
    call_command("migrate", "keys", migration, verbosity=0)
    return MigrationLoader(connection).project_state(("keys", migration)).apps

def rows(what):
    with connection.cursor() as cursor:
        cursor.execute(what)
        return [row[0] for row in cursor.fetchall()]

def state():
    return rows("SELECT state FROM allocator_takeover")
"""


@pytest.fixture
def keys(kind: str, new_database: Callable[[str], str], tmp_path: Path) -> tuple[dict[str, str], str]:
    """The environment of a project with these migrations, and the URL of its database."""
    folder, before = tmp_path / "keys" / "migrations", ""
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    for name, steps in STEPS.items():
        follows = f"    dependencies = [('keys', {before!r})]\n" if before else "    initial = True\n"
        (folder / f"{name}.py").write_text(f"{HEAD}{follows}    operations = {steps}\n")
        before = name
    (tmp_path / "keyed.py").write_text((AS_MYSQLDB if kind in {"mysql", "mariadb"} else "") + SETTINGS)
    url = new_database(kind)
    return environment(tmp_path, url, "keyed"), url


SERVERS = ("postgres", "mysql", "mariadb")


@pytest.mark.parametrize("kind", SERVERS)
def test_a_tag_is_bound_and_a_key_taken_over_by_migrations(kind, keys):
    here, _ = keys
    found = json.loads(
        run(
            f"""{STORY}
found = {{}}
apps = at("m1")
found["bound"] = rows("SELECT tag FROM allocator_binding")
found["item"] = apps.get_model("keys", "item").objects.create().pk
orders = apps.get_model("keys", "order").objects
made = [orders.create().pk]
at("m2")
found["started"] = state()
made += [orders.create().pk, orders.create(pk=allocator().next_id("order")).pk]
rows_before = rows("SELECT given FROM allocator_takeover")
with connection.cursor() as cursor:  # as `allocator takeover status` looks
    cursor.execute("UPDATE allocator_takeover SET given = given + 1, given_at = 0")
at("m3")
found["finished"] = state()
try:
    orders.create()
except Exception as error:
    found["refused"] = type(error).__name__
at("m4")
found["back"] = state()
made += [orders.create().pk]
found["twice"] = len(made) - len(set(made))
print(json.dumps(found))
""",
            here,
        )
    )

    assert found.pop("refused") in {"IntegrityError", "OperationalError"}
    none_twice(found.pop("twice"))
    assert found == {
        "bound": ["keys_item"],
        "item": 501,
        "started": ["started"],
        "finished": ["finished"],
        "back": ["given back"],
    }


@pytest.mark.parametrize("kind", SERVERS)
def test_a_start_is_reversed_by_going_back_and_a_binding_by_its_end(kind, keys):
    here, _ = keys
    found = run(
        f"""{STORY}
at("m2"); at("m1")
print(state(), rows("SELECT tag FROM allocator_binding"))
call_command("migrate", "keys", "zero", verbosity=0)
print(rows("SELECT tag FROM allocator_binding"))
""",
        here,
    )

    assert found.split("\n")[:2] == ["['given back'] ['keys_item']", "[]"]


@pytest.mark.parametrize("kind", ["postgres"])
def test_ids_of_another_database_are_refused(keys, tmp_path):
    here, _ = keys
    elsewhere = here | {"ALLOCATOR_DATABASE_URL": f"sqlite:///{tmp_path}/elsewhere.db"}
    found = run(f"{STORY}\ntry: at('m1')\nexcept Exception as error: print(type(error).__name__, error)", elsewhere)

    assert found.startswith("InvalidSetting ids come from another database than keys_item.id, which Django calls")

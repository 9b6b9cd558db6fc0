"""Django: keys of its models and numbers without gaps as stories, its migrations, and its router."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.applications.django_shop import AS_MYSQLDB, MIGRATED, environment, manage, run
from support.distinct import distinct
from support.kit import ON_POSTGRES, SQLITE, on

pytest.importorskip("django")

Project = Callable[..., dict[str, str]]


def write(folder: Path, **modules: str) -> None:
    """Modules by their names, those of packages with two underscores for each dot."""
    for name, text in modules.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)


@pytest.fixture
def project(kind: str, new_database: Callable[[str], str], tmp_path: Path) -> Project:
    """The environment of the example's project with more settings, on one database."""
    url, begin = new_database(kind), AS_MYSQLDB * (kind in {"mysql", "mariadb"}) + "from project.settings import *\n"

    def with_settings(settings: str, name: str = "more_settings") -> dict[str, str]:
        write(tmp_path, **{name: begin + settings})
        return environment(tmp_path, url, name)

    return with_settings


# -- stories: one process tells each, on every database

SETTINGS = {
    "django_story": """
DEFAULT_AUTO_FIELD = "allocator.integrations.django.AllocatedBigAutoField"
SILENCED_SYSTEM_CHECKS = ["models.W042"]
""",
    "django_numbers": """
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = {}  # by IMMEDIATE an atomic block would wait where it begins
DATABASES["other"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "other.sqlite3"}
""",
}
CHAPTERS = {"django_story": 10, "django_numbers": 9}


@pytest.mark.parametrize("story", SETTINGS)
def test_a_story(story, project, tmp_path, subtests):
    """Of `support.applications`: each chapter ends with nothing, or says why not."""
    command = [sys.executable, "-m", f"support.applications.{story}", str(tmp_path)]
    here = project(SETTINGS[story])
    done = subprocess.run(command, env=here, capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 0, done.stderr
    chapters = json.loads(done.stdout.splitlines()[-1])
    assert len(chapters) == CHAPTERS[story]
    for chapter, why in chapters.items():
        with subtests.test(chapter):
            assert why == ""


# -- migrations: which tables the default key leaves alone, and a key that changes its counter and back

BEFORE = """
SILENCED_SYSTEM_CHECKS = ["models.W042"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
KEYED = BEFORE + "INSTALLED_APPS += ['keys']\n"
EVERYWHERE = BEFORE + 'DEFAULT_AUTO_FIELD = "allocator.integrations.django.AllocatedBigAutoField"\n'
WITHOUT_THE_SHOP = """
from django.core.management import call_command
call_command("migrate", "shop", "zero", verbosity=0)
"""
JOINED = """
import json
from django.contrib.auth.models import Group, Permission, User
user, group = User.objects.create(username="{0}"), Group.objects.create(name="{0}")
user.groups.add(group)
group.permissions.add(*Permission.objects.all()[:2])
user.user_permissions.add(Permission.objects.first())
print(json.dumps([user.groups.count(), group.permissions.count(), user.user_permissions.count()]))
"""


def test_tables_that_no_migration_can_alter_keep_the_counter_of_the_database(project):
    """Those of many-to-many fields, whose models in an application of Django's have its own key, and Django's record
    of migrations: else a row is refused (on SQLite it vanishes), and the setting could not be taken back."""
    everywhere, before = project(EVERYWHERE, "everywhere"), project(BEFORE, "before")

    assert json.loads(run(MIGRATED + JOINED.format("a"), everywhere)) == [1, 2, 1]
    assert json.loads(run(WITHOUT_THE_SHOP + MIGRATED + JOINED.format("b"), before)) == [1, 2, 1]


SECOND_SCHEMA = """
import json
from django.db import connection, transaction
from allocator import Numbers
from allocator.integrations.django.ids import upgrade

def draw():
    with transaction.atomic():
        return Numbers("invoice").next(connection).n

def execute(*statements):
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)

found = [draw()]
execute("CREATE SCHEMA eyes")
call_command("migrate", verbosity=0)
found.append(draw())
execute("CREATE SCHEMA tenant", "SET search_path = tenant")  # as django-tenants migrates a tenant
upgrade(using="default")
print(json.dumps([*found, draw()]))
"""


@ON_POSTGRES
def test_tables_in_a_later_schema_of_the_search_path_are_the_tables(project):
    """An empty table in the first one would hide them, and numbers would begin again. A tenant gets its own."""
    path = 'DATABASES["default"]["OPTIONS"] = {"options": "-c search_path=eyes,public"}\n'

    assert json.loads(run(MIGRATED + SECOND_SCHEMA, project(BEFORE + path))) == [1, 2, 1]


FIRST = """
from django.db import migrations, models
class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Order", [("id", models.BigAutoField(primary_key=True, serialize=False))]),
        migrations.CreateModel("Item", [
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("order", models.ForeignKey("keys.order", models.CASCADE)),
        ]),
    ]
"""
NEXT = """
from functools import partial
from django.db import migrations, models
from allocator.integrations.django import AllocatedBigAutoField, AlterKey
class Migration(migrations.Migration):
    dependencies = [("keys", "{before}")]
    operations = [{operation}("order", "id", {field}(primary_key=True, serialize=False))]
"""
CHAIN = ["AllocatedBigAutoField", "partial(AllocatedBigAutoField, tag='orders')", "models.BigAutoField"]
USED = """
import json
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from allocator.integrations.django import allocator

call_command("migrate", "shop", verbosity=0)  # with the allocator's tables

def at(migration, name="order"):
    call_command("migrate", "keys", migration, verbosity=0)
    return MigrationLoader(connection).project_state(("keys", migration)).apps.get_model("keys", name).objects

def used(orders):
    made = [orders.create().pk for _ in range(5)]
    orders.filter(pk__in=made[3:]).delete()
    return made
"""


@pytest.fixture
def keys(project, tmp_path: Path) -> Project:
    """A project with an application whose key is altered in each migration after the first."""

    def altering(*fields: str, operation: str = "AlterKey") -> dict[str, str]:
        pairs = enumerate(fields, 1)
        following = [NEXT.format(before=f"m{number}", operation=operation, field=field) for number, field in pairs]
        write_keys(tmp_path, FIRST, *following)
        return project(KEYED)

    return altering


def write_keys(folder: Path, *migrations: str) -> None:
    numbered = {f"keys__migrations__m{number}": text for number, text in enumerate(migrations, 1)}
    write(folder, keys__models="", **numbered)


IN_TURNS = """
for migration in ("m1", "m2", "m4", "m2"):
    at(migration)
found = []
for migration in ("m2", "m4", "m3", "m1", "m4"):  # at last by way of tags that nobody drew from
    orders = at(migration)
    found.append([used(orders), used(orders.first().item_set)])  # no new order, which would have the greatest id
print(json.dumps(found))
"""


def test_a_key_goes_to_a_tag_and_back_and_no_id_comes_again(keys):
    """Not those of deleted rows either. By way of another tag; by new migrations, and by reversed ones. A table that
    was never used takes no id. One that refers to the altered one keeps its counter: Django makes it anew, and a new
    table of SQLite counts from its greatest row."""
    found = json.loads(run(USED + IN_TURNS, keys(*CHAIN)))
    orders = [number for made, _ in found for number in made]

    assert found[0][0] == [1, 2, 3, 4, 5]
    assert distinct(orders)
    assert sorted(orders) == orders
    assert [number for _, made in found for number in made] == list(range(1, 26))


@SQLITE
def test_squashed_migrations_keep_the_operation(keys):
    """As an `AlterField` it would repeat ids of deleted rows."""
    script = """
from django.db.migrations import AlterField, RemoveField, RenameField
from django.db.migrations.optimizer import MigrationOptimizer
from django.db.models import BigAutoField
from allocator.integrations.django import AlterKey
key = BigAutoField(primary_key=True)
for after in (RenameField("order", "id", "key"), AlterField("order", "id", key), AlterKey("order", "id", key)):
    print(*(type(one).__name__ for one in MigrationOptimizer().optimize([AlterKey("order", "id", key), after], "shop")))
"""

    assert run(script, keys(*CHAIN)).splitlines() == ["AlterKey RenameField", "AlterKey AlterField", "AlterKey"]


@SQLITE
def test_control_plain_alterations_give_the_ids_of_deleted_rows_again(keys):
    here = keys(*CHAIN, operation="migrations.AlterField")
    found = run(f"{USED}\nprint(*(used(at(migration))[0] for migration in ('m1', 'm2', 'm4')))", here)

    assert found.split() == ["1", "4", "7"]


@SQLITE
def test_a_plain_alteration_is_named_with_what_replaces_it(keys, tmp_path):
    here = keys(*CHAIN, operation="migrations.AlterField")
    found = manage("check", here).stderr
    for migration in ("m2", "m3", "m4"):
        assert f"keys.{migration}: Alter field id on order: ids of deleted rows come again" in found
    new, old, above = re.search(r"write (\S+) in place of (\S+), and above: (.*)", found).groups()
    for migration in (tmp_path / "keys" / "migrations").glob("m*.py"):
        migration.write_text(f"{above}\n{migration.read_text()}".replace(old, new))

    assert "AlterField" not in manage("check", here).stderr
    assert run(f"{USED}\nprint(*(used(at(migration))[0] for migration in ('m1', 'm2')))", here).split() == ["1", "6"]


RENAMING = """
from django.db import migrations
from allocator.integrations.django import AllocatedBigAutoField, AlterKey
class Migration(migrations.Migration):
    dependencies = [("keys", "m1")]
    operations = [
        migrations.{}
    ]
"""


@SQLITE
@pytest.mark.parametrize(
    ("renaming", "model", "is_kept"),
    [
        ('RenameModel("Order", "Sale")', "sale", True),
        ('AlterModelTable("order", "sales")', "order", True),
        ('RenameModel("Order", "Sale")', "sale", False),  # the control
    ],
)
def test_a_renaming_that_starts_a_new_tag_is_named_with_the_line_that_keeps_the_old_one(
    project, tmp_path, renaming, model, is_kept
):
    field = "allocator.integrations.django.AllocatedBigAutoField"
    drawing = "import allocator.integrations.django" + FIRST.replace("models.BigAutoField", field)
    write_keys(tmp_path, drawing, RENAMING.format(renaming))
    here, second = project(KEYED), tmp_path / "keys" / "migrations" / "m2.py"
    found = manage("check", here).stderr
    assert "keys.m2: Rename" in found
    line = re.search(r"above the operation write (AlterKey\(.*\),)", found)[1]
    if is_kept:
        second.write_text(RENAMING.format(renaming).replace("operations = [", f"operations = [{line}"))
        assert "W004" not in manage("check", here).stderr

    ids = run(f"{USED}\nprint(used(at('m1'))[0], used(at('m2', {model!r}))[0])", here)
    assert ids.split() == ["1", "6" if is_kept else "4"]


@on("postgres", "mysql")
def test_the_way_back_into_a_column_that_is_too_narrow_is_refused(keys):
    here = keys("AllocatedBigAutoField", "models.AutoField")
    found = run(
        f"""{USED}
used(at("m2"))
allocator().tags.set("keys_order", start_after=2**31)
try:
    at("m3")
except Exception as error:
    print(type(error).__name__, error)
print(used(at("m2"))[0])
""",
        here,
    ).splitlines()

    assert found[0].startswith("InvalidSetting ids up to 2147483648 exist, but keys_order.id (AutoField) holds none")
    assert int(found[1]) < 2**31


# -- keys in several databases: the rows in the database of the router count


SEVERAL = """
DATABASES |= {
    name: {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / file}
    for name, file in (("other", "other.sqlite3"), ("unasked", "unasked.sqlite3"), ("away", "no/folder.sqlite3"))
}
"""
ROUTED = """
import json
from allocator.integrations.django import AllocatedBigAutoField
from allocator.integrations.django.ids import upgrade
from django.db import OperationalError, connections, models, router, transaction

def model(name):
    meta = type("Meta", (), {"app_label": "using", "db_table": name.lower()})
    return type(name, (models.Model,), {"__module__": __name__, "id": AllocatedBigAutoField(), "Meta": meta})

Given, Routed, Lacking, Lost = map(model, ("Given", "Routed", "Lacking", "Lost"))
places = {Routed: "other", Lost: "away"}

class Router:
    def db_for_write(self, model, **hints):
        return places.get(model)

upgrade()
router.routers = [Router()]
for alias, kind in (("default", Routed), ("other", Routed), ("default", Given), ("other", Lost)):
    with connections[alias].schema_editor() as editor:
        editor.create_model(kind)
Routed.objects.create(id=500)
Given.objects.create(id=20)
found = [Routed.objects.create().pk, Given.objects.create().pk]
with transaction.atomic():
    found.append(Lacking._meta.pk.draw())
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT 7")
        found.append(cursor.fetchone()[0])
found.append([alias for alias in connections if connections[alias].connection is None])
try:
    Lost.objects.using("other").create()
except OperationalError as error:
    found.append(str(error))
print(json.dumps(found))
"""


def test_ids_are_above_the_rows_in_the_database_of_the_router_and_no_other_is_asked(project):
    """Also where the table is not there, in a transaction, which a statement that fails would end on PostgreSQL. A
    database that does not answer is an error: the first draw would settle for less than it holds."""
    *found, refused = json.loads(run(ROUTED, project(SEVERAL)))

    assert found == [501, 21, 1, 7, ["unasked", "away"]]
    assert refused == "unable to open database file"

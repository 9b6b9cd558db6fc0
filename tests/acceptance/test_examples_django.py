"""The example of a Django application: a server with workers, its own tests, what it says when it is set wrong."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.applications.django_shop import AS_MYSQLDB, EXAMPLE, MIGRATED, TESTS, environment, manage, managed, run
from support.distinct import distinct, none_twice
from support.processes.prefork import Asked, gunicorn, serving
from support.servers.throwaway import free_port

pytest.importorskip("django")

README = (TESTS.parent / "README.md").read_text()
PRELOADED = """
from project.wsgi import application
from shop.models import Order
before = [Order._meta.pk.draw() for _ in range(5)]
"""
ORDER = json.dumps({"customer": "Ada", "items": ["tea", "milk"]})


def test_workers_forked_after_ids_were_drawn_give_every_row_its_own(tmp_path):
    here = environment(tmp_path)
    managed("migrate --verbosity 0", here)
    (tmp_path / "preloaded.py").write_text(PRELOADED)
    port = free_port()
    with serving(gunicorn("preloaded", port), tmp_path, port, **here):
        single = Asked(port, "/orders", "POST", ORDER).answers_of_several(20)
        awaited = list(Asked(port, "/orders/later", "POST").answers(6))
        many = list(Asked(port, "/orders/many?count=50", "POST").answers(6))
        shown = Asked(port, f"/orders/{single[0]['orders'][0]}").answer()
    found = [*single, *awaited, *many]
    orders = [number for answer in found for number in answer["orders"]]
    items = [number for answer in found for number in answer["items"]]

    assert len({answer["process"] for answer in found}) == 2, (tmp_path / "log").read_text()
    assert distinct(orders) == len(single) + 6 + 300
    assert distinct(items) == 2 * len(single) + 6 + 300
    none_twice({1, 2, 3, 4, 5}.intersection(orders))
    assert shown == {"customer": "Ada", "items": ["tea", "milk"]}
    with closing(sqlite3.connect(tmp_path / "shop.sqlite3")) as connection:
        assert connection.execute("SELECT count(*) FROM shop_order").fetchone() == (len(orders),)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)])
def test_its_own_tests_pass_and_leave_ids_of_tests_alone(kind: str, new_database: Callable[[str], str], tmp_path: Path):
    """Also on a database that is kept, with the ids of the run before."""
    here = environment(tmp_path, new_database(kind))
    for words in ("test shop --keepdb", "test shop --noinput"):
        done = manage(words, here)

        assert "Ran 3 tests" in done.stderr
        assert done.returncode == 0, done.stderr  # as where it cannot be dropped, since ids are drawn from it
    assert {path.name for path in tmp_path.glob("*.*")} == {"test-ids.db", "test-ids.db-lock"}


COMMANDED = """
from shop.models import Order
Order.objects.create()
call_command("allocator", "tags", "list", "--json")
call_command("allocator", "next", "shop_order", "--json")
"""


@pytest.mark.parametrize("kind", ["sqlite", "mysql"])
def test_the_command_line_has_the_database_of_the_settings(kind, new_database, tmp_path):
    """And not that of the environment, which another program may use."""
    (tmp_path / "said.py").write_text(AS_MYSQLDB * (kind == "mysql") + "from project.settings import *")
    here = environment(tmp_path, new_database(kind), "said") | {"ALLOCATOR_DATABASE_URL_FILE": "/no/such/file"}
    listed, drawn = run(MIGRATED + COMMANDED, here).splitlines()

    assert listed.startswith('[{"tag": "shop_order", "max_value": "10"')
    assert drawn == '{"tag": "shop_order", "ids": ["11"]}'
    assert managed("allocator tags list --json", here).startswith('[{"tag": "shop_order", "max_value": "11"')


def test_a_command_that_it_runs_learns_nothing_of_the_settings(tmp_path):
    """Neither the database with its password nor the token; and what the environment says instead is not read."""
    chosen = {"database": "sqlite:///chosen.db", "timeout": 5}
    (tmp_path / "chosen.py").write_text(f"from project.settings import *\nALLOCATOR = {chosen}")
    here = environment(tmp_path, settings="chosen")
    words = [sys.executable, str(EXAMPLE / "manage.py"), "allocator", "worker", "run", "--space", "pods", "--", "env"]
    done = subprocess.run(words, env=here, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)

    assert "\nWORKER_ID=0\n" in done.stdout
    assert "chosen.db" not in done.stdout
    told = {line.partition("=")[0] for line in done.stdout.splitlines() if line.startswith("ALLOCATOR_")}
    assert told == {name for name in here if name.startswith("ALLOCATOR_")}


def test_the_command_line_ends_as_it_does_without_django_and_dumpdata_writes_the_rows_of_a_project(tmp_path):
    """Of all of its applications: ours has no model, whose table would be missing."""
    here = environment(tmp_path)
    run(MIGRATED + "from shop.models import Order; Order.objects.create()", here)
    refused = manage("allocator tags set shop_order --start-after 1", here)
    rows = json.loads(managed("dumpdata", here))

    assert (refused.returncode, refused.stderr[:6]) == (1, "error:")
    assert manage("allocator tags sat", here).returncode == 2
    assert [row["pk"] for row in rows if row["model"] == "shop.order"] == [1]
    assert [row for row in rows if row["model"].startswith("allocator.")] == []


SET = {
    "'postgresql://u:p%40s@one/a'": {"ALLOCATOR_DATABASE_URL": "postgresql+psycopg://u:p%40s@one/a"},
    "{'shards': ['sqlite:////a.db?shard=7f3a91c2.1', 'sqlite:////b.db?shard=7f3a91c2.2']}": {
        "ALLOCATOR_DATABASE_URL": "sqlite+pysqlite:////a.db?shard=7f3a91c2.1 sqlite+pysqlite:////b.db?shard=7f3a91c2.2",
    },
    "{'database': ['https://one.example'], 'token': 'secret'}": {
        "ALLOCATOR_DATABASE_URL": "https://one.example",
        "ALLOCATOR_TOKEN": "secret",
    },
}


def test_a_setting_becomes_the_variables_of_the_command_line(tmp_path):
    code = "import json; from allocator.integrations.django.management.commands.allocator import variables\n"
    code += "from django.conf import settings\n"
    code += "".join(f"settings.ALLOCATOR = {one}\nprint(json.dumps(variables()))\n" for one in SET)
    said = run(code, environment(tmp_path)).splitlines()

    assert [json.loads(line) for line in said] == list(SET.values())


TAGLESS = """
from django.db import models
from allocator.integrations.django import AllocatedBigAutoField

class Tagless(models.Model):
    id = AllocatedBigAutoField()
    class Meta:
        db_table = 'shop".".tagless'
"""
SETTINGS = {
    "'nothing'": "this is not a database URL",
    "{'steps': 5}": "ALLOCATOR holds an invalid argument of Allocator: .*steps",
    "{'step': 0}": "step must be",
    "{'start_after': 'x'}": "start_after must be",
}
CHECKED = """
from django.core.checks import run_checks
from django.test import override_settings
for setting in [{}]:
    with override_settings(ALLOCATOR=setting):
        print(*(f"{{found.obj}}: {{found.id}} {{found.msg}} {{found.hint}}" for found in run_checks()))
"""


def test_a_table_whose_name_is_no_tag_and_a_setting_that_cannot_be_used_are_errors_of_a_check(tmp_path):
    (tmp_path / "tagless").mkdir()
    (tmp_path / "tagless" / "__init__.py").touch()
    (tmp_path / "tagless" / "models.py").write_text(TAGLESS)
    (tmp_path / "wrong.py").write_text("from project.settings import *\nINSTALLED_APPS += ['tagless']")
    said = run(CHECKED.format(", ".join(SETTINGS)), environment(tmp_path, settings="wrong")).splitlines()

    for line, words in zip(said, SETTINGS.values(), strict=True):
        assert re.search(f"allocator.E002 .*{words}", line)
        assert re.search(
            r"tagless.Tagless.id: allocator.E001 .*cannot be a tag: .*AllocatedBigAutoField\(tag='order'", line
        )


def test_the_readme_goes_on_where_startapp_ends(tmp_path):
    """`startapp` of Django before 6 writes a line into `apps.py` that overrides the setting."""
    admin = [sys.executable, "-m", "django"]
    here = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{TESTS.parent}"}
    for words in (["startproject", "site1", "."], ["startapp", "shop"]):
        subprocess.run([*admin, *words], cwd=tmp_path, env=here, check=True, timeout=120)
    (tmp_path / "shop" / "models.py").write_text("from django.db import models\nclass Order(models.Model): pass\n")
    apps, settings = tmp_path / "shop" / "apps.py", tmp_path / "site1" / "settings.py"
    recipe = README.partition("Django: add two settings")[2].partition("```python\n")[2].partition("```")[0]
    recipe = recipe.replace("[", "INSTALLED_APPS + [").replace("...", '"shop"')
    settings.write_text(re.sub("DEFAULT_AUTO_FIELD = .*", "", settings.read_text()) + recipe)
    here["DJANGO_SETTINGS_MODULE"] = "site1.settings"
    apps.write_text(re.sub(" +default_auto_field = .*\n", "", apps.read_text()))
    code = "from shop.models import Order; print(type(Order._meta.pk).__name__)"
    assert run(code, here) == "AllocatedBigAutoField\n"
    assert "delete the line `default_auto_field` from the `apps.py`" in README

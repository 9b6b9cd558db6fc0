"""The example of a Django application, as a process of its own on a database of a test."""

import os
import subprocess
import sys
from pathlib import Path

from sqlalchemy import make_url

TESTS = Path(__file__).parents[2]
EXAMPLE = TESTS.parent / "examples" / "django_app"
AS_MYSQLDB = "import pymysql; pymysql.version_info = (2, 2, 8, 'final', 0); pymysql.install_as_MySQLdb()\n"
"""Django asks for mysqlclient, of which there are no wheels; this is its own driver's way to stand in."""
MIGRATED = "from django.core.management import call_command\ncall_command('migrate', verbosity=0)\n"
"""What a program begins with whose tables are not there yet; a process of its own would take a second."""


def environment(folder: Path, url: str = "sqlite://", settings: str = "project.settings") -> dict[str, str]:
    """Files go into `folder`, which is searched for modules too; rows into the database, or for SQLite a file there."""
    where = make_url(url)
    scheme = where.get_backend_name().replace("mariadb", "mysql")
    paths = {
        "PYTHONPATH": os.pathsep.join(map(str, (EXAMPLE, folder, TESTS, TESTS.parent))),
        "SHOP_FOLDER": str(folder),
    }
    if scheme != "sqlite":
        paths["DATABASE_URL"] = where.set(drivername=scheme).render_as_string(hide_password=False)
    return os.environ | paths | {"DJANGO_SETTINGS_MODULE": settings, "PYTHONWARNINGS": ""}


def managed(command: str, environment: dict[str, str]) -> str:
    """What `manage.py` says; a failure is one here."""
    done = manage(command, environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def manage(command: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(EXAMPLE / "manage.py"), *command.split()]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)


def run(code: str, environment: dict[str, str]) -> str:
    """What a program prints that uses the application."""
    words = [sys.executable, "-c", f"import django\ndjango.setup()\n{code}"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout

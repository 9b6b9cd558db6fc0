"""django-sequences on Django's connection to a place."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from sqlalchemy import make_url

from .places import RUN, Place

SEQUENCE = f"allocator_bench_{RUN}_sequence"
ENGINES = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}


def has_django() -> bool:
    return all(importlib.util.find_spec(name) for name in ("django", "sequences"))


def open_django(stack: ExitStack, place: Place, pool: ThreadPoolExecutor, threads: int) -> None:
    """Connect Django to a place, and make the table of django-sequences there, under a name of this run.

    threads: of the pool; their connections are closed at the end.
    """
    settings: Any = importlib.import_module("django.conf").settings
    if not settings.configured:
        settings.configure(INSTALLED_APPS=["sequences.apps.SequencesConfig"], DATABASES={"default": {}})
        importlib.import_module("django").setup()
    if ENGINES[place.backend] == "mysql":
        as_mysqldb()
    model: Any = importlib.import_module("sequences.models").Sequence
    model._meta.db_table = SEQUENCE
    connections: Any = importlib.import_module("django.db").connections
    connections.settings |= connections.configure_settings({"default": entry_of(place)})
    connections["default"] = connections.create_connection("default")  # of this thread, which has that of another place
    with connections["default"].schema_editor() as editor:
        editor.create_model(model)

    def close(ready: threading.Barrier) -> None:
        ready.wait()  # a thread each
        connections.close_all()

    def leave() -> None:
        list(pool.map(close, [threading.Barrier(threads)] * threads))
        with connections["default"].schema_editor() as editor:
            editor.delete_model(model)
        connections.close_all()

    stack.callback(leave)


def entry_of(place: Place) -> dict[str, object]:
    """The place as an entry of Django's DATABASES."""
    url = make_url(place.url)
    named = {"NAME": url.database, "USER": url.username, "PASSWORD": url.password, "HOST": url.host, "PORT": url.port}
    given = {name: value for name, value in named.items() if value is not None}
    return {"ENGINE": f"django.db.backends.{ENGINES[place.backend]}", **given}


def as_mysqldb() -> None:
    """Let PyMySQL be the driver of Django, as it is ours."""
    driver: Any = importlib.import_module("pymysql")
    driver.version_info = (2, 2, 8, "final", 0)  # of mysqlclient, which Django asks for
    driver.install_as_MySQLdb()

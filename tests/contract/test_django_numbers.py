"""Numbers without gaps in Django's `atomic`, on every database: one process for each tells what it found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.applications.django_shop import AS_MYSQLDB, environment, managed, run

pytest.importorskip("django")

STORY = """
import json, threading
from datetime import date
from django.db import connection, connections, transaction
from allocator import AllocatorError, InvalidDatabase, NumberBusy, Numbers
from allocator.integrations.django.ids import upgrade

invoices = Numbers("invoice", format="INV-{year}-{n:05}", reset="year", wait=0.1)
march, found = date(2026, 3, 9), {}

def draw(scope="a", **more):
    return invoices.next(connection, scope, march, **more)

class Undo(Exception):
    pass

try:
    draw()
except InvalidDatabase as error:
    found["outside"] = str(error)
with transaction.atomic():
    found["first"] = draw().text
    try:
        with transaction.atomic():
            draw()
            raise Undo
    except Undo:
        pass
    found["after a savepoint"] = draw().n
try:
    with transaction.atomic():
        draw()
        raise Undo
except Undo:
    pass
with transaction.atomic():
    found["after a rollback"] = draw().n
    found["several"] = [one.n for one in draw(count=2)]
    found["peek"] = invoices.peek(connection, "a", march).n
    invoices.set(connection, 9, scope="a", at=march)
    found["void"] = invoices.void(connection, draw(), "printed twice")
    def elsewhere():
        try:
            with transaction.atomic():
                try:
                    draw()
                except NumberBusy as error:
                    found["busy"] = str(error)
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1")
                    found["alive"] = cursor.fetchone()[0]
        finally:
            connections.close_all()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
upgrade(using="default")  # as each migrate does
with transaction.atomic():
    found["last"] = draw().n
    try:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE allocator_number")
        draw()
    except AllocatorError as error:
        found["missing"] = str(error)
    transaction.set_rollback(True)
print(json.dumps(found))
"""


def test_numbers_inside_of_atomic(kind, empty, tmp_path):
    settings = "from project.settings import *\n"
    if kind == "sqlite":  # by IMMEDIATE an atomic block would wait where it begins
        settings += "DATABASES['default']['OPTIONS'] = {}\n"
    if kind in {"mysql", "mariadb"}:
        settings = AS_MYSQLDB + settings
    (tmp_path / "told.py").write_text(settings)
    place = environment(tmp_path, empty, "told")
    managed("migrate", place)
    found: dict[str, Any] = json.loads(run(STORY, place).splitlines()[-1])

    assert found.pop("outside").startswith("numbers are drawn inside of transaction.atomic()")
    assert "writer at a time" in found["busy"] or "drawn numbers of 'invoice' of scope 'a' in 2026" in found["busy"]
    assert found.pop("busy")
    assert "run: allocator db upgrade" in found.pop("missing")
    assert found == {
        "first": "INV-2026-00001",
        "after a savepoint": 2,
        "after a rollback": 3,
        "several": [4, 5],
        "peek": 5,
        "void": True,
        "alive": 1,
        "last": 11,
    }

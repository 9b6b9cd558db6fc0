"""What the first id of a process imports: no client, no doctor, no other command, and nothing of another database."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest
from sqlalchemy import make_url

from allocator.database.store import Database

DATABASES = ("sqlite", "postgresql", "mysql")
UNUSED = {
    "allocator.doctor",
    "allocator.remote.client",
    "allocator.rules.findings",
    "allocator.rules.tag_column",
    "allocator.schemes.gapless_numbers",
    "allocator.service",
}
PROGRAMS = {
    "library": """
from allocator import Allocator
with Allocator(sys.argv[1]) as ids:
    ids.next_id("order")
""",
    "command": """
from allocator.cli import main
main(["next", "order", "--url", sys.argv[1]], standalone_mode=False)
""",
}
NAMES = "print(*sorted(name for name in sys.modules if name.startswith(('sqlalchemy.dialects.', 'allocator.'))))"
OF_THE_COMMAND = {"", ".next", ".options", ".output"}


@pytest.mark.parametrize(
    ("kind", "program"),
    [*((kind, "library") for kind in ("sqlite", "postgres", "mysql", "mariadb")), ("sqlite", "command")],
    indirect=["kind"],
)
def test_the_first_id_imports_no_other_database_no_client_and_no_other_command(fresh, program):
    with closing(Database(fresh)) as database:
        database.upgrade_schema()
    words = [sys.executable, "-c", f"import sys{PROGRAMS[program]}{NAMES}", fresh]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    backend = make_url(fresh).get_backend_name()

    used = "mysql" if backend == "mariadb" else backend
    for module in ("sqlalchemy.dialects.{}", "allocator.database.{}.dialect"):
        assert {module.format(one) for one in DATABASES} & set(names) == {module.format(used)}
    assert "allocator.database.store" in names
    assert not UNUSED & set(names)
    commands = {name.removeprefix("allocator.cli") for name in names if name.startswith("allocator.cli")}
    assert commands == (OF_THE_COMMAND if program == "command" else set())

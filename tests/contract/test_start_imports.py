"""What the first id of a process imports: no client, no rules of the doctor, and nothing of another database."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

from sqlalchemy import make_url

from allocator.database.store import Database

DATABASES = ("sqlite", "postgresql", "mysql")
UNUSED = {
    "allocator.remote.client",
    "allocator.rules.findings",
    "allocator.rules.takeover_ranges",
    "allocator.schemes.gapless_numbers",
}
FIRST_ID = """
import sys
from allocator import Allocator
with Allocator(sys.argv[1]) as ids:
    ids.next_id("order")
print(*sorted(name for name in sys.modules if name.startswith(("sqlalchemy.dialects.", "allocator."))))
"""


def test_the_first_id_imports_no_other_database_and_no_client(fresh):
    with closing(Database(fresh)) as database:
        database.upgrade_schema()
    words = [sys.executable, "-c", FIRST_ID, fresh]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    backend = make_url(fresh).get_backend_name()

    used = "mysql" if backend == "mariadb" else backend
    for module in ("sqlalchemy.dialects.{}", "allocator.database.{}.dialect"):
        assert {module.format(one) for one in DATABASES} & set(names) == {module.format(used)}
    assert "allocator.database.store" in names
    assert not UNUSED & set(names)

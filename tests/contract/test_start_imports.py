"""What the first id of a process imports: no client, no rules of the doctor, and SQLAlchemy's PostgreSQL only there.

SQLAlchemy imports its parts for MySQL and SQLite always, for the options of our tables. PostgreSQL's is the largest.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

from sqlalchemy import make_url

from allocator.database.store import Database

FIRST_ID = """
import sys
from allocator import Allocator
with Allocator(sys.argv[1]) as ids:
    ids.next_id("order")
print(*sorted(name for name in sys.modules if name.startswith(("sqlalchemy.dialects.", "allocator."))))
"""


def test_the_first_id_imports_no_postgresql_elsewhere_and_no_client(fresh):
    with closing(Database(fresh)) as database:
        database.upgrade_schema()
    words = [sys.executable, "-c", FIRST_ID, fresh]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    backend = make_url(fresh).get_backend_name()

    assert ("sqlalchemy.dialects.postgresql" in names) is (backend == "postgresql")
    assert "allocator.database.store" in names
    assert not {"allocator.remote.client", "allocator.rules.findings", "allocator.rules.takeover_ranges"} & set(names)

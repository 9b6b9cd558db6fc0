"""Contract and migrations on another PostgreSQL: `python -m tools.postgres 14`, a part of `make nightly`."""

from __future__ import annotations

import os
import subprocess
import sys

from support.servers import fetched
from support.servers.throwaway import POSTGRES_BIN

TESTS = ("--numprocesses", "4", "--dist", "loadfile", "tests/contract", "tests/migrations")
CASES = "postgres or test_managed_databases and not TiDB and not OceanBase"
"""Those on PostgreSQL, and on databases that only look like it."""
UNSEEN = {"14": "nothing_is_scanned"}
"""Of this version no session can say when the rows that it read are counted."""


def main(version: str) -> int:
    own = {POSTGRES_BIN: str(fetched.postgres(version)), "ALLOCATOR_TEST_REQUIRE": "postgres"}
    cases = f"({CASES}) and not {UNSEEN[version]}" if version in UNSEEN else CASES
    words = [sys.executable, "-m", "tools.second_look", *TESTS, "-k", cases]
    environment = {name: value for name, value in os.environ.items() if name != "ALLOCATOR_TEST_POSTGRES_URL"}
    return subprocess.run(words, env=environment | own, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

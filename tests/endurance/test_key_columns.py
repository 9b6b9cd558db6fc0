"""`allocator doctor --columns` on a schema of 200 tables with rows: how long it takes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner
from support.servers import key_traps

from allocator.cli import main

TABLES, ROWS = 200, 10_000
SECONDS = 5.0


@pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"])
def test_two_hundred_tables(kind: str, empty: str, report: Callable[[str], None]):
    key_traps.make(empty, TABLES)
    key_traps.fill(empty, TABLES, ROWS)
    began = time.monotonic()
    result = CliRunner().invoke(main, ["doctor", "--columns", "--json", "--url", empty])
    seconds = time.monotonic() - began
    (found,) = json.loads(result.stdout)["databases"].values()
    wrong = {one["column"]: (one["limit"], one["greatest"]) for one in found if one["needs_attention"]}
    report(f"{kind}: {len(found)} keys of {TABLES} tables, {len(wrong)} of them near their end, in {seconds:.2f} s")

    assert wrong == key_traps.expected(empty)
    assert seconds < SECONDS

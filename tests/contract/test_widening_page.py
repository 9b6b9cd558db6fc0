"""`docs/widening.md` while others write: a key of INT and the column that references it become BIGINT."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import DBAPIError
from support.documents.reader import Reading
from support.documents.widening import URLS, carry_out, steps, widen
from support.processes.takeover_writers import writing

ROWS = 5_000
EACH = 2
"""Rows of each writer in each step."""
TITLES = {
    "postgres": ["Columns and triggers", "The rows before", "Indexes", "The foreign key", "The swap"],
    "mysql": ["The twins", "Triggers", "Compare", "The swap"],
}


@pytest.mark.parametrize(
    ("kind", "identity"),
    [("postgres", False), ("postgres", True), ("mysql", False), ("mariadb", False)],
    ids=["serial", "identity", "mysql", "mariadb"],
)
def test_the_steps_of_the_page_while_others_write(kind, identity, tmp_path):
    done = [step.title for step in widen(kind, tmp_path, ROWS, EACH, identity)]

    assert [one for one in dict.fromkeys(done) if one] == TITLES["postgres" if kind == "postgres" else "mysql"]


@pytest.mark.parametrize("kind", ["postgres"])
def test_control_a_statement_that_was_prepared_and_returns_the_key_fails(kind, tmp_path):
    """As the page says; the test above tells the driver to prepare none."""
    reading = Reading(tmp_path)
    first, *rest = steps(kind)
    try:
        reading.read(first)
        with writing(reading.stage.real(URLS[kind])) as writers:
            writers.add(2)
            writers.wait_for(10)
            with pytest.raises(DBAPIError, match="cached plan must not change result type"):
                for block in rest:
                    carry_out(reading, block, writers, EACH)
    finally:
        reading.close()

"""`docs/widening.md` while others write: a key of INT and the column that references it become BIGINT."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from support.documents.reader import Reading
from support.documents.widening import URLS, steps, widen
from support.processes.takeover_writers import insert_raw

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
def test_a_prepared_statement_that_returns_the_key_fails_once(kind, tmp_path):
    """As the page says; the test above tells the driver to prepare none."""
    reading = Reading(tmp_path)
    first, *rest = steps(kind)
    try:
        reading.read(first)
        engine = create_engine(reading.stage.real(URLS[kind]))
        with engine.connect() as connection:
            for _ in range(10):
                insert_raw(connection)
                connection.commit()
            for block in rest:
                reading.read(block)
            with pytest.raises(DBAPIError, match="cached plan must not change result type"):
                insert_raw(connection)
            connection.rollback()
            assert insert_raw(connection) > 10
        engine.dispose()
    finally:
        reading.close()

"""`docs/widening.md` while others write: a key of INT and the column that references it become BIGINT."""

from __future__ import annotations

import pytest
from support.documents.widening import widen

ROWS = 5_000
EACH = 2
"""Rows of each writer in each step."""
TITLES = {
    "postgres": ["Columns and triggers", "The rows before", "Indexes", "The foreign key", "The swap"],
    "mysql": ["The twins", "Triggers", "Compare", "The swap"],
}


@pytest.mark.parametrize(
    ("kind", "identity"),
    [
        pytest.param("postgres", False, id="serial"),
        pytest.param("postgres", True, id="identity", marks=pytest.mark.nightly),
        pytest.param("mysql", False, id="mysql"),
    ],
)
def test_the_steps_of_the_page_while_others_write(kind, identity, tmp_path):
    done = [step.title for step in widen(kind, tmp_path, ROWS, EACH, identity)]

    assert [one for one in dict.fromkeys(done) if one] == TITLES["postgres" if kind == "postgres" else "mysql"]

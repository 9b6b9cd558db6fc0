"""A file of SQLite has one name, at each connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from allocator import Allocator
from allocator.errors import DatabaseRefused


def test_a_link_that_is_made_while_ids_are_drawn_is_refused(tmp_path: Path) -> None:
    with Allocator(f"sqlite:///{tmp_path}/ids.db") as ids:
        assert list(ids.reserve("order", 1)) == [1]
        (tmp_path / "other.db").hardlink_to(tmp_path / "ids.db")

        with pytest.raises(DatabaseRefused, match="2 hard links"):
            ids.reserve("order", 1)

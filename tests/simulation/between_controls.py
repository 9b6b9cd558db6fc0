"""Each fence between two statements taken away, one at a time: a world must show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from sqlalchemy import TextClause, select, text

from allocator.database import store
from allocator.database.dialect import filled
from allocator.database.tables import shard
from allocator.database.verbs import node_rows, segments, shard_row, tickets, worker_number_rows
from allocator.schemes.ticket import REPLACE
from simulation.controls import Control


def nothing(*_: Any) -> TextClause:
    return text("allocator_shard.id = 1")


def the_row_alone(connection: Any, dialect: Any, known: Any) -> TextClause:
    words = shard_row.FENCE.replace("{run} = :here", "1 = 1")
    return filled(words, "", dialect.words).bindparams(**shard_row.known_as(known))


def fenced_by(fence: Callable[..., TextClause]) -> SimpleNamespace:
    """Stands for `shard_row` in one module."""

    def inserted(*known: Any, **end: str) -> Any:
        with patch.object(shard_row, "fence", fence):
            return insert_under(*known, **end)

    def fence_exists(*known: Any) -> Any:
        return select(shard.c.id).where(fence(*known)).exists()

    insert_under = shard_row.insert_under
    return SimpleNamespace(**{**vars(shard_row), "insert_under": inserted, "fence_exists": fence_exists})


MAKE = segments.make


def made_there(connection: Any, dialect: Any, tag: Any, known: Any) -> bool:
    """Begins where the row said that was read, with the key of the row that is there."""
    there = shard_row.fetch(connection, dialect)
    assert there is not None
    with patch.object(shard_row, "fence", nothing):
        return MAKE(connection, dialect, tag, replace(known, move=there.move))


CONTROLS: dict[str, Control] = {
    "a start that was chosen before a move": Control(
        "came twice", patches={(store, "check_unmoved"): lambda *_: None}, seed=3054
    ),
    "a new tag with the key of the server that it reaches": Control(
        "came twice", patches={(segments, "make"): made_there}, seed=589
    ),
    "a claim on another server": Control(
        "came twice", patches={(segments, "CLAIM"): segments.CLAIM.replace("{run} = :run", "1 = 1")}, seed=5
    ),
    "a claim whatever the shard's row says": Control(
        "came twice", patches={(segments, "CLAIM"): segments.CLAIM.replace("move = :shard_move AND", "")}, seed=119
    ),
    "a ticket on another server": Control(
        "ticket . came twice", patches={(tickets, "DRAW"): tickets.DRAW.replace("{run} = :run", "1 = 1")}, seed=9
    ),
    "a ticket by REPLACE where others claim it": Control(
        "ticket . came twice",
        patches={(tickets, "DRAW"): tickets.DRAW.replace(f"tickets = '{REPLACE}'", "tickets <> ''")},
        seed=1442,
    ),
    "a node without a fence": Control(
        "of node came twice", patches={(node_rows, "shard_row"): fenced_by(the_row_alone)}, seed=13
    ),
    "a worker number without a fence": Control(
        "(number|worker) . is of two",
        patches={(worker_number_rows, "shard_row"): fenced_by(nothing)},
        seed=42,
    ),
}

"""Each fence between two statements taken away, one at a time: a world must show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from sqlalchemy import TextClause, text

from allocator.database import store
from allocator.database.dialect import filled
from allocator.database.verbs import moves, node_rows, segments, shard_row, tickets, worker_number_rows
from allocator.schemes.ticket import REPLACE
from simulation.between import InMemory
from simulation.controls import Control


def unfenced(statement: str) -> str:
    return statement.replace(moves.FENCE, "allocator_shard.id = 1")


def nothing(*_: Any) -> TextClause:
    return text(unfenced(moves.FENCE))


def the_row_alone(connection: Any, dialect: Any, known: Any) -> TextClause:
    words = moves.FENCE.replace("{run} = :known_run", "1 = 1")
    return filled(words, lasting=dialect.lasting).bindparams(**moves.known_as(known))


def fencing(**verbs: Callable[..., Any]) -> SimpleNamespace:
    """Stands for `moves` in one module."""
    return SimpleNamespace(**{**vars(moves), **verbs})


MAKE = segments.make


def made_there(connection: Any, dialect: Any, tag: Any, known: Any) -> bool:
    """Begins where the row said that was read, with the key of the row that is there."""
    there = shard_row.fetch(connection, dialect)
    assert there is not None
    words = {name: unfenced(getattr(segments, name)) for name in ("WRITE", "MAKE")}
    with patch.multiple(segments, **words):
        return MAKE(connection, dialect, tag, replace(known, move=there.move))


CONTROLS: dict[str, Control] = {
    "a start that was chosen before a move": Control(
        "came twice", patches={(store, "check_unmoved"): lambda *_: None}, seed=3054
    ),
    "a new tag with the key of the server that it reaches": Control(
        "came twice", patches={(segments, "make"): made_there}, seed=589
    ),
    "a claim on another server": Control(
        "came twice", patches={(InMemory, "claiming"): InMemory.claiming.replace("{run} = :run", "1 = 1")}, seed=5
    ),
    "a claim whatever the shard's row says": Control(
        "came twice",
        patches={(InMemory, "claiming"): InMemory.claiming.replace("move = :shard_move AND", "")},
        seed=119,
    ),
    "a ticket on another server": Control(
        "ticket . came twice", patches={(tickets, "DRAW"): tickets.DRAW.replace("{run} = :run", "1 = 1")}, seed=9
    ),
    "a ticket by REPLACE where others claim it": Control(
        "ticket . came twice",
        patches={(tickets, "DRAW"): tickets.DRAW.replace(f"tickets = '{REPLACE}'", "tickets <> ''")},
        seed=1442,
    ),
    "a node without a fence": Control("of node came twice", patches={(node_rows, "as_read"): the_row_alone}, seed=13),
    "a worker number without a fence": Control(
        "(number|worker) . is of two",
        patches={
            (worker_number_rows, "moves"): fencing(as_read=nothing),
            (worker_number_rows, "NEW"): unfenced(worker_number_rows.NEW),
        },
        seed=42,
    ),
}

"""Each fence between two statements taken away, one at a time: a world must show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from allocator.database.verbs import moves, node_rows, segments, shard_row, tickets, worker_number_rows
from allocator.schemes.ticket import REPLACE
from simulation.between import InMemory
from simulation.controls import Control


def nothing(*_: Any) -> list[Any]:
    return moves.known_as(_[-1].move)[:1]


def the_row_alone(connection: Any, dialect: Any, known: Any) -> list[Any]:
    return moves.known_as(known.move)


def fencing(**verbs: Callable[..., Any]) -> SimpleNamespace:
    """Stands for `moves` in one module."""
    return SimpleNamespace(**{**vars(moves), **verbs})


MAKE = segments.make


def made_there(connection: Any, dialect: Any, tag: Any, known: Any) -> bool:
    """Begins where the row said that was read, with the key of the row that is there."""
    there = shard_row.fetch(connection, dialect)
    assert there is not None
    with patch.object(segments, "as_read", nothing):
        return MAKE(connection, dialect, tag, replace(known, move=there.move))


CONTROLS: dict[str, Control] = {
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
        "(number|worker) . is of two", patches={(worker_number_rows, "moves"): fencing(as_read=nothing)}, seed=42
    ),
}

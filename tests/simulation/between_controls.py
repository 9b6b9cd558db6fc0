"""Each fence between two statements taken away, one at a time: a world must show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from allocator.database.registry import Registry
from allocator.database.schema.tables import failover
from allocator.database.verbs import (
    failover_row,
    node_and_snowflake_rows,
    segments,
    tickets,
    worker_number_rows,
)
from allocator.integrations.alembic_operations import MigrationDatabase
from allocator.rules.failover import beginning
from allocator.schemes.ticket import REPLACE
from simulation.between import InMemory

fenced = tickets.fenced
ROW = failover.c.id == 1


def fencing(**verbs: Callable[..., Any]) -> SimpleNamespace:
    """Stands for `failover_row` in one module."""
    return SimpleNamespace(**{**vars(failover_row), **verbs})


def nothing(*_: Any) -> list[Any]:
    return [ROW]


def the_row_alone(connection: Any, dialect: Any, state: Any) -> list[Any]:
    return [ROW, *(failover.c[name] == value for name, value in state._asdict().items())]


class Anywhere(InMemory):
    def is_here(self, connection: Any, written: str = "") -> str:
        return "1 = 1"


ANYWHERE = Anywhere()


def unlooked(database: Any, tag: Any, *, has_start: bool) -> bool:
    """Begins where the row says, whatever server this is."""
    state = database.run(failover_row.fetch)
    begun = beginning(tag, state.first_value, is_alone=True)
    return bool(database.run(lambda connection, _: segments.create(connection, ANYWHERE, begun, state)))


def on_any_server(statement: str, server: str, here: str, lasting: str, lock: str) -> Any:
    return fenced(statement, server, "1 = 1", lasting, lock)


def registered_at_once(database: Any) -> int:
    database.failover()
    now = datetime.now(UTC).replace(tzinfo=None)
    return int(database.run(node_and_snowflake_rows.register, "host", 1, "", now))


class Control(NamedTuple):
    """shows: of what the violation speaks. patches: of the real code, by place and name.
    seed: of a world in which it shows.
    """

    shows: str
    patches: dict[tuple[Any, str], Any]
    seed: int = 0


CONTROLS: dict[str, Control] = {
    "a new tag without a fence": Control(
        "of [abcd] came twice", {(segments, "failover_row"): fencing(unmoved=nothing)}, seed=145
    ),
    "a new tag by the row, whichever server has it": Control(
        "of [abcd] came twice", {(segments, "failover_row"): fencing(unmoved=the_row_alone)}, seed=145
    ),
    "a migration that looks at the row alone": Control(
        "of [abcd] came twice", {(MigrationDatabase, "create_tag"): unlooked}, seed=145
    ),
    "a claim on another server": Control(
        "of [abcd] came twice", {(InMemory, "may_claim"): lambda *_: "1 = 1"}, seed=21
    ),
    "a ticket on another server": Control("ticket . came twice", {(tickets, "fenced"): on_any_server}, seed=9),
    "a ticket by REPLACE where others claim it": Control(
        "ticket . came twice",
        {(tickets, "DRAW"): tickets.DRAW.replace(f"tickets = '{REPLACE}'", "tickets <> ''")},
        seed=68,
    ),
    "a ticket claimed on another server": Control(
        "ticket . came twice", {(InMemory, "may_claim"): lambda *_: "1 = 1"}, seed=5
    ),
    "a new type of ticket without a fence": Control(
        "ticket . came twice", {(segments, "failover_row"): fencing(unmoved=nothing)}, seed=294
    ),
    "a node that is not looked at again": Control(
        "of node came twice", {(Registry, "register_node"): registered_at_once}, seed=13
    ),
    "a worker number without a fence": Control(
        "(number|worker) . is of two", {(worker_number_rows, "failover_row"): fencing(unmoved=nothing)}, seed=24
    ),
}


@contextmanager
def broken(control: Control) -> Iterator[None]:
    """For as long as this fence is away."""
    with ExitStack() as stack:
        for (place, name), value in control.patches.items():
            stack.enter_context(patch.object(place, name, value))
        yield

"""How much a process asks of its database before its first id, counted on the wire."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.faults.message_counter import counted
from support.servers.administrator import execute

from allocator import Allocator, SchemaDamaged

ACTS: dict[str, tuple[int, Callable[[Allocator], object]]] = {
    "a tag that is there": (3, lambda ids: ids.next_id("there")),
    "a tag that is made": (5, lambda ids: ids.next_id("made")),
    "a ticket": (4, lambda ids: ids.ticket("there")),
    "a snowflake": (4, lambda ids: ids.snowflake()),
    "a meteor": (4, lambda ids: ids.meteor()),
}
NAMES = "query SET NAMES"
"""What PyMySQL says of itself at each connect, and nothing in its API prevents."""


@pytest.mark.parametrize("act", ACTS)
def test_a_process_asks_little_before_its_first_id(fresh, act):
    most, draw = ACTS[act]
    with Allocator(fresh) as before:
        before.next_id("there")

    with counted(fresh) as (url, asked), Allocator(url) as ids:
        draw(ids)

    ours = [words for words in asked.messages if not words.startswith(NAMES)]
    assert 2 <= len(ours) <= most, asked.messages
    assert len(asked.messages) - len(ours) <= 1


# -- what nobody looks at any more, and would give an id twice


INSERT = "INSERT INTO allocator_segment (tag, max_value, step, max_step, id_limit, epoch) VALUES"
WORKER = "'1/41/5/5/12', 1288834974657, '{0}', 1, '', 0"


def copied(url: str, table: str, *changes: str) -> None:
    """A table without its keys, as a tool that copies rows makes it."""
    execute(url, f"CREATE TABLE bare AS SELECT * FROM {table}", f"DROP TABLE {table}", *changes)
    execute(url, f"ALTER TABLE bare RENAME TO {table}")


@pytest.mark.parametrize("other", ["another run", "near its limit"])
def test_a_tag_with_a_second_row_is_refused_also_where_one_alone_could_be_claimed_from(fresh, other):
    with Allocator(fresh) as before:
        before.next_id("order")
    second = {"another run": "500, 1, 1, 9000, 'elsewhere'", "near its limit": "9000, 1, 1, 9000, ''"}[other]
    copied(fresh, "allocator_segment", f"{INSERT.replace('allocator_segment', 'bare')} ('order', {second})")

    with Allocator(fresh) as ids, pytest.raises(SchemaDamaged):
        ids.next_id("order")


def test_two_leases_of_one_worker_are_refused(fresh):
    rows = ", ".join(f"(7, {WORKER.format(holder)})" for holder in "ab")
    copied(fresh, "allocator_worker", f"INSERT INTO bare VALUES {rows}")

    with Allocator(fresh) as ids, pytest.raises(SchemaDamaged):
        ids.snowflake()


@pytest.mark.parametrize("kind", ["sqlite", "mysql", "mariadb"], indirect=True)
def test_a_counter_of_tickets_without_its_key_is_refused(fresh, kind):
    """Without it SQLite and MySQL draw the first ticket again; on PostgreSQL the statement itself fails."""
    copied(fresh, "allocator_ticket" if kind == "sqlite" else "allocator_ticket_counter")

    with Allocator(fresh, tickets="count") as ids, pytest.raises(SchemaDamaged, match="primary key|NOT NULL"):
        ids.ticket("invoice")


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_a_table_without_transactions_is_refused(fresh):
    execute(fresh, "ALTER TABLE allocator_segment ENGINE = MyISAM")

    with Allocator(fresh) as ids, pytest.raises(SchemaDamaged, match="is kept by MyISAM, and must be by InnoDB"):
        ids.next_id("order")

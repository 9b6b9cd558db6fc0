"""The statements of worker numbers do on every database what the lease rule says, and on the right server only."""

from dataclasses import asdict, replace
from itertools import product

import pytest
from simulation import rows as model
from sqlalchemy import Connection, delete, insert, update
from support.kit import SQLITE, now_ms
from support.rules import rule
from support.servers.administrator import execute

from allocator.database.dialect import Dialect
from allocator.database.store import Database
from allocator.database.tables import lease as table
from allocator.database.verbs import worker_number_rows
from allocator.errors import DatabaseUnavailable, InvalidSetting, LeaseLost, NodeIdsExhausted
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease, NumberRow

L = 60_000
LEASE = NumberLease("pods", 0, "a", L)


def claim(holder: str, wall_ms: int | None = None, length_ms: int = L) -> NumberClaim:
    return NumberClaim("pods", 2, length_ms, now_ms() if wall_ms is None else wall_ms, holder, "here", 7)


def write(connection: Connection, dialect: Dialect, row: NumberRow) -> None:
    connection.execute(delete(table))
    connection.execute(insert(table).values(space="pods", **asdict(row)))


def change(connection: Connection, dialect: Dialect, **changes: object) -> None:
    connection.execute(update(table).values(changes))


def rows(database: Database) -> list[NumberRow]:
    return database.run(worker_number_rows.fetch, "pods")[1]


def clock(database: Database) -> int:
    return database.run(worker_number_rows.fetch, "pods")[0]


def row(at: int, **changes: object) -> NumberRow:
    return replace(NumberRow(0, 2, L, "a", 3, at + L, at + L, "there", 5), **changes)  # type: ignore[arg-type]


def is_like(found: NumberRow, expected: NumberRow, before: int, after: int) -> bool:
    """Whether a row is as the rule says, whose `until_ms` is by the clock of its statement."""
    return found == replace(expected, until_ms=found.until_ms) and before <= found.until_ms - L <= after


# -- take


@rule(10)
def test_a_number_is_taken_as_the_rule_says(database):
    for used in (-L, 9 * L):
        before = clock(database)
        old, new = row(before, used_until_ms=before + used, until_ms=before - 9 * L), claim("b", before)
        database.run(write, old)

        assert database.run(worker_number_rows.take, old, new, database.settled_snapshot().shard)
        assert is_like(rows(database)[0], model.leased(old, new, before), before, clock(database)), used


def test_a_number_is_added_as_the_rule_says(database):
    before = clock(database)
    new = claim("b", before)

    assert database.run(worker_number_rows.take, 3, new, database.settled_snapshot().shard)
    assert is_like(rows(database)[0], model.leased(3, new, before), before, clock(database))
    assert not database.run(worker_number_rows.take, 3, claim("c"), database.settled_snapshot().shard)
    assert [one.holder for one in rows(database)] == ["b"]


@rule(10)
def test_a_row_that_changed_since_it_was_read_is_not_taken(database):
    for column in ("holder", "renewals", "until_ms", "used_until_ms"):
        old = row(clock(database))
        database.run(write, old)
        database.run(change, **{column: "x" if column == "holder" else 77})

        assert not database.run(worker_number_rows.take, old, claim("b"), database.settled_snapshot().shard), column
        assert rows(database)[0].holder in ("a", "x")


@rule(8, 10)
def test_nothing_is_taken_by_what_was_read_of_another_server(database):
    """The state that was read is fenced, in the statement that takes."""
    old = row(clock(database), holder="", used_until_ms=0)
    for taken in (old, 1):
        database.run(write, old)
        state = database.settled_snapshot().shard
        database.mark_restored()

        assert not database.run(worker_number_rows.take, taken, claim("b"), state), taken
        database.settled_snapshot()
        assert not database.run(worker_number_rows.take, taken, claim("b"), state), taken
        assert [one.holder for one in rows(database)] == [""]
        assert database.run(worker_number_rows.take, taken, claim("b"), database.settled_snapshot().shard)


# -- renew and release


def states(at: int) -> dict[str, NumberRow]:
    return {
        "held": row(at),
        "used later": row(at, used_until_ms=at + 9 * L),
        "taken": row(at, holder="b"),
        "given back": row(at, holder=""),
        "ended": row(at, until_ms=at - 1),
        "another length": row(at, length_ms=L - 1),
    }


@rule(10)
def test_a_lease_is_renewed_as_the_rule_says(database):
    for state, wall in product(states(0), (-9 * L, 0, L // 2 - 5000, L // 2 + 25_000)):
        before = clock(database)
        old = states(before)[state]
        database.run(write, old)
        expected = model.renewed(old, LEASE, before + wall, before)

        renewed = database.run(worker_number_rows.renew, LEASE, before + wall)
        assert renewed == (expected is not None), (state, wall)
        if expected is None:
            assert rows(database) == [old], (state, wall)
        else:
            assert is_like(rows(database)[0], expected, before, clock(database)), (state, wall)


@rule(10)
def test_a_number_is_given_back_as_the_rule_says(database):
    """Also later than its row knows, as on a server that lacks a renewal; but not for ever."""
    for state, used in product(states(0), (-5, 2 * L, 9 * L)):
        before = clock(database)
        old = states(before)[state]
        database.run(write, old)
        expected = model.released(old, LEASE, before + used, before)

        given_back = database.run(worker_number_rows.release, LEASE, before + used)
        assert given_back == (expected is not None), (state, used)
        (found,) = rows(database)
        if expected is None:
            assert found == old, (state, used)
        else:
            late = found.used_until_ms - expected.used_until_ms
            assert found == replace(expected, used_until_ms=found.used_until_ms), (state, used)
            assert 0 <= late <= (clock(database) - before if used == 9 * L else 0), (state, used)


@SQLITE
def test_what_is_lost_is_said(database):
    for verb in (database.renew_number, database.release_number):
        with pytest.raises(LeaseLost, match="number 0 of space 'pods' is no longer this process's"):
            verb(LEASE, now_ms())


# -- together


def test_the_number_of_a_killed_process_is_taken_when_its_lease_is_over(database):
    """Its rows as they are a while later; nobody waits."""
    for holder in "abcd":
        database.lease_number(claim(holder))
    with pytest.raises(NodeIdsExhausted, match=r"all 4 numbers of space 'pods' are held, by here \(process 7\)"):
        database.lease_number(claim("e"))

    database.run(change, until_ms=clock(database) - L - 1, used_until_ms=now_ms() - L - 2000)
    assert database.lease_number(claim("e")).number == 0
    with pytest.raises(LeaseLost):
        database.renew_number(LEASE, now_ms())


@rule(8)
def test_after_a_failover_leases_are_renewed_and_no_number_is_given_for_a_while(database, fresh):
    held = database.lease_number(claim("a"))
    database.mark_restored()

    with pytest.raises(DatabaseUnavailable, match=r"the database moved to another server.* again in 1[89]\d s"):
        database.lease_number(claim("b"))
    database.renew_number(held, now_ms())
    database.release_number(held, now_ms() + L)
    with pytest.raises(DatabaseUnavailable):
        database.lease_number(claim("b"))
    execute(fresh, f"UPDATE allocator_shard SET moved_at = moved_at - {4 * L}")
    assert database.lease_number(claim("b")).number == 1  # the holder of 0 said that it used it up to then


@rule(10)
@SQLITE
def test_a_clock_far_ahead_gets_no_number(database):
    with pytest.raises(InvalidSetting, match=r"the clock of this machine is (3\d|40)\.\d s ahead of the database's"):
        database.lease_number(claim("a", clock(database) + 40_000))

    assert database.worker_spaces() == []  # each start with such a clock would take one of 1024 workers for years
    assert database.lease_number(claim("a", clock(database) - 10**9)).number == 0

"""The claim that the simulator runs (`simulation.statement`) and the statement of each database do the same.

Without this, the simulator proves a model of the package, and nothing ties the model to the SQL.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.statement import Row, Rules, claimed
from sqlalchemy import Connection, delete, insert, select

from allocator.database.dialect import Dialect
from allocator.database.store import Database
from allocator.database.tables import segment
from allocator.database.verbs import segments
from allocator.database.verbs.segments import Fence
from allocator.schemes.shared.residues import ALL, NONE, Residue
from allocator.schemes.slots import Shard

GUARDS = st.sampled_from(["", "limit", "seen", "residue", "was", "now", "run"])
"""One says no, or none does: so each is tried where the others let the claim through."""
RESIDUES = st.sampled_from([ALL, Residue(1, 3), Residue(2, 3)])
SLACK = st.integers(0, 3)


@pytest.fixture(scope="module")
def database(shared_database, request) -> Iterator[Database]:
    with closing(Database(shared_database(request.param))) as found:
        yield found
        found.run(lambda connection, dialect: connection.execute(delete(segment).where(segment.c.tag == "model")))


@pytest.mark.parametrize("database", ["sqlite", "postgres", "mysql", "mariadb"], indirect=True)
@given(GUARDS, st.integers(0, 100), st.integers(1, 30), RESIDUES, st.none() | st.integers(0, 50), SLACK, SLACK)
def test_a_claim_does_what_the_simulator_says(database: Database, no, at, size, residue, skip, left, ahead):
    shard, span, jump = database.current().shard.move, size * residue.step, skip or 0
    seen = at + jump + 1 + ahead if no == "seen" else max(0, at + jump - ahead)
    limit = max(at, at + jump + span + (-1 - left if no == "limit" else left))
    was = shard.key if skip is None else 7
    row = Row(at, 1, 1, limit, NONE if no == "residue" else residue, skipped=3, move=8 if no == "was" else was)
    now, run = 9 if no == "now" else shard.key, "another" if no == "run" else shard.run
    fence = Fence(residue, was, now, run, jump)

    def write(connection: Connection, dialect: Dialect) -> None:
        connection.execute(delete(segment).where(segment.c.tag == "model"))
        more = {"skipped": row.skipped, "move": row.move, "claimed_at": 1}
        more |= {"shard_offset": row.residue.offset, "shard_step": row.residue.step}
        connection.execute(insert(segment).values(segments.row_of(row.tag("model"), Shard()) | more))

    def read(connection: Connection, dialect: Dialect) -> tuple[int, int, int]:
        columns = segment.c.max_value, segment.c.skipped, segment.c.move
        return tuple(connection.execute(select(*columns).where(segment.c.tag == "model")).one())

    database.run(write)
    model = claimed(row, shard, shard.run, span, fence, seen, Rules())
    end = database.run(segments.claim, "model", size, fence, seen)
    expected = model or row

    assert end == (model and model.max_value)
    assert database.run(read) == (expected.max_value, expected.skipped, expected.move)

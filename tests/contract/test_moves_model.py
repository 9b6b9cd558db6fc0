"""What the simulator runs and the statements of each database do the same: the rows of `simulation.rows`.

Without these its worlds prove a model, and nothing ties the model to the SQL.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import rows as model
from simulation.rows import CLAIM, NODES, REPLACE, SHARD, TICKETS, Row
from sqlalchemy import Connection, delete, insert, select, update
from support.kit import on
from support.rules import rule

from allocator.database.dialect import Dialect
from allocator.database.store import Database
from allocator.database.tables import segment, shard
from allocator.database.verbs import fleet_rows, node_rows, segments, shard_row, tickets
from allocator.database.verbs.fleet_rows import Given
from allocator.database.verbs.segments import Fence
from allocator.errors import ShardMisconfigured
from allocator.schemes.failover import Move, Skipped, crossing
from allocator.schemes.shared.residues import ALL, NONE, Residue
from allocator.schemes.slots import Shard
from allocator.schemes.tag import Tag

NAME, FIRST = "model", 5
"""A tag, and the first value of new ones."""
FLEET, SLOTS = "7f3a91c2", 3
FENCE = ("", "", "own run", "run", "move")
"""What is not as it was read, if anything: each word is tried where the others hold."""
RUNS: dict[Database, str] = {}
"""The server run of each."""
ON_ALL = pytest.mark.parametrize("database", ["sqlite", "postgres", "mysql", "mariadb"], indirect=True)
BY_REPLACE = pytest.mark.parametrize("database", ["mysql", "mariadb"], indirect=True)


@pytest.fixture(scope="module")
def database(shared_database, request) -> Iterator[Database]:
    with closing(Database(shared_database(request.param))) as found:
        move = found.settled_snapshot().shard.move
        RUNS[found] = move.run
        yield found
        write(found, move, slot=ALONE)
        found.run(lambda connection, _: connection.execute(delete(segment).where(segment.c.tag == NAME)))


def write(database: Database, move: Move, tag: model.Tag | None = None, slot: Shard | None = None) -> None:
    """The shard's row, and that of the tag."""

    def both(connection: Connection, _: Dialect) -> None:
        connection.execute(update(shard).values(shard_row.columns_of(move) | slot_of(slot or ALONE)))
        connection.execute(delete(segment).where(segment.c.tag == NAME))
        if tag:
            row = segments.row_of(Tag(NAME, tag.value), Shard(residue=tag.residue)) | {"move": tag.move}
            connection.execute(insert(segment).values(row))

    database.run(both)


ALONE = Shard()
SLOT_1 = Shard(FLEET, Residue(1, SLOTS), (1,))


def slot_of(row: Shard) -> dict[str, object]:
    numbering: dict[str, object] = {"slot": row.residue.offset, "slots": row.residue.step}
    numbering |= {"taken_under": row.taken_under, "taken_for": row.taken_for}
    return {"fleet": row.fleet, "taken": shard_row.text_of(row.taken), **numbering}


def read(database: Database) -> model.Rows:
    """The rows, as the model has them."""
    made = database.run(lambda connection, _: connection.scalar(select(shard.c.made)))
    rows = {SHARD: as_model(database.run(shard_row.fetch))._replace(made=made), **model.EMPTY}
    if tag := database.run(segments.fetch, NAME):
        rows[NAME] = model.Tag(tag.max_value, tag.move, tag.residue)
    return rows


def as_model(row: Shard) -> model.Shard:
    place = {"fleet": row.fleet, "residue": row.residue, "taken": frozenset(row.taken), "marked": row.taken_under}
    return model.Shard(row.move.run, row.move.key, row.move.first_value, tickets=row.tickets, **place)


class Scene:
    """The row that is there, and the one that a process read before; `no` is the word that does not hold."""

    def __init__(self, database: Database, no: str, tag: model.Tag | None = None, slot: Shard = ALONE) -> None:
        self.database, self.here = database, RUNS[database]
        move = Move("another" if no == "own run" else self.here, 7, FIRST)
        write(database, move, tag, slot)
        self.rows = read(database)
        row = database.run(shard_row.fetch)
        known = {"run": {"run": "another"}, "move": {"key": 8}, "first value": {"first_value": FIRST + 1}}
        self.known = replace(row, move=move._replace(**known.get(no, {})))
        if no == "residue":
            self.known = replace(self.known, residue=Residue(1, 2))
        if no == "taken":
            self.known = replace(self.known, taken=(1, 2))

    @property
    def known_model(self) -> model.Shard:
        return as_model(self.known)

    def check(self, written: model.Rows | None) -> None:
        """Whether the rows are as the model says."""
        expected = {**self.rows, **(written or {})}
        found = read(self.database)
        assert found[SHARD]._replace(made=0) == expected[SHARD]._replace(made=0)
        assert found.get(NAME) == expected.get(NAME)


# -- a claim

GUARDS = ("", "limit", "seen", "residue", "was", "now", "run")
"""One says no, or none does: so each is tried where the others let the claim through."""
RESIDUES = st.sampled_from([ALL, Residue(1, 3), Residue(2, 3)])
SLACK = st.integers(0, 3)


@rule(6, 7, 8)
@ON_ALL
@pytest.mark.parametrize("no", GUARDS)
@settings(max_examples=20)
@given(
    at=st.integers(0, 100),
    size=st.integers(1, 30),
    residue=RESIDUES,
    skip=st.none() | st.integers(0, 50),
    left=SLACK,
    ahead=SLACK,
)
def test_a_claim_does_what_the_simulator_says(database: Database, no, at, size, residue, skip, left, ahead):
    known, span, jump = database.settled_snapshot().shard.move, size * residue.step, skip or 0
    seen = at + jump + 1 + ahead if no == "seen" else max(0, at + jump - ahead)
    limit = max(at, at + jump + span + (-1 - left if no == "limit" else left))
    was = known.key if skip is None else 7
    row = Row(at, 1, 1, limit, NONE if no == "residue" else residue, skipped=3, move=8 if no == "was" else was)
    now, run = 9 if no == "now" else known.key, "another" if no == "run" else known.run
    fence = Fence(residue, was, now, run, jump)

    def put(connection: Connection, dialect: Dialect) -> None:
        connection.execute(delete(segment).where(segment.c.tag == NAME))
        more = {"skipped": row.skipped, "move": row.move, "claimed_at": 1}
        more |= {"shard_offset": row.residue.offset, "shard_step": row.residue.step}
        connection.execute(insert(segment).values(segments.row_of(row.tag(NAME), Shard()) | more))

    def look(connection: Connection, dialect: Dialect) -> tuple[int, int, int]:
        columns = segment.c.max_value, segment.c.skipped, segment.c.move
        return tuple(connection.execute(select(*columns).where(segment.c.tag == NAME)).one())

    database.run(put)
    claim = model.after_claim(row, known, known.run, span, fence, seen)
    end = database.run(segments.claim, NAME, size, fence, seen)
    expected = claim or row

    assert end == (claim and claim.max_value)
    assert database.run(look) == (expected.max_value, expected.skipped, expected.move)


# -- what else is written


@rule(8)
@ON_ALL
@given(st.sampled_from((*FENCE, "first value", "residue")), st.booleans())
def test_a_new_tag(database: Database, no: str, is_there: bool):
    scene = Scene(database, no, model.Tag(3, 7) if is_there else None)
    written = model.new_tag(scene.rows, scene.here, NAME, scene.known_model)

    made = database.transact(segments.make, Tag(NAME, scene.known.move.first_value), scene.known)

    assert made == bool(written)
    scene.check(written)
    fits = model.new_tag({**scene.rows, NAME: None}, scene.here, NAME, scene.known_model)
    assert read(database)[SHARD].made - scene.rows[SHARD].made == bool(fits)  # whether the tag is there or not


def register(database: Database, known: Shard) -> int | None:
    at = datetime(2026, 11, 28, tzinfo=UTC).replace(tzinfo=None)
    number: int | None = database.run(node_rows.register, "host", 1, "", at, known)
    return number


@rule(8, 9)
@ON_ALL
@given(st.sampled_from((*FENCE, "residue")))
def test_a_node(database: Database, no: str):
    scene = Scene(database, "")
    before = register(database, scene.known)
    scene = Scene(database, no)
    written = model.node({**scene.rows, NODES: before}, scene.here, scene.known_model)

    number = written and model.node_number(written[NODES], scene.known.residue)
    assert register(database, scene.known) == number
    scene.check(None)


@rule(8)
@BY_REPLACE
@given(st.sampled_from((*FENCE, "residue", "tickets")))
def test_a_ticket_by_replace(database: Database, no: str):
    scene = Scene(database, "")
    before = database.run(tickets.draw, NAME, scene.known)
    scene = Scene(database, no)
    there = scene.rows[SHARD]._replace(tickets=CLAIM if no == "tickets" else REPLACE)
    rows = {**scene.rows, TICKETS: before, SHARD: there}
    written = model.ticket(rows, scene.here, scene.known_model)
    draw_by(database, there.tickets)
    found = database.run(tickets.draw, NAME, scene.known)
    draw_by(database, REPLACE)
    assert found == (written and written[TICKETS])


def draw_by(database: Database, how: str) -> None:
    database.run(lambda connection, _: connection.execute(update(shard).values(tickets=how)))


@rule(8)
@ON_ALL
@given(st.sampled_from(FENCE), st.integers(0, 9), st.booleans())
def test_a_repair(database: Database, no: str, skip: int, is_as_read: bool):
    scene = Scene(database, no, model.Tag(3, 6 if is_as_read else 5))
    written = model.claimed(scene.rows, scene.here, NAME, scene.known_model, 6, skip, size=0)

    repaired = database.run(segments.repair, Tag(NAME, 3, move=6), 3 + skip, scene.known)

    assert repaired == bool(written)
    scene.check(written)


@rule(8)
@ON_ALL
@given(st.sampled_from(["", "run", "move", "first value"]), st.integers(0, 9), st.integers(1, 3))
def test_a_move(database: Database, no: str, first: int, nodes: int):
    """The row is of another run, or is no longer as it was noticed: somebody has moved the database. No row of a tag is
    written, so that a move takes no longer where there are a hundred thousand."""
    here, before = RUNS[database], register(database, Scene(database, "").known) or 0
    noticed = Move("before", 7, FIRST)
    now = noticed._replace(**{"run": {"run": here}, "move": {"key": 8}, "first value": {"first_value": 6}}.get(no, {}))
    write(database, now, model.Tag(3, 6))
    rows = {**read(database), NODES: before}
    row = replace(database.run(shard_row.fetch), move=noticed)
    reach = {SHARD: first, NODES: before + nodes, TICKETS: 0}
    written = model.moved(rows, here, 9, reach.__getitem__, as_model(row))
    after = Move(here, 9, max(FIRST, first), 1)

    assert database.run(shard_row.move, row, after, Skipped(nodes, 0)) == bool(written)
    after_all = {**rows, **(written or {})}
    found = read(database)
    assert (found[SHARD], found[NAME]) == (after_all[SHARD], after_all[NAME])
    assert register(database, Scene(database, "").known) - after_all[NODES] in (1, 2)  # MySQL and SQLite burn one


# -- what makes and extends a fleet


REFUSED = [(no, True, ALL) for no in ("own run", "run", "move", "residue", "taken")]


@on("sqlite", "postgres", "mysql", "mariadb")
def test_make(fresh: str):
    """A tag that has not the present move skips its gap first; one that is closed stays so."""
    with closing(Database(fresh)) as database:
        RUNS[database] = database.settled_snapshot().shard.move.run
        for no, is_behind, residue in (*REFUSED, ("", True, ALL), ("", False, NONE)):
            scene = Scene(database, no, model.Tag(3, 6 if is_behind else 7, residue))
            raised = 3 + crossing(database.run(segments.fetch, NAME), 0) if is_behind else 3
            made = database.transact(fleet_rows.make, scene.known, FLEET, SLOTS, 0)

            assert made == (no == ""), no
            scene.check(model.made(scene.rows, SLOTS, FLEET, lambda _, raised=raised: raised) if made else None)


@ON_ALL
@given(st.sampled_from((*FENCE, "taken")), st.sampled_from([(1, 2), (1, 3)]))
def test_a_slot_is_taken(database: Database, no: str, taken: tuple[int, ...]):
    """Compare and set: what another command has written meanwhile stays."""
    scene = Scene(database, no, slot=replace(SLOT_1, taken_under=6))
    written = model.marked(scene.rows, scene.here, scene.known_model, frozenset(taken))
    fits = written if no != "run" else None

    mark = replace(scene.known, taken=taken, taken_under=scene.known.move.key, taken_for=4)
    assert database.run(fleet_rows.take_slot, scene.known, mark) == bool(fits)
    assert database.run(shard_row.fetch).taken_for == 4 * bool(fits)
    scene.check(fits)


@ON_ALL
@given(st.sampled_from((*FENCE, "residue", "taken")), st.sampled_from([None, 3, 20]))
def test_a_start(database: Database, no: str, value: int | None):
    """The row is written, whether the tag is there or not."""
    scene = Scene(database, no, None if value is None else model.Tag(value, 7, SLOT_1.residue), SLOT_1)
    after = model.Tag(max(10, value or 0), 7, SLOT_1.residue)

    begun = database.transact(segments.make_or_change, Tag(NAME, 10), {"max_value": 10}, scene.known)

    assert begun == (no == "")
    scene.check({NAME: after} if begun else None)
    assert read(database)[SHARD].made - scene.rows[SHARD].made == begun


@ON_ALL
@given(st.sampled_from((*FENCE, "residue", "taken")), st.sampled_from([None, 3, 20]))
def test_a_tag_is_closed_unless_it_gave_more(database: Database, no: str, value: int | None):
    before = None if value is None else model.Tag(value, 7, SLOT_1.residue)
    scene = Scene(database, no, before, SLOT_1)
    closed = database.transact(segments.close, Tag(NAME, 10), scene.known)

    assert closed == (no == "" and value != 20)
    scene.check({NAME: (before or model.Tag(10, 7))._replace(residue=NONE)} if closed else None)
    assert not database.run(segments.remove, NAME) if before and not closed else database.run(segments.remove, NAME)


@on("sqlite", "postgres", "mysql", "mariadb")
def test_a_new_database_joins(fresh: str):
    """Its row and its tags at once, as the members have them; once it has something, it is refused."""
    with closing(Database(fresh)) as database:
        RUNS[database] = database.settled_snapshot().shard.move.run
        for no in ("own run", "run", "move", "residue", "taken", ""):
            scene = Scene(database, no)
            new = Shard(FLEET, Residue(2, SLOTS), (1, 2), 9, move=Move(scene.here, 9, 40, 5))
            member = model.Shard("", first=40, fleet=FLEET, residue=SLOT_1.residue, tickets=scene.rows[SHARD].tickets)
            like = {SHARD: member, NAME: model.Tag(12, 1, NONE), TICKETS: 0, NODES: 7}
            written = model.joined(scene.rows, scene.here, 9, like, frozenset({1, 2}), 2)

            joined = database.transact(
                fleet_rows.join, scene.known, new, Given([Tag(NAME, 12, move=1)], {}, 7, 0, 0, 40)
            )

            assert joined == (no == ""), no
            scene.check(written if joined else None)
        assert register(database, database.read_row()) > model.node_number(7, new.residue)
        scene = Scene(database, "")
        with pytest.raises(ShardMisconfigured, match="must be new and empty"):
            database.transact(fleet_rows.join, scene.known, new, Given([], {}, 0, 0, 0, 0))

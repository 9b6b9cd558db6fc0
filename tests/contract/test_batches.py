"""Claims of several tags as one, on every database: who gets what, who is left out, and never an id twice."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain

import pytest
from sqlalchemy import create_engine, event, make_url, text
from support.distinct import distinct
from support.faults.tcp_proxy import Turn, Wire

from allocator import AsyncAllocator
from allocator.database.mysql import dialect as mysql
from allocator.database.postgresql import dialect as postgresql
from allocator.database.store import Database
from allocator.database.verbs import claims as claim_rows
from allocator.database.verbs import segments
from allocator.errors import Exhausted, MaxValueWentBack, SchemaOutOfDate
from allocator.schemes.segment_refill import Claim
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.tag import Tag

on_servers = pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"], indirect=True)


@pytest.fixture
def names(tag: str) -> list[str]:
    return [f"{tag}.{number}" for number in range(8)]


@pytest.fixture
def database(url: str, names: list[str]) -> Iterator[Database]:
    found = Database(url)
    made(found, *names)
    yield found
    found.close()


def made(database: Database, *names: str, **settings: int) -> None:
    for name in names:
        database.open_segment(Tag(name, **settings), create=True)


def claims(names: list[str], size: int = 10, seen: int = 0) -> dict[str, Claim]:
    return {name: Claim(size, {ALL: seen}) for name in names}


@pytest.mark.statements
def test_every_tag_gets_its_own(database, names):
    assert database.claim_segments(claims(names)) == dict.fromkeys(names, range(1, 11))
    assert database.claim_segments({name: Claim(at, {}) for at, name in enumerate(names, 1)}) == {
        name: range(11, 11 + at) for at, name in enumerate(names, 1)
    }
    assert [database.claim_segment(name, 1, {})[0] for name in names] == [11 + at for at in range(1, 9)]


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_one_tag_alone_is_left_to_a_single_claim(database, names):
    assert database.claim_segments(claims(names[:1])) is None


@pytest.mark.statements
def test_what_cannot_be_claimed_is_left_as_it_is(url, database, names):
    """Near its limit, gone back, not opened here, of a fleet that grew: the claim of one finds out."""
    full, back, unknown, moved = (f"{names[0]}-{what}" for what in ("full", "back", "unknown", "moved"))
    made(database, full, limit=5)
    made(database, back, moved)
    database._residues[moved] = Residue(1, 2)
    wanted = claims([*names, full, unknown, moved]) | claims([back], seen=1)

    assert database.claim_segments(wanted) == dict.fromkeys(names, range(1, 11))
    left = {one.name: one.max_value for one in database.run(segments.fetch_several, [full, back, moved])}
    assert left == {full: 0, back: 0, moved: 0}


@pytest.mark.statements
def test_a_tag_of_a_shard_gets_the_ids_of_the_shard(fresh):
    database = Database(fresh)
    names = [f"tag{number}" for number in range(6)]
    made(database, *names)
    with database.engine.connect() as connection:
        connection.execute(text("UPDATE allocator_segment SET shard_offset = 2, shard_step = 3"))
    assert database.claim_segments(claims(names)) == {}
    database.open_segments([Tag(name) for name in names])

    assert database.claim_segments(claims(names, size=4)) == dict.fromkeys(names, range(2, 13, 3))
    database.close()


def test_rows_of_another_server_run_are_claimed_alone(fresh):
    database = Database(fresh)
    names = [f"tag{number}" for number in range(6)]
    made(database, *names)
    change = "UPDATE allocator_segment SET server_run = 'another' WHERE tag <> '{}'"
    with database.engine.connect() as connection:
        connection.execute(text(change.format(names[0])))
    assert database.claim_segments(claims(names)) == {names[0]: range(1, 11)}
    with database.engine.connect() as connection:
        connection.execute(text(change.format("none")))

    assert database.claim_segments(claims(names)) is None
    database.close()


@contextmanager
def locked(url: str, name: str) -> Iterator[None]:
    engine = create_engine(url)
    with engine.connect() as connection, connection.begin():
        connection.execute(text(f"UPDATE allocator_segment SET step = step WHERE tag = '{name}'"))
        connection.execute(text(f"SELECT max_value FROM allocator_segment WHERE tag = '{name}' FOR UPDATE"))
        yield
    engine.dispose()


@on_servers
def test_a_row_that_is_locked_holds_up_nobody(url, database, names):
    with locked(url, names[3]):
        found = database.claim_segments(claims(names))

        assert found == {name: range(1, 11) for name in names if name != names[3]}
    assert database.claim_segments(claims(names))[names[3]] == range(1, 11)


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("repeats", [False, True])
def test_control_a_batch_that_reads_what_it_has_not_locked_repeats_ids(url, database, names, repeats, monkeypatch):
    """Another process claims 1 to 100 of a tag while the batch is under way."""
    if repeats:
        broken = postgresql.CLAIM_BATCH.replace("SELECT w.*", "SELECT w.*, max_value AS old")
        broken = broken.replace("FOR NO KEY UPDATE OF s SKIP LOCKED", "").replace(
            "s.max_value + w.span", "old + w.span"
        )
        monkeypatch.setattr(postgresql, "CLAIM_BATCH", broken)
    engine = create_engine(url)
    with ThreadPoolExecutor(1) as pool, engine.connect() as other, other.begin():
        other.execute(text(f"UPDATE allocator_segment SET max_value = 100 WHERE tag = '{names[0]}'"))
        asked = pool.submit(database.claim_segments, claims(names))
        with suppress(TimeoutError):
            asked.result(2)
        other.commit()
        found = asked.result(10).get(names[0], range(0))
    engine.dispose()

    assert bool(set(found) & set(range(1, 101))) is repeats


def steps_of(plan: dict) -> Iterator[dict]:
    yield plan
    for one in plan.get("Plans", ()):
        yield from steps_of(one)


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_batch_looks_at_each_row_once_and_asks_once_which_server_it_is(database, names):
    """Each row beside each claim would be 40,000 for 200 tags; the server reads a file to tell who it is."""
    sent: list = []
    event.listen(database.engine, "before_cursor_execute", lambda *args: sent.append(args[2:4]))
    database.claim_segments(claims(names))
    words, parameters = sent[-1]
    with database.engine.connect() as connection:
        (found,) = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {words}", parameters).scalar()
    steps = list(steps_of(found["Plan"]))

    assert sum(step.get("Rows Removed by Join Filter", 0) for step in steps) == 0
    assert [step for step in steps if step.get("Parent Relationship") == "InitPlan" and step["Actual Loops"] != 1] == []
    assert not [step for step in steps if "pg_control_system" in step.get("Filter", "") + step.get("Join Filter", "")]


@on_servers
def test_a_batch_is_one_round_trip(url, database, names):
    wire = Wire(url)
    wired = Database(wire.url)
    wired.open_segments([Tag(name) for name in names])
    wired.claim_segments(claims(names))
    wire.reset()
    wired.claim_segments(claims(names))

    assert wire.round_trips == 1
    wired.close(), wire.close()


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_a_message_that_fails_in_the_middle_is_taken_back(url, database, names, monkeypatch):
    """Its rows are free at once, and the error is one of ours."""
    with monkeypatch.context() as patched:
        broken = (*mysql.CLAIM_BATCH[:3], "SELECT nothing FROM allocator_missing", "COMMIT")
        patched.setattr(mysql, "CLAIM_BATCH", broken)
        with pytest.raises(SchemaOutOfDate, match="allocator_missing"):
            database.claim_segments(claims(names))
    other = Database(url, timeout=1)
    other.open_segments([Tag(name) for name in names])

    assert other.claim_segment(names[0], 10, {}) == range(1, 11)
    assert other.claim_segments(claims(names[1:])) == dict.fromkeys(names[1:], range(1, 11))
    assert database.claim_segments(claims(names)) == dict.fromkeys(names, range(11, 21))
    other.close()


class Cutting(Wire):
    """Ends the connection after so many bytes of the next answer to a claim of several tags."""

    left: int | None = None

    def _hand_on(self, data: bytes, sink: socket.socket, asking: bool, turn: Turn) -> None:
        if asking:
            turn.commits = b"allocator_claimed" in data
        elif turn.commits and self.left is not None:
            sink.sendall(data[: self.left])
            self.left = None
            raise ConnectionError
        super()._hand_on(data, sink, asking, turn)


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_an_answer_that_is_cut_anywhere_burns_what_was_claimed(url, database, names):
    """The connection was lost at once, so what can be had is claimed anew, above whatever was committed."""
    clear = make_url(url).update_query_dict({"ssl_disabled": "true"}).render_as_string(hide_password=False)
    with Cutting(clear) as wire:
        wired = Database(wire.url, timeout=5)
        wired.open_segments([Tag(name) for name in names])
        ours = [wired.claim_segments(claims(names))]
        for left in range(0, 200, 23):
            wire.left = left
            ours.append(wired.claim_segments(claims(names)))  # without those that the server still holds
            assert wire.left is None
        wired.close()
    for name in names:
        ids = [one for found in ours for one in found.get(name, ())]
        (row,) = database.run(segments.fetch_several, [name])
        distinct(ids)
        assert sorted(ids) == ids
        assert len(ids) < row.max_value, "some were committed, and nobody heard of it"


def test_batches_and_single_claims_of_one_moment_have_no_id_in_common(url, database, names):
    """Four that claim all tags together in turns of their own, beside four that claim one after the other."""
    ours: list[list[tuple[str, range]]] = [[] for _ in range(8)]
    ready = threading.Barrier(8)

    def run(number: int) -> None:
        mine = Database(url, timeout=60)
        turned = names[number:] + names[:number]
        mine.open_segments([Tag(name) for name in names])
        ready.wait()
        for _ in range(12):
            if number % 2:
                ours[number] += mine.claim_segments(claims(turned, size=3)).items()
            else:
                ours[number] += [(name, mine.claim_segment(name, 2, {})) for name in turned]
        mine.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))

    for name in names:
        ids = sorted(chain.from_iterable(found for tag, found in chain.from_iterable(ours) if tag == name))
        assert distinct(ids)
        (row,) = database.run(segments.fetch_several, [name])
        assert len(ids) == row.max_value, "what was claimed and what was written are the same"
    assert any(ours[number] for number in (1, 3, 5, 7))


# -- through an allocator


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_server_that_does_not_know_the_words_gives_ids_all_the_same(url, tag, monkeypatch):
    """An older one, or one that is only like it; whatever code it has for that."""
    tags = [f"{tag}.{number}" for number in range(40)]

    def unknown(connection, dialect, wanted):
        connection.execute(text("UPDATE allocator_segment WITH WORDS OF ANOTHER VERSION"))

    async def run() -> None:
        async with AsyncAllocator(url, timeout=30) as ids:
            monkeypatch.setattr(claim_rows, "claim_batch", unknown)
            for _ in range(2):
                assert len(await asyncio.gather(*(ids.next_id(name) for name in tags))) == 40

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_one_tag_that_fails_does_not_concern_the_others(url, tag):
    tags = [f"{tag}.{number}" for number in range(30)]

    async def run() -> list[object]:
        async with AsyncAllocator(url, timeout=30) as ids:
            await ids.reserve(tags[7], 5)
            await ids.tags.create(tags[3], limit=2, step=1, max_step=1)
            await ids.reserve(tags[3], 2)
            with ids._allocator._backend.databases()[0].engine.connect() as connection:
                connection.execute(text(f"UPDATE allocator_segment SET max_value = 1 WHERE tag = '{tags[7]}'"))
            return await asyncio.gather(*(ids.next_id(name) for name in tags), return_exceptions=True)

    found = asyncio.run(run())
    assert isinstance(found[3], Exhausted)
    assert isinstance(found[7], MaxValueWentBack)
    assert [one for one in found if one != 1] == [found[3], found[7]]

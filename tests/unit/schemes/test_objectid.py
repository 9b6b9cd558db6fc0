"""ObjectId: the value, and the ids made from nothing."""

import copy
import pickle
from datetime import UTC, datetime
from time import time as clock

import pytest
from support.distinct import distinct
from support.kit import output
from support.processes.children import in_child
from support.processes.threads import draw_on_threads

from allocator import ObjectId
from allocator.errors import InvalidId
from allocator.generators.objectid import Generator, generator, several
from allocator.runtime.iterators import LockedIterator
from allocator.schemes.objectid import ObjectIdBlocks
from allocator.schemes.shared.retry_pace import Wait

TEXT = "4df2dcec2cdcd20936a8b817"


def test_text_bytes_and_parts_are_one_value():
    value = ObjectId(TEXT)

    assert str(value) == TEXT == bytes(value).hex()
    assert value == ObjectId(bytes.fromhex(TEXT)) == ObjectId(TEXT.upper()) == ObjectId(value)
    assert value == ObjectId.from_parts(0x4DF2DCEC, bytes.fromhex("2cdcd20936"), 0xA8B817)
    assert repr(value) == f"ObjectId('{TEXT}')"
    assert value.generation_time == datetime(2011, 6, 11, 3, 11, 40, tzinfo=UTC)


def test_it_is_a_value():
    low, high = ObjectId("0" * 24), ObjectId("f" * 24)

    assert low < high
    assert low <= ObjectId("0" * 24)
    assert len({low, ObjectId("0" * 24), high}) == 2
    assert low != "0" * 24
    assert pickle.loads(pickle.dumps(high)) == copy.deepcopy(high) == high
    with pytest.raises(AttributeError, match="binary"):
        low.binary = b""


def test_seconds_are_unsigned_until_2106():
    assert ObjectId("f" * 24).generation_time == datetime(2106, 2, 7, 6, 28, 15, tzinfo=UTC)


def test_a_full_second_after_the_clock_went_back_is_followed_by_the_next():
    blocks = ObjectIdBlocks(b"proc!", 5)
    blocks.take(1000)
    blocks._left = 0

    assert next(blocks.take(10))[:4] == (1001).to_bytes(4, "big")


def test_a_range_query():
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)

    assert ObjectId.from_datetime(noon).generation_time == noon
    assert ObjectId.from_datetime(noon) == ObjectId.from_datetime(noon.replace(tzinfo=None))
    assert bytes(ObjectId.from_datetime(noon))[4:] == bytes(8)


def test_anything_else_is_refused(subtests):
    for wrong in ["", "a" * 23, "a" * 25, "g" * 24, " " * 24, b"x" * 11, b"", 5, 1.5, ["a"], "ä" * 24]:
        with subtests.test(wrong=wrong):
            assert not ObjectId.is_valid(wrong)
            with pytest.raises(InvalidId, match="12 bytes or 24 hex digits, got"):
                ObjectId(wrong)
    assert all(map(ObjectId.is_valid, [TEXT, TEXT.upper(), b"x" * 12, ObjectId(TEXT)]))
    assert not any(map(ObjectId.is_valid, [None, 0]))


def test_the_counter_goes_up_by_one_and_wraps_after_ffffff():
    blocks = ObjectIdBlocks(b"proc!", 0xFFFFFE)
    made = [raw for _ in range(3) for raw in blocks.take(7)]

    assert [int.from_bytes(raw[9:], "big") for raw in made[:4]] == [0xFFFFFE, 0xFFFFFF, 0, 1]
    assert {raw[:9] for raw in made} == {b"\0\0\0\7proc!"}


def test_the_counter_counts_ids_not_seconds(monkeypatch):
    """Over its end too, and while the clock steps back; a call that still holds the last block draws nothing."""
    now, drawn = [1000.0], []
    source = Generator(b"proc!", 0xFFFFFE, clock=lambda: now[0])
    monkeypatch.setattr("allocator.generators.objectid.generator", source)
    monkeypatch.setattr("allocator.generators.objectid.time", lambda: now[0])
    for step, ids in [(0, 1), (1, 1), (1, 1), (0.5, 2), (-900, 3), (2000, 1), (1, 300), (1, 1)]:
        now[0] += step
        held = source.values
        drawn += several(ids) if ids > 1 else [ObjectId().binary]
        if held is not source.values:
            drawn += held

    assert [int.from_bytes(raw[9:], "big") for raw in drawn] == [
        (0xFFFFFE + made) & 0xFFFFFF for made in range(distinct(drawn))
    ]


def test_of_a_second_that_lasts_no_id_is_given_back():
    """Another thread may hold them: only in a new second do their counters make other ids."""
    blocks = ObjectIdBlocks(b"proc!", 5)
    held = blocks.take(7)
    drawn = [*blocks.take(7, unused=251), *held]

    assert distinct(drawn) == len(drawn)


def test_more_than_a_second_holds_wait_for_the_next():
    blocks = ObjectIdBlocks(b"proc!", 5)
    made = list(blocks.take(7))
    assert len(made) + blocks._left == 1 << 24
    blocks._left = 300
    while not isinstance(more := blocks.take(7.25), Wait):
        made += more

    assert len(made) == 251 + 300
    assert more.seconds == 0.75
    assert next(blocks.take(8))[:4] == b"\0\0\0\x08"


def test_a_used_up_second_is_slept_through():
    now = [7.25]
    made = Generator(b"proc!", 0, clock=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds))
    made.refill()
    made.values, made._blocks._left = iter(()), 0

    assert made.refill()[:4] == b"\0\0\0\x08"
    assert now == [8.0]


def test_after_a_clock_that_went_back_no_second_begins_anew():
    """Its 2**24 ids are counted once: a second that is left and come back to would have more than the counter has."""
    blocks = ObjectIdBlocks(b"proc!", 0)
    blocks.take(7)

    assert next(blocks.take(5))[:4] == b"\0\0\0\x07"
    assert blocks._left == (1 << 24) - 512


def test_new_ones_increase_and_hold_the_time():
    before = int(datetime.now(UTC).timestamp())
    drawn = [ObjectId() for _ in range(2000)]

    assert distinct(drawn) == 2000
    assert before <= drawn[0].seconds <= drawn[-1].seconds <= before + 5
    assert len({bytes(made)[4:9] for made in drawn}) == 1


def test_threads_get_every_id_once():
    drawn = draw_on_threads(ObjectId, threads=8, each=1000)

    assert distinct(made for ids in drawn for made in ids) == 8000


def test_a_child_is_another_process():
    assert in_child(lambda: str(ObjectId()))[8:18] != str(ObjectId())[8:18]


def test_a_call_in_which_a_signal_handler_forked_draws_the_childs_ids(monkeypatch):
    parents = bytes(ObjectId())[4:9]

    def time() -> float:
        generator._forget(), generator.after_fork()  # what the hook does in the child
        return clock()

    monkeypatch.setattr("allocator.generators.objectid.time", time)

    assert bytes(ObjectId())[4:9] != parents


def test_what_a_call_holds_that_a_fork_interrupted_is_empty(monkeypatch):
    for kind in (LockedIterator, iter):
        monkeypatch.setattr("allocator.runtime.iterators.iterator", kind)
        made = Generator(bytes(5), 0)
        made.refill()
        values = made.values
        made._forget()

        assert list(values) == []


def test_it_is_interchangeable_with_bsons():
    bson = pytest.importorskip("bson")
    theirs, mine = bson.ObjectId(), ObjectId()

    assert ObjectId(theirs).binary == theirs.binary
    assert str(ObjectId(theirs)) == str(theirs)
    assert bson.ObjectId(mine).generation_time == mine.generation_time
    assert type(bson.ObjectId(mine).binary) is bytes
    assert (ObjectId(theirs) < mine) == (theirs < mine) == (theirs < bson.ObjectId(mine))
    assert {mine, bson.ObjectId(str(mine))} == {bson.ObjectId(str(mine))}
    assert mine != theirs
    assert type(pickle.loads(pickle.dumps(mine))) is type(copy.copy(mine)) is ObjectId


def test_bson_writes_it_as_an_objectid():
    """By its extension in C, where it has one, and by its Python."""
    bson = pytest.importorskip("bson")
    mine, theirs = ObjectId(TEXT), bson.ObjectId(TEXT)
    assert bson.decode(bson.encode({"_id": mine, "in": [mine]})) == {"_id": theirs, "in": [theirs]}
    written = bson._name_value_to_bson(b"_id\0", mine, False, bson.codec_options.DEFAULT_CODEC_OPTIONS)
    assert written == b"\x07_id\0" + bytes.fromhex(TEXT)


def test_bsons_own_import_may_come_later():
    """In a process of its own: nothing of bson is there when ours is made."""
    pytest.importorskip("bson")
    code = (
        "from allocator import ObjectId; mine = ObjectId(); assert mine.__class__ is ObjectId; import bson; "
        "assert bson.ObjectId(mine) == mine"
    )
    assert output(code) == ""

"""What the rows of Leaf and tinyid say of the ids that can have been given."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.rules.leaf_tinyid import LeafRow, Refusal, TinyidRow, leaf, tinyid
from allocator.schemes.shared.argument_checks import MAX_ID, MAX_STEP
from allocator.schemes.tag import DEFAULT_MAX_STEP, DEFAULT_STEP, Tag


def tiny(max_id: object, delta: object = 1, remainder: object = 0, name: object = "order", step: object = 10):
    return TinyidRow(name, max_id, step, delta, remainder)


def message(found: list[Tag | Refusal]) -> str:
    (one,) = found
    assert isinstance(one, Refusal), one
    return one.message


def last(found: list[Tag | Refusal]) -> int:
    (one,) = found
    assert isinstance(one, Tag), one
    return one.max_value


def test_leaf_owns_what_lies_below_max_id():
    expected = {0: 0, 1: 0, 2: 1, 5001: 5000, MAX_ID: MAX_ID - 1}

    assert {max_id: last(leaf([LeafRow("order", max_id, 1000)])) for max_id in expected} == expected


def test_tinyid_owns_max_id_too():
    for max_id in [0, 1, 2, 5000, MAX_ID]:
        assert last(tinyid([tiny(max_id)])) == max_id, max_id


def test_a_step_that_a_tag_may_have_is_taken_over():
    for step in [1, 500, DEFAULT_MAX_STEP, DEFAULT_MAX_STEP + 1, MAX_STEP]:
        wanted = Tag("order", 5, step, max(DEFAULT_MAX_STEP, step))

        assert leaf([LeafRow("order", 6, step)]) == [wanted.checked()] == tinyid([tiny(5, step=step)]), step


def test_another_step_is_not():
    for step in [0, -1, MAX_STEP + 1, None, 2.0, "5", True]:
        wanted = Tag("order", 5, DEFAULT_STEP, DEFAULT_MAX_STEP)

        assert leaf([LeafRow("order", 6, step)]) == [wanted] == tinyid([tiny(5, step=step)]), step


def test_decisions_are_by_name_and_names_are_compared_byte_by_byte():
    found = leaf([LeafRow(name, 2, 1) for name in ("order", "Order", "a b", "ORDER", "order:1")])

    assert [one.name for one in found] == ["ORDER", "Order", "a b", "order", "order:1"]
    assert [isinstance(one, Refusal) for one in found] == [False, False, True, False, False]


def test_a_name_that_is_no_tag_is_refused_and_no_other():
    for name in ["", " order", "order ", "a/b", "-x", "ä", "x" * 65, None, 5, b"order", "order\n", "o\x1b[31m"]:
        for found in (
            leaf([LeafRow(name, 2, 1), LeafRow("zzz", 2, 1)]),
            tinyid([tiny(1, name=name), tiny(1, name="zzz")]),
        ):
            (refusal,) = [one for one in found if isinstance(one, Refusal)]
            assert refusal.name == str(name), name
            assert refusal.message.startswith("a tag is 1 to 64 of the characters"), name
            assert refusal.message.isprintable(), name
            assert [one.name for one in found if isinstance(one, Tag)] == ["zzz"], name


def test_a_max_id_that_cannot_be_is_refused():
    for wrong in [-1, MAX_ID + 1, 2**80, None, "7", 7.0, Decimal(7), True]:
        for said in (message(leaf([LeafRow("order", wrong, 1)])), message(tinyid([tiny(wrong)]))):
            assert said.startswith("order: max_id must be "), wrong
            assert said.endswith(f", got {wrong!r}"), wrong


def test_a_delta_or_remainder_that_cannot_be_is_refused():
    for delta, remainder, said in [
        (0, 0, "delta must be 1 to"),
        (-2, 0, "delta must be 1 to"),
        (None, 0, "delta must be a whole number"),
        ("2", 0, "delta must be a whole number"),
        (2, 2, "remainder must be 0 to 1, got 2"),
        (1, 1, "remainder must be 0 to 0, got 1"),
        (2, -1, "remainder must be 0 to 1, got -1"),
        (2, None, "remainder must be a whole number from 0 to 1, got None"),
    ]:
        assert message(tinyid([tiny(7, delta, remainder)])).startswith(f"order: {said}"), (delta, remainder)


def test_one_row_that_cannot_be_refuses_the_name():
    assert "max_id must be" in message(leaf([LeafRow("order", 7, 1), LeafRow("order", -7, 1)]))
    assert "max_id must be" in message(tinyid([tiny(7, 2, 0), tiny(None, 2, 1)]))


def test_of_several_databases_the_greatest_counts():
    assert leaf([LeafRow("order", 8, 3), LeafRow("order", 70, 2)]) == [Tag("order", 69, 3)]
    assert tinyid([tiny(8, 2, 1, step=3), tiny(70, 2, 0, step=2)]) == [Tag("order", 70, 3)]


def test_all_remainders_are_needed():
    assert last(tinyid([tiny(10 * n, 3, n) for n in range(3)])) == 20
    said = message(tinyid([tiny(10, 3, 0), tiny(30, 3, 2)]))
    assert said.startswith(
        "order: delta is 3, so 3 databases may issue ids, one for each remainder, but rows of only 2 were read; name "
        "all databases with --from"
    )
    assert "--start-after 30 or more" in said
    assert "delta is 1000000000000, so 1000000000000 databases may issue ids" in message(tinyid([tiny(10, 10**12, 5)]))


def test_a_remainder_is_found_once():
    assert message(tinyid([tiny(10), tiny(10)])).startswith("order: 2 rows have the remainder 0; name each database")
    assert "3 rows have the remainder 1" in message(tinyid([tiny(n, 2, n and 1) for n in range(4)]))


def test_databases_that_contradict_each_other_are_refused():
    assert "delta differs between databases: 2 and 3; set the same in all of them" in message(
        tinyid([tiny(8, 2, 1), tiny(8, 3, 0)])
    )


def test_nothing_is_nothing():
    assert leaf([]) == [] == tinyid([])


# -- whatever they did

claims = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50)), max_size=30)


@given(st.integers(0, 100), claims)
def test_no_id_of_leaf_is_above_what_we_start_after(begin, made):
    """Leaf chooses its step anew for each claim; it owns [max_id - step, max_id)."""
    max_id, ids = begin, [0]
    for _, step in made:
        max_id += step
        ids += range(max_id - step, max_id)

    assert last(leaf([LeafRow("order", max_id, 5)])) == max(ids[-1], begin - 1, 0)


@given(st.integers(1, 4), st.integers(0, 100), claims)
def test_no_id_of_tinyid_is_above_what_we_start_after(delta, begin, made):
    """Each database owns of (max_id - step, max_id] what leaves its remainder."""
    databases, ids = dict.fromkeys(range(delta), begin), set()
    for number, step in made:
        remainder = number % delta
        databases[remainder] += step
        window = range(databases[remainder] - step + 1, databases[remainder] + 1)
        ids |= {one for one in window if one % delta == remainder}
    start = last(tinyid([tiny(max_id, delta, remainder) for remainder, max_id in databases.items()]))

    assert max(ids, default=0) <= start
    assert start == max(databases.values())


@settings(max_examples=50)
@given(st.data())
def test_no_rows_are_more_than_can_be_decided(data):
    """Every name gets one decision: a tag that can be made, or one sentence."""
    odd = st.none() | st.integers() | st.integers(0, 5) | st.floats() | st.text(max_size=70) | st.binary(max_size=5)
    name = st.sampled_from(["order", "Order", "x"]) | odd
    rows = data.draw(st.lists(st.builds(TinyidRow, name, odd, odd, odd, odd), max_size=8))
    for found, names in (
        (tinyid(rows), {row.name for row in rows}),
        (leaf([LeafRow(*row[:3]) for row in rows]), {row.name for row in rows}),
    ):
        assert len(found) == len(names)
        for one in found:
            if isinstance(one, Tag):
                one.checked()
            else:
                assert one.message.isprintable()

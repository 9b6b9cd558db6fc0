"""Who holds which worker number, and how many are free."""

from __future__ import annotations

from dataclasses import replace

from allocator.schemes.worker_number_lease import NumberRow, spaces_of

AT, L = 1_800_000_000_000, 10_000
HELD = NumberRow(0, 2, L, "a", 3, AT + L, AT + L, "there", 5)


def test_held_is_what_nobody_else_may_take_yet():
    rows = [
        HELD,
        replace(HELD, number=1, until_ms=AT - L),
        replace(HELD, number=2, until_ms=AT - L - 1),
        replace(HELD, number=3, holder=""),
    ]
    (space,) = spaces_of({"pods": rows}, AT)

    assert (space.name, space.bits, space.length_ms) == ("pods", 2, L)
    assert [row.number for row in space.held] == [0, 1]
    assert space.free == 2


def test_the_settings_are_those_of_the_newest_lease():
    older = replace(HELD, number=9, bits=4, until_ms=AT + 1)
    (space,) = spaces_of({"pods": [HELD, older]}, AT)

    assert (space.bits, space.free) == (2, 3)

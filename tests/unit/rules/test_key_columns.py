"""When the integer keys of a host's own tables end."""

from __future__ import annotations

from datetime import date

from allocator.rules.key_columns import KeyColumn, outlooks

TODAY = date(2026, 1, 1)
INT = 2**31 - 1


def key(name: str, greatest: int | None, limit: int = INT) -> KeyColumn:
    return KeyColumn("shop." + name, "id", "integer", limit, greatest)


def test_without_a_rate_the_fullest_is_first():
    found = outlooks([key("a", 10), key("b", INT // 2), key("c", None)], None, None, TODAY)

    assert [one.key.table for one in found] == ["shop.b", "shop.a", "shop.c"]
    assert {one.a_day for one in found} == {one.ends for one in found} == {None}


def test_the_rate_comes_from_an_earlier_look_and_the_first_end_is_first():
    before = {"shop.slow.id": 900_000, "shop.fast.id": 0}
    found = outlooks([key("slow", 1_000_000), key("fast", 21_000_000)], before, 10.0, TODAY)

    assert [(one.key.table, one.a_day) for one in found] == [("shop.fast", 2_100_000.0), ("shop.slow", 10_000.0)]
    assert found[0].ends == date(2028, 10, 9)
    assert found[1].ends == date(2613, 9, 9)


def test_since_a_date_all_was_empty_before():
    (found,) = outlooks([key("a", 1_000)], None, 10.0, TODAY)

    assert found.a_day == 100.0


def test_what_is_nearly_full_or_ends_within_a_year_needs_attention():
    for greatest, before, needs in [
        (INT * 8 // 10 + 1, INT, True),  # full, though nothing was added
        (INT * 7 // 10, INT * 7 // 10, False),
        (INT // 2, INT // 2 - INT // 300, True),  # half is left, for 150 days
        (INT // 2, INT // 2 - INT // 1000, False),
    ]:
        (found,) = outlooks([key("a", greatest)], {"shop.a.id": before}, 1.0, TODAY)

        assert found.needs_attention(TODAY) is needs, (greatest, before)


def test_an_empty_a_negative_and_an_unread_one_use_nothing():
    for greatest in [0, -5, None]:
        (found,) = outlooks([key("a", greatest)], {}, 1.0, TODAY)

        assert found.key.used == 0, greatest
        assert found.ends is None, greatest
        assert found.needs_attention(TODAY) is (greatest is None), greatest


def test_a_column_that_is_full_ends_today_and_one_that_was_emptied_never():
    full, emptied = outlooks(
        [key("full", INT), key("emptied", 5)], {"shop.full.id": 0, "shop.emptied.id": 9}, 1.0, TODAY
    )

    assert full.ends == TODAY
    assert emptied.ends is None


def test_of_a_sequence_the_range_counts():
    (found,) = outlooks([key("a", 1_600, 2_000)._replace(starts=1_001)], None, None, TODAY)

    assert found.key.used == 0.6
    assert not found.needs_attention(TODAY)
    assert key("a", 0, 2_000)._replace(starts=2_001).used == 0


def test_a_key_whose_counter_is_behind_comes_first_and_needs_attention():
    behind, over = outlooks([key("over", INT + 5), key("behind", 5)._replace(next=3)], None, None, TODAY)

    assert (behind.key.table, over.key.table) == ("shop.behind", "shop.over")
    assert behind.needs_attention(TODAY)


def test_a_key_that_is_over_comes_first_whatever_the_rates():
    over, soon = outlooks([key("soon", INT // 2), key("over", INT + 5)], {"shop.soon.id": 0}, 1.0, TODAY)

    assert (over.key.table, over.ends) == ("shop.over", None)
    assert soon.key.table == "shop.soon"

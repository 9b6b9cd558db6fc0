"""A tag bound to a column: each rule of the doctor, from plain numbers."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from allocator.rules.column_bindings import Binding, Bound, findings, rate
from allocator.rules.days_left import DAY
from allocator.rules.takeover_ranges import ColumnFacts, Ranges, Remedy, Takeover
from allocator.schemes.shared.residues import Residue
from allocator.schemes.tag import Tag

BIGINT, INT = 2**63 - 1, 2**31 - 1
TODAY = date(2026, 11, 24)
BOUND_AT = 1_000_000_000_000
NOW = BOUND_AT + int(10 * DAY * 1000)
REMEDY = Remedy("drop it", "widen it", "from {low} to {high}")

WIDE = ColumnFacts("public.orders.id", "bigint", BIGINT, 5_000, remedy=REMEDY._replace(widen=""))
NARROW = replace(WIDE, type="integer", limit=INT, remedy=REMEDY)
BINDING = Binding("public.orders.id", "order", 41, 1_001, 0, BOUND_AT)
TAG = Tag("order", 6_000, skipped=1_000, claimed_at=1)
SOUND = Bound(BINDING, WIDE, TAG, greatest=5_000, smallest=7)

RANGES = Ranges(42, 1_000_041, 1_000_042, BIGINT)
TAKEN = replace(BINDING, takeover=Takeover(BINDING.place, "order", "started", RANGES, "orders_id_seq", 41, 1, 41, 1))
HELD = replace(WIDE, counter="orders_id_seq", given=50, ends=1_000_041, generates="identity")
TAKEN_OVER = Bound(TAKEN, HELD, replace(TAG, max_value=1_002_000), greatest=1_001_500, smallest=1)
ENDING = replace(TAKEN.takeover, ranges=Ranges(41, 42, 43, 2_000_000))
FINISHED = replace(TAKEN, takeover=replace(TAKEN.takeover, state="finished"))


def judged(bound: Bound) -> list[tuple[str, str, str]]:
    return [(one.name, str(one.severity), one.mend) for one in findings(bound, NOW, TODAY)]


def test_nothing_is_wrong_with_rows_of_the_tag_and_older_ones():
    assert judged(SOUND) == []
    assert judged(replace(SOUND, greatest=6_000)) == []
    assert judged(replace(SOUND, greatest=0, smallest=None)) == []


def test_nothing_is_wrong_with_a_column_that_is_taken_over():
    assert judged(TAKEN_OVER) == []
    assert judged(replace(TAKEN_OVER, binding=FINISHED, facts=replace(HELD, counter="", generates=""))) == []


def changed(bound: Bound, **tag: int) -> Bound:
    return replace(bound, tag=replace(bound.tag, **tag))


WRONG = {
    "the column is gone": (
        replace(SOUND, facts=None),
        ("bound-column-gone", "note", "allocator tags unbind public.orders.id"),
    ),
    "the tag is gone": (
        replace(SOUND, tag=None),
        ("bound-tag-gone", "danger", "allocator tags create order --start-after 5000"),
    ),
    "the tag of a narrow column is gone": (
        replace(SOUND, tag=None, facts=NARROW),
        ("bound-tag-gone", "danger", f"allocator tags create order --start-after 5000 --limit {INT}"),
    ),
    "the tag of an empty column is gone": (
        replace(SOUND, tag=None, greatest=0, binding=replace(BINDING, greatest=0)),
        ("bound-tag-gone", "note", "allocator tags create order --start-after 0"),
    ),
    "the tag of a takeover is gone": (
        replace(TAKEN_OVER, tag=None, greatest=0),
        ("bound-tag-gone", "danger", "allocator tags create order --start-after 1000041"),
    ),
    "a fleet": (
        changed(SOUND, residue=Residue(1, 2)),
        ("binding-in-a-fleet", "note", "allocator tags unbind public.orders.id"),
    ),
    "the tag is below": (
        changed(SOUND, max_value=4_999),
        ("tag-below-column", "danger", "allocator tags set order --start-after 5000"),
    ),
    "the tag ends below": (
        changed(SOUND, max_value=4_999, limit=4_999),
        ("tag-below-column", "danger", f"allocator tags set order --start-after 5000 --limit {BIGINT}"),
    ),
    "the tag is below its takeover": (
        replace(TAKEN_OVER, greatest=1_002_001),
        ("tag-below-column", "danger", "allocator tags set order --start-after 1002001"),
    ),
    "the limit is above the type": (
        replace(SOUND, facts=NARROW),
        ("tag-limit-above-column", "outage", f"allocator tags set order --limit {INT}"),
    ),
    "the limit is above the range": (
        replace(
            TAKEN_OVER, binding=replace(TAKEN, takeover=replace(TAKEN.takeover, ranges=Ranges(41, 42, 43, 2_000_000)))
        ),
        ("tag-limit-above-column", "danger", "allocator tags set order --limit 2000000"),
    ),
    "a row that nobody issued": (
        replace(SOUND, stray=500, stray_above=41),
        ("rows-not-of-the-tag", "danger", "find out what wrote it: from 42 to 500"),
    ),
    "a row below 1": (
        replace(SOUND, smallest=-9),
        ("rows-below-1", "note", "find out what wrote it: from -9 to 0"),
    ),
    "a second generator": (
        replace(SOUND, facts=replace(WIDE, generates="identity")),
        ("second-generator", "danger", "drop it"),
    ),
    "one that cannot be dropped": (
        replace(SOUND, facts=replace(WIDE, generates="AUTOINCREMENT", remedy=Remedy())),
        ("second-generator", "note", "name an id in each INSERT"),
    ),
    "a second generator after a takeover": (
        replace(TAKEN_OVER, binding=FINISHED),
        ("second-generator", "danger", "drop it"),
    ),
    "a counter that was let loose": (
        replace(TAKEN_OVER, facts=replace(HELD, ends=BIGINT)),
        ("takeover-not-held", "danger", "allocator takeover back public.orders.id"),
    ),
    "a tag that was set back below its range": (
        replace(changed(TAKEN_OVER, max_value=1_000_040), greatest=0),
        ("takeover-not-held", "danger", "allocator takeover back public.orders.id"),
    ),
}


def test_each_rule_names_its_remedy():
    for case, (bound, finding) in WRONG.items():
        assert judged(bound) == [finding], case


def test_a_trigger_that_refuses_is_no_second_generator():
    assert judged(replace(TAKEN_OVER, binding=FINISHED, is_refused=True)) == []


def test_a_narrow_column_that_is_past_its_end_is_widened():
    assert judged(replace(changed(SOUND, max_value=INT + 1), facts=NARROW)) == [
        ("tag-limit-above-column", "outage", "widen it"),
        ("bound-column-ends", "outage", "this copies the table, so plan it: widen it"),
    ]


# -- when it ends

SLOW = replace(changed(SOUND, limit=INT), facts=NARROW)


def test_the_rate_is_that_of_the_ids_issued_since_it_was_bound():
    """Not of those skipped, as at a failover, nor of those issued before."""
    assert rate(BINDING, TAG, NOW) == 500
    assert rate(replace(BINDING, issued=3_000), TAG, NOW) == 200
    assert rate(BINDING, replace(TAG, skipped=6_000), NOW) == 0


def test_without_an_hour_there_is_no_rate():
    assert rate(BINDING, TAG, BOUND_AT + 3_599_000) is None
    assert rate(BINDING, TAG, BOUND_AT + 3_600_000) == 120_000


def test_a_narrow_column_that_ends_within_a_year_says_when():
    assert judged(SLOW) == []
    fast = changed(SLOW, max_value=1_000_000_000, skipped=900_000_000)
    (finding,) = findings(fast, NOW, TODAY)

    assert (finding.name, str(finding.severity)) == ("bound-column-ends", "outage")
    assert finding.found == (
        "public.orders.id (integer) is 47 % full, at 1,000,000,000 of 2,147,483,647, and ends on 2027-03-18 at the "
        "rate since it was bound"
    )


def test_a_narrow_column_that_is_nearly_full_is_told_without_a_rate():
    full = replace(SLOW, facts=replace(NARROW, greatest=1_800_000_000), binding=replace(BINDING, bound_at=NOW))
    (finding,) = findings(changed(full, max_value=1_800_000_000), NOW, TODAY)

    assert finding.found == "public.orders.id (integer) is 84 % full, at 1,800,000,000 of 2,147,483,647"


def test_a_wide_column_has_no_end():
    assert judged(changed(SOUND, max_value=2**62, skipped=0)) == []


def test_a_binding_is_named_by_its_place_or_the_end_of_it():
    assert [BINDING.is_named(words) for words in ("public.orders.id", "orders.id", "id")] == [True, True, True]
    assert [BINDING.is_named(words) for words in ("rders.id", "other.orders.id", "orders")] == [False, False, False]

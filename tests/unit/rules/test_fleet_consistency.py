"""Rows of several databases: do they make one sound fleet?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator.errors import DatabaseUnavailable, ShardMisconfigured
from allocator.rules import fleet_growth_protocol
from allocator.rules.fleet_consistency import JOINING, Member, Shard, Target, check_fleet, check_usable
from allocator.schemes.ticket import ShardNumbering

MEMBERS = tuple(Member(f"key{offset}", offset, f"db{offset}") for offset in (1, 2, 3))


def fleet(step: int = 2, generation: int = 1) -> list[tuple[str, Shard]]:
    members = MEMBERS[:step]
    return [
        (
            one.url,
            Shard("main", one.key, True, generation, ShardNumbering(one.offset, step), 1, members),
        )
        for one in members
    ]


def changed(rows: list[tuple[str, Shard]], which: int, **changes: object) -> list[tuple[str, Shard]]:
    where, row = rows[which]
    return [*rows[:which], (where, replace(row, **changes)), *rows[which + 1 :]]  # type: ignore[arg-type]


def test_sound_fleets():
    for step in (1, 2, 3):
        check_fleet(fleet(step))
        check_fleet(fleet(step), "main")
    check_fleet(fleet(3)[1:])  # one is not reached
    check_fleet([])


def test_a_fleet_on_its_way_to_the_next_generation_is_sound():
    target = Target("growth", 2, 1, MEMBERS, 1000, True)
    old, new = fleet(2), fleet(3, generation=2)
    fenced = {row.key: replace(row.numbering, ceiling=1000) for _, row in old}
    on_the_way = [(where, replace(row, target=target, numbering=fenced[row.key])) for where, row in old]
    joining = (new[2][0], replace(new[2][1], generation=JOINING, numbering=ShardNumbering(0, 0), members=()))

    check_fleet([*on_the_way, joining])
    check_fleet([on_the_way[0], new[1], joining])
    check_fleet([on_the_way[0], new[1], new[2]])
    with pytest.raises(ShardMisconfigured, match="one is of another fleet"):
        check_fleet([old[0], new[1]])
    with pytest.raises(ShardMisconfigured, match="has forgotten how far the fleet has grown"):
        check_fleet([(old[0][0], replace(old[0][1], target=target)), new[1]])


def test_a_shard_that_was_trusted_in_the_midst_of_a_growth_enters_above_what_it_may_have_given():
    target = Target("growth", 2, 1, MEMBERS, 1000, turning=True)
    fenced = replace(fleet(2)[1][1], target=target, numbering=ShardNumbering(2, 2, ceiling=1000))
    entered = fleet_growth_protocol.entered(fleet_growth_protocol.trusted(fenced, 5000), target)

    assert entered is not None
    assert entered.numbering.floor == 5000


def test_what_does_not_fit_is_named(subtests):
    for which, changes, sentence in [
        (1, {"fleet": "other"}, "db2 is a shard of the fleet 'other', not of 'main'"),
        (1, {"key": "key1"}, "in db2 says shard 2 of 2, but lists the shards"),
        (1, {"numbering": ShardNumbering(1, 2)}, "in db2 says shard 1 of 2, but lists"),
        (1, {"numbering": ShardNumbering(2, 0)}, "db2: step must be 1 to 1000, got 0"),
        (1, {"numbering": ShardNumbering(3, 2)}, "db2: offset must be 1 to 2, got 3"),
        (1, {"numbering": ShardNumbering(2, 3)}, "in db2 says shard 2 of 3, but lists"),
        (1, {"generation": 2}, "one is of another fleet or was restored from an old backup"),
        (0, {"members": MEMBERS[1:]}, "in db1 says shard 1 of 2, but lists the shards 2: db2, 3: db3"),
    ]:
        with subtests.test(which=which, changes=changes), pytest.raises(ShardMisconfigured, match=sentence):
            check_fleet(changed(fleet(), which, **changes), "main")


def test_two_rows_with_one_key_are_one_database_or_a_copy():
    rows = fleet()
    with pytest.raises(
        ShardMisconfigured, match="db1 and elsewhere are the same database under two URLs, or one is a copy"
    ):
        check_fleet([*rows, ("elsewhere", rows[0][1])])


def test_the_same_offset_twice_is_refused():
    """Two fleets of the same name and size, made apart."""
    here = fleet()[0]
    row = replace(here[1], key="other", members=(Member("other", 1, "x"), MEMBERS[1]))
    with pytest.raises(
        ShardMisconfigured, match="db1 and x both have offset 1 of step 2, and would issue the same ids"
    ):
        check_fleet([here, ("x", row)])


def test_a_shard_is_usable_where_it_is_trusted_and_once_it_has_joined():
    (_, row), *_ = fleet()
    check_usable("db1", row)
    with pytest.raises(ShardMisconfigured, match=r"is now on another server.*shards trust db1"):
        check_usable("db1", replace(row, is_trusted=False))
    with pytest.raises(DatabaseUnavailable, match="run: allocator shards grow"):
        check_usable("db1", replace(row, generation=JOINING))

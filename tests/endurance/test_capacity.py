"""What the model of capacity says of a small fleet, beside that fleet for real."""

from __future__ import annotations

from contextlib import closing

from allocator.database.store import Database
from benchmarks.capacity import measured
from benchmarks.places import place
from benchmarks.reality import compared


def test_the_model_says_what_a_real_fleet_does(fresh, kind, report):
    with closing(Database(fresh)) as database:
        database.upgrade_schema()
    with place(fresh, kind) as found:
        told = compared(found, measured(found))
    report(
        f"capacity, {kind}: model to real, claims {told.model['claims']} to {told.real['claims']}, "
        f"statements {told.model['statements']} to {told.real['statements']}"
    )

    assert 0.8 < told.model["claims"] / told.real["claims"] < 1.25
    assert 0.4 < told.model["statements"] / told.real["statements"] < 1.25

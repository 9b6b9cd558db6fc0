"""The load of the database, by the rules themselves in a simulated world."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from allocator.schemes.tag import DEFAULT_MAX_STEP, DEFAULT_STEP
from benchmarks import capacity
from benchmarks.capacity import phase, rows_of
from benchmarks.report import columns
from benchmarks.world import Load, Times, World, popular

QUICK = Times(latency=(0.001,), statement=0.0002, row=0.00002, read=0.000001)
RUNWAY = 60.0


def claims_a_second(rate: float, max_step: int, seconds: int = 900) -> float:
    """Once the size of claims has settled."""
    world = World(1, Load([rate], begin=0.001), QUICK, seconds)
    world.pairs[0].core.configure(DEFAULT_STEP, max_step)
    world.run(float(seconds))
    return sum(world.seen.claims[seconds // 3 :]) / (seconds - seconds // 3)


@pytest.mark.parametrize("rate", [10.0**power for power in range(1, 8)])
def test_the_claims_of_a_tag_do_not_grow_with_its_rate(rate):
    """From 10 to 10 million ids a second: one a minute, as long as its `max_step` lasts that long."""
    wide, usual = claims_a_second(rate, 100_000_000), claims_a_second(rate, DEFAULT_MAX_STEP)

    assert wide <= max(1 / RUNWAY, rate / 100_000_000) * 1.1
    assert usual <= max(1 / RUNWAY, rate / DEFAULT_MAX_STEP) * 1.1


def test_control_steps_of_one_size_make_claims_grow():
    world = World(1, Load([10_000.0], begin=0.001), QUICK, 100)
    world.pairs[0].core.configure(DEFAULT_STEP, DEFAULT_STEP)
    world.run(100.0)

    assert sum(world.seen.claims) > 900


def test_a_process_of_a_hundred_tags_starts_with_a_few_statements():
    world = World(1, Load([5.0] * 100, begin=0.0), QUICK, 10)
    world.run(5.0)

    assert sum(world.seen.claims) == 100
    assert sum(world.seen.statements) < 5


def test_several_that_start_at_once_leave_out_what_another_one_holds():
    world = World(10, Load([5.0] * 100, begin=0.0), QUICK, 10)
    world.run(5.0)

    assert sum(world.seen.claims) == 1000
    assert sum(world.seen.statements) < 300


def test_an_outage_is_bridged_from_memory_and_asked_once_a_second():
    away = (100.0, 160.0)
    world = World(2, Load(popular(20, 200.0), away=away), QUICK, 300)
    world.run(300.0)
    seen = world.seen

    assert [wait for at, wait in seen.waits if at > 1] == []
    assert max(seen.failures) <= 2 * 20
    assert sum(seen.statements[100:160]) == 0


def test_after_an_outage_that_is_too_long_ids_go_on_at_once():
    world = World(1, Load([2000.0], away=(100.0, 400.0)), QUICK, 500)
    world.run(500.0)
    (wait,) = [(at, wait) for at, wait in world.seen.waits if at > 1]

    assert 100 < wait[0] < 400 < sum(wait) < 402


def test_a_spike_is_one_of_its_own_length():
    load = Load([10.0], factors=((0.0, 1.0), (10.0, 10.0), (20.0, 1.0)))

    assert load.used_up(0.0, 10.0, 50) == 5.0
    assert load.used_up(5.0, 10.0, 150) == 11.0
    assert load.used_up(5.0, 10.0, 1050 + 100) == 30.0


def test_a_share_of_the_processes_stands_for_all():
    """The server is as busy, and callers wait as long."""
    slow = Times(latency=(0.001,), statement=0.01, row=0.001)
    longest = []
    for count, weight in ((40, 1.0), (10, 4.0)):
        world = World(count, Load([2.0] * 20, begin=0.1), slow, 20, weight=weight)
        world.run(20.0)
        longest.append(phase(world, "start", 0, 20).longest_wait)

    assert 0.7 < longest[0] / longest[1] < 1.4


def test_the_processes_of_a_host_through_one_claimer_claim_each_row_once(monkeypatch):
    """The load is the same, and the rows that a cold start raises are a sixteenth."""
    monkeypatch.setattr(capacity, "PROCESSES", 64)
    monkeypatch.setattr(capacity, "TAGS", 20)
    monkeypatch.setattr(capacity, "IDS_A_SECOND", 6400)
    alone, shared = (capacity.model(1.0, QUICK, seconds=2, host=host) for host in (1, 16))

    assert (len(alone.pairs), len(shared.pairs), shared.weight) == (64 * 20, 4 * 20, 1.0)
    assert sum(pair.rate for pair in alone.pairs) == pytest.approx(sum(pair.rate for pair in shared.pairs))
    assert (sum(alone.seen.claims), sum(shared.seen.claims)) >= (64 * 20, 4 * 20)
    assert sum(shared.seen.claims) < sum(alone.seen.claims) / 8


def test_claimers_that_are_not_simulated_count_all_the_same(monkeypatch):
    monkeypatch.setattr(capacity, "PROCESSES", 100)
    monkeypatch.setattr(capacity, "TAGS", 2)
    world = capacity.model(0.5, QUICK, seconds=1, host=16)

    assert (capacity.claimers_of(16), len(world.pairs) // 2, world.weight) == (7, 4, 7 / 4)


def test_the_command_says_how_many_claimers_there_are(monkeypatch, tmp_path):
    monkeypatch.setattr(capacity, "PROCESSES", 32)
    monkeypatch.setattr(capacity, "TAGS", 2)
    done = CliRunner().invoke(capacity.main, ["--host", "16", "--share", "1", "--to", str(tmp_path)])

    assert done.exit_code == 0, done.output
    assert "32 processes through 2 claimers, 16 processes each, 2 tags each" in done.output
    assert json.loads((tmp_path / "capacity.json").read_text())["host"] == 16


def test_the_phases_are_told():
    world = World(2, Load([10.0, 5.0]), QUICK, 20)
    world.run(20.0)
    told = columns(rows_of([phase(world, "start", 0, 20)]))

    assert told.splitlines()[1].split()[0] == "start"
    assert world.in_memory > 0

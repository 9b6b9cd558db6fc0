"""Years of failovers of one tag, by plain numbers: what the rule promises, and that it is needed for that.

No process, statement or database: a tag gives ids at a steady rate, a segment at a time to each of its processes. Now
and then its server dies, and one goes on that knows the rows as they were a while ago. That may be before the failover
before, which is forgotten then as well. The ids that are given between two failovers are one window of numbers; no two
windows may overlap.
"""

import random
from dataclasses import dataclass, replace
from itertools import pairwise
from unittest.mock import patch

import pytest
from support.distinct import none_twice

from allocator.schemes import failover
from allocator.schemes.failover import PERIOD_MS, crossing, reach_of
from allocator.schemes.tag import Tag

SECOND, HOUR, YEAR = 1000, 3600 * 1000, 365 * 24 * 3600 * 1000
BEGIN = 1_800_000_000_000
"""When the tag is made, in milliseconds since 1970."""
YEARS = 2000


@dataclass(frozen=True)
class Traffic:
    """rate: ids a second; processes: each holds a segment that lasts `runway` seconds, and the next one."""

    rate: float
    processes: int = 1
    step: int = 1000
    max_step: int = 1_000_000
    runway: float = 60.0

    @property
    def segment(self) -> int:
        return min(self.max_step, max(self.step, int(self.rate * self.runway / self.processes)))


@dataclass(frozen=True)
class Era:
    """What one server does from a failover to the next one."""

    since: int
    row: Tag
    traffic: Traffic
    knew: int = BEGIN
    """The moment up to which its server knew what the one before had done."""

    def row_at(self, now: int) -> Tag:
        """The row after the claims up to this moment: each process has taken a segment more than it has given."""
        segment, rate = self.traffic.segment, self.traffic.rate
        refills = int(rate * max(0, now - self.since) / 1000) // segment
        claimed = (refills + self.traffic.processes) * segment
        claimed_at = self.since + int(refills * segment / rate * 1000)
        return replace(self.row, max_value=self.row.max_value + claimed, claimed_at=claimed_at)


class Years:
    """The tag and its servers. `windows` are what was given between two failovers, from the first on."""

    def __init__(self, traffic: Traffic, limit: int = Tag("").limit) -> None:
        row = Tag("order", step=traffic.step, max_step=traffic.max_step, limit=limit)
        self.eras = [Era(BEGIN, row, traffic)]
        self.windows: list[tuple[int, int]] = []

    def known_at(self, then: int) -> Tag:
        """The row as somebody knows it who was told nothing later."""
        era = next((era for era in reversed(self.eras) if era.since <= then), self.eras[0])
        return era.row_at(max(then, era.since))

    def end(self, now: int) -> None:
        last = self.eras[-1]
        self.windows.append((last.row.max_value, last.row_at(now).max_value))

    def fail_over(self, now: int, lag: int) -> None:
        """A server goes on that knows what was `lag` milliseconds ago."""
        self.end(now)
        known = self.known_at(now - lag)
        skip = crossing(known, now)
        row = replace(known, max_value=known.max_value + skip, skipped=known.skipped + skip)
        self.eras.append(Era(now, row, self.eras[-1].traffic, now - lag))

    def overlap(self) -> int:
        """How many numbers are in two windows."""
        return sum(max(0, before[1] - after[0]) for before, after in pairwise(sorted(self.windows)))


def is_promised(years: Years, now: int, lag: int) -> bool:
    """Whether a failover now keeps to what the rule says of itself: how much may be forgotten, and how fast it grew."""
    known, traffic = years.known_at(now - lag), years.eras[-1].traffic
    reach = reach_of(known)
    if years.eras[-1].since <= now - lag:
        return years.eras[-1].row_at(now).max_value - known.max_value < reach
    if now - known.claimed_at >= PERIOD_MS:
        return False  # the moment counts from 0 again
    if now - lag < years.eras[-2].since or now - lag > years.eras[-1].knew:
        return False  # the server before knew of a failover that is forgotten here, or less than this one
    since = years.eras[-1].since
    given = years.eras[-1].row_at(now).max_value - years.eras[-1].row.max_value
    further = reach * (now - since) // PERIOD_MS
    return given + traffic.processes * traffic.segment < further


def drawn(seed: int) -> Years:
    """A year of a tag, with failovers that keep to the promise."""
    dice = random.Random(f"years {seed}")
    traffic = Traffic(10 ** dice.uniform(-3, 4), processes=dice.choice((1, 2, 5, 20)))
    years = Years(traffic, dice.choice((2**63 - 1, 2**63 - 1, 2**53 - 1)))
    now = BEGIN
    for _ in range(dice.randint(1, 100)):
        pause = dice.choice((10 * SECOND, 60 * SECOND, HOUR, YEAR // 50))
        now += max(SECOND, int(pause * dice.uniform(0.2, 2)))
        lag = min(now - BEGIN, int(dice.choice((SECOND, 10 * SECOND, 300 * SECOND)) * dice.random()))
        if is_promised(years, now, lag):
            years.fail_over(now, lag)
    years.end(now + HOUR)
    return years


# -- what is proven


def test_no_number_is_in_two_windows():
    found = [drawn(seed) for seed in range(YEARS)]

    none_twice(seed for seed, years in enumerate(found) if years.overlap())
    assert sum(len(years.windows) for years in found) > 10 * YEARS
    assert sum(forgotten(years) for years in found) > YEARS


def forgotten(years: Years) -> int:
    """How many failovers forgot the one before: two servers went on from one row."""
    ends = [window[0] for window in years.windows]
    return sum(later < earlier + failover.FLOOR for earlier, later in pairwise(ends))


BUSY = Traffic(rate=100.0, processes=5)


def twice(first_lag: int, second_lag: int, traffic: Traffic = BUSY, days: int = 10) -> Years:
    """Two failovers, a minute apart, after some days."""
    years = Years(traffic)
    now = BEGIN + days * 24 * HOUR
    years.fail_over(now, first_lag)
    years.fail_over(now + 60 * SECOND, second_lag)
    years.end(now + 1000 * HOUR)
    return years


def test_a_second_failover_that_knows_nothing_of_the_first_lands_above_it():
    none_twice(twice(SECOND, 90 * SECOND).overlap())


@pytest.mark.parametrize("name", ["gap", "the moment"])
def test_control_without_the_rule_numbers_are_in_two_windows(name):
    of_nothing = {"gap": ("gap", lambda tag, reach, at: 0), "the moment": ("PERIOD_MS", 10**18)}
    with patch.object(failover, *of_nothing[name]):
        assert twice(SECOND, 90 * SECOND).overlap() > 0


def test_control_of_what_is_not_promised_more_forgotten_than_ever_given():
    years = Years(Traffic(rate=50_000.0))
    now = BEGIN + 600 * SECOND
    assert not is_promised(years, now, 500 * SECOND)
    years.fail_over(now, 500 * SECOND)
    years.end(now + HOUR)

    assert years.overlap() > 0


def test_control_of_what_is_not_promised_faster_than_the_moment_between_two_failovers():
    years = twice(SECOND, 90 * SECOND, Traffic(rate=20_000.0), days=0)

    assert years.overlap() > 0

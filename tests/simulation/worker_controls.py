"""The lease rule broken on purpose, one part at a time: the simulated pods must meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

from allocator.schemes import worker_number_lease as rule
from allocator.schemes.worker_number_lease import Clocks, NumberLease, NumberRow, Tenure
from simulation.workers import FOLLOWED, LENGTH, Rules

released, left = rule.released, Tenure.left


def by_its_own(tenure: Tenure, now: Clocks) -> float:
    left = tenure._end - now.own
    tenure.lost |= left <= 0
    tenure.used_ms = max(tenure.used_ms, now.wall_ms)
    return left


def by_the_wall(tenure: Tenure, now: Clocks) -> float:
    left = (tenure._until_ms - now.wall_ms) / 1000
    tenure.lost |= left <= 0
    tenure.used_ms = max(tenure.used_ms, now.wall_ms)
    return left


def whenever_granted(tenure: Tenure, asked: Clocks, now: Clocks) -> None:
    tenure.lost = False
    tenure._end, tenure._until_ms = now.own + LENGTH / 1000, now.wall_ms + LENGTH


def before_its_begin(tenure: Tenure, now: Clocks) -> float:
    tenure._from_ms = min(tenure._from_ms, now.wall_ms)
    return left(tenure, now)


def at_once(row: NumberRow, lease: NumberLease, used_ms: int) -> NumberRow | None:
    """Says that it was never used."""
    fresh = released(row, lease, used_ms)
    return replace(fresh, used_until_ms=0) if fresh else None


class Control(NamedTuple):
    """patches: of the rule, by class or module and name. seed: of a world in which it shows, where few do."""

    patches: dict[tuple[Any, str], Any] = {}
    rules: Rules = FOLLOWED
    seed: int = 0


CONTROLS: dict[str, Control] = {
    "taken at its end, and not a length later": Control(
        {(rule, "is_over"): lambda row, at: not row.holder or at > row.until_ms},
        seed=58,
    ),
    "no wait after a failover": Control({(rule, "check_moved"): lambda moved_at, claim, at: None}),
    "taken whatever the clock on the wall says": Control(
        {(rule, "is_free"): lambda row, wall, at: rule.is_over(row, at)}
    ),
    "given back as if it had never been used": Control({(rule, "released"): at_once}),
    "a clock far ahead of the database's": Control({(rule, "is_near"): lambda wall, length, at: True}, seed=881),
    "the end counted from the answer": Control(rules=Rules(counts_from_the_request=False)),
    "the clock of the process ignored": Control({(Tenure, "left"): by_the_wall}),
    "the clock on the wall ignored": Control({(Tenure, "left"): by_its_own}),
    "used before its begin": Control({(Tenure, "left"): before_its_begin}),
    "a renewal that came after the end": Control({(Tenure, "renewed"): whenever_granted}),
    "taken as it was read, not as it is": Control(rules=Rules(compares_renewals=False)),
    "taken on another server than was read": Control(rules=Rules(takes_on_the_known_run=False), seed=47),
    "a server's clock that steps further than a length": Control(rules=Rules(longest_step=5 * LENGTH), seed=121),
}


@contextmanager
def broken(control: Control) -> Iterator[Rules]:
    """For as long as this rule is broken."""
    with ExitStack() as stack:
        for (place, name), value in control.patches.items():
            stack.enter_context(patch.object(place, name, value))
        yield control.rules

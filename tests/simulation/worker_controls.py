"""The lease rule broken on purpose, one part at a time: the simulated pods must meet."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from allocator.schemes import worker_number_lease as rule
from allocator.schemes.shared.retry_pace import Wait
from allocator.schemes.worker_number_lease import Clocks, NumberLease, NumberRow, Renewal, Tenure
from simulation import lease_rows
from simulation.patches import Patches
from simulation.workers import FOLLOWED, LENGTH, Rules

released, left, want = lease_rows.released, Tenure.left, Tenure.want


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


def at_once(row: NumberRow, lease: NumberLease, used_ms: int, at_ms: int) -> NumberRow | None:
    """Says that it was never used."""
    fresh = released(row, lease, used_ms, at_ms)
    return replace(fresh, used_until_ms=0) if fresh else None


def after_its_end(tenure: Tenure, now: Clocks) -> Renewal | Wait | None:
    """Renews a lease that has ended, too."""
    step = want(tenure, now)
    return Renewal(now) if step is None else step


class Control(NamedTuple):
    """patches: of the rule, by class or module and name."""

    patches: Patches = {}
    rules: Rules = FOLLOWED


CONTROLS: dict[str, Control] = {
    "taken at its end, and not a length later": Control(
        {(rule, "is_over"): lambda row, at: not row.holder or at > row.until_ms},
    ),
    "no wait after a failover": Control({(rule, "check_moved"): lambda moved_at, claim, at: None}),
    "a wait of one length after a failover": Control({(rule, "AFTER_MOVE"): 1}),
    "a lease that has ended is renewed": Control(
        {(Tenure, "want"): after_its_end, (Tenure, "renewed"): whenever_granted}
    ),
    "a new slot that leases at once": Control(rules=Rules(new_slot_waits=False)),
    "a number of another slot": Control(rules=Rules(keeps_to_its_slot=False)),
    "an old server that answers for five lengths": Control(rules=Rules(old_answers=5 * LENGTH)),
    "taken whatever the clock on the wall says": Control(
        {(rule, "is_free"): lambda row, wall, at: rule.is_over(row, at)}
    ),
    "given back as if it had never been used": Control({(lease_rows, "released"): at_once}),
    "a clock far ahead of the database's": Control({(rule, "is_near"): lambda wall, length, at: True}),
    "the end counted from the answer": Control(rules=Rules(counts_from_the_request=False)),
    "the clock of the process ignored": Control({(Tenure, "left"): by_the_wall}),
    "the clock on the wall ignored": Control({(Tenure, "left"): by_its_own}),
    "used before its begin": Control({(Tenure, "left"): before_its_begin}),
    "a renewal that came after the end": Control({(Tenure, "renewed"): whenever_granted}),
    "taken as it was read, not as it is": Control(rules=Rules(compares_renewals=False)),
    "taken on another server than was read": Control(rules=Rules(takes_on_the_known_run=False)),
    "a server's clock that steps further than a length": Control(rules=Rules(longest_step=5 * LENGTH)),
}

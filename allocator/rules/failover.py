"""The epoch of a row: on which run of which server it was written last.

A standby that is promoted, a backup that is restored and a server that lost its newest commits have one thing in
common: another run of a server goes on, and may have forgotten claims whose ids are in use. So a claim holds only
where the row was written on the run that carries it out. On another one it leaves a margin out, above all that may be
forgotten, or it is refused, as each tag says. A restored disk cannot be told from a restart, which counts as well.

On a cluster, where several servers commit together, the row keeps the runs of all of them, separated by commas:
they may take turns without a margin, and only one that is new adds it.

How much is left out. Two servers that go on from one row must not go on at one place, and a backup may be old. So a
margin is what a tag gives in an hour at the most, and a row that crosses is raised by one margin at least, and above a
line that grows by one margin an hour from 2026 on. As long as a tag stays below its line, as one does that began low
and keeps to its margin, every crossing lands above all that was ever claimed. A line that would take more than an
eighth of the ids below the limit is left, and the margin alone counts.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from allocator.errors import InvalidSetting, ServerReplaced
from allocator.schemes.checks import MAX_ID, MAX_STEP, check_whole, quoted
from allocator.schemes.tag import DEFAULT_MARGIN, Tag

REFUSE = -1
"""The margin of a tag that stops on another run, until it is repaired."""

Margin = int | Literal["refuse"]

CLAIMS_LEFT_OUT = 1000
"""The margin of a tag, unless it is said: so many of its greatest claims, and a billion at least."""

MARGINS = 100
"""So many fit below a low limit; but a margin is never less than the greatest claim."""

LINE_FROM = 1_767_225_600
"""2026-01-01T00:00:00Z, where the lines of all tags begin at 0; in seconds since 1970."""
HOUR = 3600

MOST_OF_ALL = 8
"""A line may take one part in so many of the ids."""

MOST_RUNS = 8
"""So many are kept, of a cluster."""


class Here(NamedTuple):
    """Where a row would be written now, held against where it `was` written last.

    server: what the database must still say of itself when the row is written.
    epoch: what the row says from then on.
    same: it was written on this run, or never.
    at: the clock of the server, in seconds since 1970.
    """

    was: str
    server: str
    epoch: str
    same: bool
    at: int = 0


class Crossing(NamedTuple):
    """A claim that takes a row to the run that is `here`, leaving out so many numbers."""

    here: Here
    skip: int


def margin_of(value: object, max_step: int, limit: int = MAX_ID) -> int:
    """The column's value for what a caller gave; None means the usual, of a tag with this `max_step` and `limit`."""
    if value is None:
        usual = max(DEFAULT_MARGIN, CLAIMS_LEFT_OUT * check_whole("max_step", max_step, 1, MAX_STEP))
        return min(usual, max(check_whole("limit", limit, 1, MAX_ID) // MARGINS, max_step))
    if value == "refuse":
        return REFUSE
    if isinstance(value, str):
        raise InvalidSetting(f'margin must be a number of ids or "refuse", got {quoted(value)}')
    return check_whole("margin", value, 0, MAX_ID)


def public_margin(margin: int) -> Margin:
    return "refuse" if margin == REFUSE else margin


def plain(was: str, run: str, at: int = 0) -> Here:
    """On a server that writes alone."""
    return Here(was, run, run, was in {"", run}, at)


def one_of_several(was: str, run: str, since: int, several: bool, at: int = 0) -> Here:
    """Where a run is a server and its start in seconds, `A1B2C3D4-1763750000`.

    since: the start in truth; what a run says drifts upwards, so that it may be later, and never earlier.
    several: servers commit together, and the row keeps the runs of them all.
    """
    server = run.partition("-")[0]
    before = [other for other in was.split(",") if other]
    same = not was or any(is_of(other, server) and since <= start_of(other) <= start_of(run) for other in before)
    others = [other for other in before if several and not is_of(other, server)]
    return Here(was, server, ",".join([*others, run][-MOST_RUNS:]), same, at)


def is_of(run: str, server: str) -> bool:
    return run.startswith(f"{server}-")


def start_of(run: str) -> int:
    start = run.partition("-")[2]
    return int(start) if start.isdecimal() else 0


def cross(tag: Tag, here: Here) -> Crossing:
    """How a tag goes on here. Raises `ServerReplaced` where it must not, or cannot."""
    if here.same:
        return Crossing(here, 0)
    if tag.margin == REFUSE:
        raise replaced(tag, here, "the tag refuses that")
    skip = left_out(tag, tag.margin, here.at)
    if skip > tag.limit - tag.max_value:
        raise replaced(tag, here, f"fewer than its margin of {tag.margin} ids remain")
    return Crossing(here, skip)


def left_out(tag: Tag, margin: int, at: int) -> int:
    """How many numbers are left out of a tag that crosses at this second: its margin, more as the hour goes on, and all
    below the line.

    One margin alone would not do for two that cross from one row within the hour, as when a server is killed twice and
    has forgotten the first time: both would go on at one place.
    """
    span = margin * max(1, tag.lane.step)
    line = span * max(0, at - LINE_FROM) // HOUR
    further = span * (at % HOUR) // HOUR if 2 * span <= tag.limit - tag.max_value else 0
    return max(span + further, line - tag.max_value if line <= tag.limit // MOST_OF_ALL else 0)


def repaired(tag: Tag, above: int | None, here: Here) -> int:
    """From where on a tag goes on that an operator takes here: `above`, or as it would cross by its margin."""
    if above is not None:
        return check_whole("above", above, tag.max_value, tag.limit, hint=f" for tag {tag.name!r}")
    skip = left_out(tag, tag.margin if tag.margin > 0 else margin_of(None, tag.max_step, tag.limit), here.at)
    if skip > tag.limit - tag.max_value:
        raise InvalidSetting(
            f"tag {tag.name!r} has {tag.limit - tag.max_value} ids left, fewer than the {skip} that would be left out; "
            "say where it goes on, above every id in use: --above N"
        )
    return tag.max_value + skip


def replaced(tag: Tag, here: Here, why: str) -> ServerReplaced:
    return ServerReplaced(
        f"tag {tag.name!r} was last claimed on {tag.epoch}, and this is {here.epoch}: after a failover, a restore or a "
        f"restart ids above {tag.max_value} may be forgotten, and {why}; when nothing uses the old server any more: "
        f"allocator tags repair {tag.name}"
    )

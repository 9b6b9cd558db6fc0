"""`allocator takeover start|status|finish|back`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from allocator.cli.options import database_options, open_database, option, options
from allocator.cli.output import REFUSED, confirm, show, yes_option
from allocator.database import takeover as work
from allocator.database.store import Database
from allocator.database.takeover import Seen
from allocator.errors import InvalidSetting
from allocator.rules.takeover_ranges import (
    REPLICA,
    Ranges,
    a_day,
    is_begun,
    is_finished,
    issued,
    lower_range_ends_in,
    notes,
    plan,
    problems,
    proof,
    ranges_after,
    seconds_of,
    still_writes,
)
from allocator.schemes.checks import check_tag

PATIENCE = 60.0
"""Seconds to try for the locks. Each try is short, so that writers hardly wait."""

dry_option = click.option("--dry-run", "dry", is_flag=True, help="Print the plan, and change nothing.")
change_options = options(dry_option, yes_option, database_options)


def parse_seconds(context: click.Context, parameter: click.Parameter, given: str) -> float:
    try:
        return seconds_of(given)
    except InvalidSetting as error:
        raise click.BadParameter(str(error)) from None


@click.group()
def takeover() -> None:
    """Take over a column with ids of its own, while it is written."""


@takeover.command("start")
@click.argument("place", metavar="TABLE.COLUMN")
@click.option("--tag", required=True, help="Tag that gives the new ids; created if it is missing.")
@option("--for", "seconds", default="7d", callback=parse_seconds, help="Time for both ways to write.")
@option("--watch", default=60.0, help="Seconds over which the rate is measured.")
@change_options
def start(place: str, tag: str, seconds: float, watch: float, dry: bool, sure: bool, url: str) -> None:
    """Give TABLE.COLUMN a second range of ids: a tag's.

    From then on writers that insert the ids of the tag, and writers that insert none, can work side by side.

    \b
        allocator takeover start orders.id --tag order
        allocator takeover status orders.id
        allocator takeover finish orders.id
    """
    check_tag(tag)
    with opened(url) as database:
        seen = database.run(work.see, place, tag)
        if is_begun(seen.takeover, seen.looked, seen.tag, tag):
            report(seen, "started before")
            return
        work.check_alone(database)
        before = seen.looked.given
        if watch > 0:
            click.echo(f"measuring the rate for {watch:g} seconds", err=True)
            time.sleep(watch)
            seen = database.run(work.see, place, tag)
        per_day = a_day(before, seen.looked.given, watch)
        ranges = plan(seen.looked, per_day, seconds)
        statements = work.native(database.dialect).start(seen.looked, ranges)
        rate = f", and gets {per_day:,.0f} ids a day" if watch > 0 else ""
        about = [f"{seen.looked.place} ({seen.looked.type}) is at {seen.looked.reached:,}{rate}"]
        if settled(seen, tag, [*about, *notes(seen.looked)], ranges, statements, dry, sure):
            work.carry_out(database, work.start, seen, tag, ranges)
            report(database.run(work.see, place), "started")


@takeover.command("status")
@click.argument("place", metavar="TABLE.COLUMN")
@database_options
def status(place: str, url: str) -> None:
    """Print both ranges, and the proof that they cannot meet.

    Exit code 1 if they could.
    """
    with opened(url) as database:
        seen = look(database, place)
        is_sound = report(seen, "")
        database.run(work.note, seen.known, seen.looked.given, seen.now_ms)
    if not is_sound:
        click.get_current_context().exit(REFUSED)


@takeover.command("finish")
@click.argument("place", metavar="TABLE.COLUMN")
@option("--idle", default="10m", callback=parse_seconds, help="Time without a write of the old way.")
@change_options
def finish(place: str, idle: float, dry: bool, sure: bool, url: str) -> None:
    """End the old way: an insert without an id fails.

    Refuses while the column's own counter moves.
    """
    with opened(url) as database:
        seen = look(database, place)
        found = seen.known
        if is_finished(found):
            report(seen, "finished before")
            return
        database.run(work.note, found, seen.looked.given, seen.now_ms)
        if why := still_writes(found, seen.looked.given, seen.now_ms, idle):
            raise InvalidSetting(why)
        statements = work.native(database.dialect).finish(seen.looked, found)
        about = [f"the counter of {found.place} ends at {seen.looked.given:,}"]
        if settled(seen, found.tag, about, None, statements, dry, sure):
            work.carry_out(database, work.finish, seen, found, idle)
            report(database.run(work.see, place), "finished")


@takeover.command("back")
@click.argument("place", metavar="TABLE.COLUMN")
@option("--for", "seconds", default="7d", callback=parse_seconds, help="Time until the tag may end.")
@change_options
def back(place: str, seconds: float, dry: bool, sure: bool, url: str) -> None:
    """Give TABLE.COLUMN back to its own counter.

    The counter goes on above every id of the tag, which ends.
    """
    with opened(url) as database:
        seen = look(database, place)
        found = seen.known
        if found.state == "given back":
            report(seen, "given back before")
            return
        ranges = ranges_after(found, seen.tag, seen.looked, seconds, seen.now_ms)
        statements = work.native(database.dialect).back(seen.looked, found, ranges)
        about = [f"{found.place} goes back to its own counter, and tag {found.tag!r} ends"]
        if settled(seen, found.tag, about, ranges, statements, dry, sure):
            work.carry_out(database, work.back, seen, found, ranges)
            report(database.run(work.see, place), "given back")


# -- what the commands share


@contextmanager
def opened(url: str) -> Iterator[Database]:
    with open_database(url, PATIENCE) as database:
        database.check_schema()
        yield database


def look(database: Database, place: str) -> Seen:
    seen = database.run(work.see, place)
    if seen.looked.is_replica:  # where an administrator may write all the same
        raise InvalidSetting(REPLICA)
    return seen


def settled(
    seen: Seen, tag: str, about: Sequence[str], ranges: Ranges | None, statements: Sequence[str], dry: bool, sure: bool
) -> bool:
    """Print the plan; whether to carry it out."""
    lines = [*about, *(lines_of(ranges, tag) if ranges else ()), *(f"  {one};" for one in statements)]
    if dry:
        given = ranges_to_json(ranges) if ranges else {}
        show({"column": seen.looked.place, "tag": tag, **given, "statements": list(statements)}, "\n".join(lines))
        return False
    click.echo("\n".join(lines), err=True)
    confirm(f"{seen.looked.place} will be changed", sure)
    return True


def report(seen: Seen, done: str) -> bool:
    """Print ranges, rows, and the proof that the ranges cannot meet; whether it holds."""
    found = seen.known
    wrong = problems(found, seen.tag, seen.looked, seen.greatest)
    days = lower_range_ends_in(found, seen.tag, seen.looked.given, seen.now_ms) if found.state != "finished" else None
    still = (seen.now_ms - found.given_at) / 1000 if seen.looked.given == found.given else 0.0
    of_counter, of_tag = issued(found, seen.tag, seen.looked.given)
    about = {
        "column": found.place,
        "tag": found.tag,
        "state": found.state,
        **ranges_to_json(found.ranges),
        "counter": str(seen.looked.given),
        "counter_still_for": round(still, 3),
        "issued": {"counter": str(of_counter), "tag": str(of_tag)},
        "days_left": days,
        "problems": wrong,
    }
    lines = [f"{found.place}: {done or found.state}", *lines_of(found.ranges, found.tag)]
    if found.state != "finished":
        moved = "moved since the last look" if still == 0 else f"has stood still for {still:,.0f} seconds"
        lines.append(f"ids issued since the start, at most: {of_counter:,} the old way, {of_tag:,} by the tag")
        lines.append(f"the counter is at {seen.looked.given:,}, and {moved}")
    if days is not None:
        lines.append(f"the lower range ends in {days:,.1f} days at this rate")
    lines += [f"error: {one}" for one in wrong] or [f"no id comes twice: {proof(found)}"]
    show(about, "\n".join(lines))
    return not wrong


def lines_of(ranges: Ranges, tag: str) -> list[str]:
    return [
        f"its own counter: {span(ranges.native_first, ranges.native_last)}",
        f"tag {tag}: {span(ranges.tag_first, ranges.tag_last)}",
    ]


def span(first: int, last: int) -> str:
    return f"{first:,} to {last:,}" if first <= last else "no ids"


def ranges_to_json(ranges: Ranges) -> dict[str, list[str]]:
    first, last, tag_first, tag_last = map(str, ranges)
    return {"counter_range": [first, last], "tag_range": [tag_first, tag_last]}

"""`allocator takeover start|status|finish|back`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from allocator.cli.options import database_options, open_database, option, options
from allocator.cli.output import REFUSED, confirm, show, yes_option
from allocator.database.columns import takeovers as work
from allocator.database.columns.takeovers import Status, note
from allocator.database.store import Database
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
from allocator.schemes.shared.argument_checks import check_tag

PATIENCE = 60.0
"""Seconds of retries for the locks. Each try is short, so that writers hardly wait."""

dry_option = click.option("--dry-run", "dry", is_flag=True, help="Print the plan, and change nothing.")
change_options = options(dry_option, yes_option, database_options)


def parse_seconds(context: click.Context, parameter: click.Parameter, given: str) -> float:
    try:
        return seconds_of(given)
    except InvalidSetting as error:
        raise click.BadParameter(str(error)) from None


@click.group()
def takeover() -> None:
    """Let a tag take over a column while writers use it."""


@takeover.command("start")
@click.argument("place", metavar="TABLE.COLUMN")
@click.option("--tag", required=True, help="Tag that issues the new ids; created if it is missing.")
@option("--for", "seconds", default="7d", callback=parse_seconds, help="How long both counter and tag issue ids.")
@option("--watch", default=60.0, help="Seconds over which to measure the rate.")
@change_options
def start(place: str, tag: str, seconds: float, watch: float, dry: bool, sure: bool, url: str) -> None:
    """Give TABLE.COLUMN a second range of ids: a tag's.

    From then on two kinds of writers can work side by side: those that insert ids of the tag, and those that leave the
    id to the database.

    \b
        allocator takeover start orders.id --tag order
        allocator takeover status orders.id
        allocator takeover finish orders.id
    """
    check_tag(tag)
    with opened(url) as database:
        status = database.run(work.fetch_status, place, tag)
        if is_begun(status.takeover, status.facts, status.tag, tag):
            report(status, "started before")
            return
        work.check_alone(database)
        before = status.facts.given
        if watch > 0:
            click.echo(f"measuring the rate for {watch:g} seconds", err=True)
            time.sleep(watch)
            status = database.run(work.fetch_status, place, tag)
        per_day = a_day(before, status.facts.given, watch)
        ranges = plan(status.facts, per_day, seconds)
        statements = work.native(database.dialect).start(status.facts, ranges)
        rate = f", and gets {per_day:,.0f} ids a day" if watch > 0 else ""
        about = [f"{status.facts.place} ({status.facts.type}) is at {status.facts.reached:,}{rate}"]
        if settled(status, tag, [*about, *notes(status.facts)], ranges, statements, dry, sure):
            work.carry_out(database, work.start, status, tag, ranges)
            report(database.run(work.fetch_status, place), "started")


@takeover.command("status")
@click.argument("place", metavar="TABLE.COLUMN")
@database_options
def status(place: str, url: str) -> None:
    """Print both ranges, and why they cannot overlap.

    The exit code is 1 if they can.
    """
    with opened(url) as database:
        status = fetch_on_primary(database, place)
        is_sound = report(status, "")
        database.run(note, status.known, status.facts.given, status.now_ms)
    if not is_sound:
        click.get_current_context().exit(REFUSED)


@takeover.command("finish")
@click.argument("place", metavar="TABLE.COLUMN")
@option("--idle", default="10m", callback=parse_seconds, help="How long the counter must have stood still.")
@change_options
def finish(place: str, idle: float, dry: bool, sure: bool, url: str) -> None:
    """End the old way: an INSERT without an id fails.

    Refuses while the column's own counter moves.
    """
    with opened(url) as database:
        status = fetch_on_primary(database, place)
        found = status.known
        if is_finished(found):
            report(status, "finished before")
            return
        database.run(note, found, status.facts.given, status.now_ms)
        if why := still_writes(found, status.facts.given, status.now_ms, idle):
            raise InvalidSetting(why)
        statements = work.native(database.dialect).finish(status.facts, found)
        about = [f"the counter of {found.place} ends at {status.facts.given:,}"]
        if settled(status, found.tag, about, None, statements, dry, sure):
            work.carry_out(database, work.finish, status, found, idle)
            report(database.run(work.fetch_status, place), "finished")


@takeover.command("back")
@click.argument("place", metavar="TABLE.COLUMN")
@option("--for", "seconds", default="7d", callback=parse_seconds, help="How long the tag keeps ids for its writers.")
@change_options
def back(place: str, seconds: float, dry: bool, sure: bool, url: str) -> None:
    """Give TABLE.COLUMN back to its own counter.

    The counter continues above all ids of the tag, which ends.
    """
    with opened(url) as database:
        status = fetch_on_primary(database, place)
        found = status.known
        if found.state == "given back":
            report(status, "given back before")
            return
        ranges = ranges_after(found, status.tag, status.facts, seconds, status.now_ms)
        statements = work.native(database.dialect).back(status.facts, found, ranges)
        about = [f"{found.place} goes back to its own counter, and tag {found.tag!r} ends"]
        if settled(status, found.tag, about, ranges, statements, dry, sure):
            work.carry_out(database, work.back, status, found, ranges)
            report(database.run(work.fetch_status, place), "given back")


@contextmanager
def opened(url: str) -> Iterator[Database]:
    with open_database(url, PATIENCE) as database:
        database.check_schema()
        yield database


def fetch_on_primary(database: Database, place: str) -> Status:
    """Raises `InvalidSetting` on a replica."""
    status = database.run(work.fetch_status, place)
    if status.facts.is_replica:  # an administrator could write there, despite read_only
        raise InvalidSetting(REPLICA)
    return status


def settled(
    status: Status,
    tag: str,
    about: Sequence[str],
    ranges: Ranges | None,
    statements: Sequence[str],
    dry: bool,
    sure: bool,
) -> bool:
    """Print the plan, and return whether to carry it out."""
    lines = [*about, *(lines_of(ranges, tag) if ranges else ()), *(f"  {one};" for one in statements)]
    if dry:
        given = ranges_to_json(ranges) if ranges else {}
        show({"column": status.facts.place, "tag": tag, **given, "statements": list(statements)}, "\n".join(lines))
        return False
    click.echo("\n".join(lines), err=True)
    confirm(f"{status.facts.place} will be changed", sure)
    return True


def report(status: Status, done: str) -> bool:
    """Print the ranges, the ids issued, and the problems; return whether there are none."""
    found, given, now_ms = status.known, status.facts.given, status.now_ms
    wrong = problems(found, status.tag, status.facts, status.greatest)
    days = lower_range_ends_in(found, status.tag, given, now_ms) if found.state != "finished" else None
    still = (now_ms - found.given_at) / 1000 if given == found.given else 0.0
    of_counter, of_tag = issued(found, status.tag, given)
    about = {
        "column": found.place,
        "tag": found.tag,
        "state": found.state,
        **ranges_to_json(found.ranges),
        "counter": str(given),
        "counter_still_for": round(still, 3),
        "issued": {"counter": str(of_counter), "tag": str(of_tag)},
        "days_left": days,
        "problems": wrong,
    }
    lines = [f"{found.place}: {done or found.state}", *lines_of(found.ranges, found.tag)]
    if found.state != "finished":
        moved = "moved since the last check" if still == 0 else f"has stood still for {still:,.0f} seconds"
        lines.append(f"ids issued since the start, at most: {of_counter:,} the old way, {of_tag:,} by the tag")
        lines.append(f"the counter is at {given:,}, and {moved}")
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

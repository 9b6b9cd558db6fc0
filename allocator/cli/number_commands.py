"""`allocator numbers list|set|assign|audit`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import tzinfo
from itertools import chain
from shlex import quote
from typing import Any

import click
from sqlalchemy import Connection

from allocator.cli.options import database_options, open_database, option, options
from allocator.cli.output import REFUSED, CommandGroup, printable, show, show_rows, table
from allocator.database.address import address_of
from allocator.database.dialect import Dialect
from allocator.database.verbs.number_columns import Counter as Row
from allocator.database.verbs.number_columns import (
    Read,
    Source,
    fetch_counters,
    read_column,
    read_uuids,
    uuid_of,
    writing,
)
from allocator.errors import InvalidSetting
from allocator.numbers import Numbers, zone_of
from allocator.rules.gapless_audit import Found, audit, disorder, is_period, read_row, reset_of
from allocator.schemes.gapless_numbers import CALENDAR, RESETS, Group, NumberRule, first_day, place
from allocator.schemes.shared.argument_checks import split_column

SHOWN = 1000
"""Findings that are printed; all are counted."""


@click.group(cls=CommandGroup)
def numbers() -> None:
    """List, raise, assign and audit numbers without gaps."""


@numbers.command("list")
@click.argument("name", default="")
@database_options
def list_numbers(name: str, url: str) -> None:
    """Print the newest number of each scope and period. NAME limits the list."""
    with open_database(url) as database:
        found = database.run(fetch_counters, name)
    rows = [{"name": one.name, "scope": one.scope, "period": one.period, "newest": str(one.n)} for one in found]
    show_rows(rows, "name scope period newest")


def check_period(context: click.Context, parameter: click.Parameter, given: str) -> str:
    if not is_period(given):
        raise click.BadParameter(f"a year, month or day as 2026, 2026-03 or 2026-03-14; got {given!r}")
    return given


@numbers.command("set")
@click.argument("name")
@click.argument("n", type=int)
@click.option("--scope", default="", help="Scope of the numbers, such as a tenant.")
@click.option("--period", default="", callback=check_period, help="Period of the numbers: 2026, 2026-03 or 2026-03-14.")
@database_options
def set_number(name: str, n: int, scope: str, period: str, url: str) -> None:
    """Continue the numbers of NAME after N, the newest that is in use. They are never lowered.

    Stop whatever else draws these numbers first.

    \b
    Examples:
        allocator numbers set invoice 4711 --scope tenant-7 --period 2026
        allocator numbers set case 90210
    """
    made = Numbers(name, reset=reset_of([period]))

    def raise_counter(connection: Connection, dialect: Dialect) -> None:
        with dialect.transaction(connection):
            made.set(connection, n, scope=scope, at=first_day(period))

    with open_database(url) as database:
        check_restart(name, period, database.run(fetch_counters, name))
        database.run(raise_counter)
    row = {"name": name, "scope": scope, "period": period, "newest": str(n)}
    show(row, f"the next number of {place(name, scope, period)} is {n + 1}")


def check_restart(name: str, period: str, counters: Sequence[Row]) -> None:
    """Refuse a period that the existing counters do not have: no application draws from such a counter."""
    if not counters or len(period) in {len(one.period) for one in counters}:
        return
    newest = max(one.period for one in counters)
    if not newest:
        raise click.UsageError(f"the numbers of {name!r} never restart: leave out --period")
    each = reset_of(one.period for one in counters)
    raise click.UsageError(f"the numbers of {name!r} restart each {each}: give --period, as {newest}")


column_options = options(
    click.argument("column", metavar="TABLE.COLUMN"),
    click.argument("name"),
    option("--format", "template", default="{n}", help="Format of the numbers."),
    click.option("--reset", type=click.Choice(list(RESETS)), help="When the numbers restart; else as the counters do."),
    option("--year-starts", default=CALENDAR, help="First day of a fiscal year, as 04-01."),
    option("--start", type=int, default=1, help="First number of each scope and period."),
    option("--timezone", default="UTC", help="Time zone of the dates in --period-column."),
    click.option("--scope-column", "scope", metavar="C", help="Column with the scope."),
    click.option("--period-column", "period", metavar="C", help="Column with the date."),
)


@numbers.command("assign")
@column_options
@click.option("--order-column", "order", required=True, metavar="C", help="Column that orders the rows, as their key.")
@database_options
def assign_column(column: str, name: str, reset: str | None, order: str, url: str, **given: Any) -> None:
    """Number the rows of TABLE whose COLUMN is NULL, with numbers of NAME.

    A row without a scope or a date does not wait. Several may run at once.

    \b
    Example:
        allocator numbers assign invoices.number invoice
            --format 'INV-{year}-{n:05}' --reset year --scope-column tenant_id
            --period-column booked_on --order-column id
    """
    table_name, number = split_column(column)
    counters = counters_of(url, name)
    made = numbers_in(counters, name, check_reset(name, reset, counters), **given)
    scope, at = given["scope"], given["period"]
    with writing(address_of(url), table_name) as (engine, found):
        if not counters or any(one.scope == str(uuid_of(one.scope)) for one in counters):
            read_uuids(engine, found, scope)
        done = made.waiting(found, number=number, scope=scope, at=at, order_by=order).assign(engine)
    show({"numbered": done}, f"{rows_of(done)} numbered")


def counters_of(url: str, name: str) -> list[Group]:
    """The scopes and periods in which numbers of this name were drawn. A name without any may be a typing error."""
    with open_database(url) as database:
        found = database.run(fetch_counters, name)
        others = [] if found else sorted({one.name for one in database.run(fetch_counters)})
    if others:
        known = ", ".join(others[:10]) + " ..." * (len(others) > 10)
        click.echo(printable(f"no number of {name!r} was drawn yet; numbers were drawn of: {known}"), err=True)
    return [Group(one.scope, one.period) for one in found]


def check_reset(name: str, reset: str | None, counters: Collection[Group]) -> str:
    """When the numbers restart. Counted otherwise than by the application, the same number would be given twice."""
    if not counters and reset is None:
        raise click.UsageError(f"no number of {name!r} was drawn yet: give --reset, as the application does")
    each = reset_of(one.period for one in counters) if counters else reset
    if reset not in {None, each}:
        raise click.UsageError(f"--reset is {reset!r}, but the counters of {name!r} say {each!r}: leave it out")
    return str(each)


@numbers.command("audit")
@column_options
@click.option("--order-column", "order", metavar="C", help="Report numbers out of the order of this column.")
@database_options
def audit_column(
    column: str, name: str, reset: str | None, timezone: str, order: str | None, url: str, **given: Any
) -> None:
    """Find what is wrong with the numbers of NAME in TABLE.COLUMN. Changes nothing.

    \b
    gap         in no row, and not void
    duplicate   in two rows
    disorder    below the number of the row before (with --order-column)
    ahead       above the counter, which will issue it again
    unreadable  not a number of this format, scope and period

    TABLE may be a view. Leave out --scope-column and --period-column if the format holds what they do. The exit code is
    1 when something is wrong.

    \b
    Example:
        allocator numbers audit invoices.number invoice
            --format 'INV-{year}-{n:05}' --scope-column tenant_id
    """
    place = split_column(column)
    counters = counters_of(url, name)
    resets = reset or reset_of(one.period for one in counters)
    try:
        zone = zone_of(timezone)
        rule = numbers_in(counters, name, resets, timezone=zone, **given).rule
    except InvalidSetting as error:  # exit code 1 would say that something was found
        raise click.UsageError(str(error)) from error
    source = Source(*place, given["scope"], given["period"])
    found, kinds, rows = read_column(address_of(url), source, name, lambda read: judged(rule, zone, read, order))
    show({"rows": rows, "kinds": kinds, "findings": found}, text_of(found, kinds, rows))
    if found:
        sys.exit(REFUSED)


def numbers_in(
    counters: Collection[Group], name: str, reset: Any, template: str, scope: Any, period: Any, **given: Any
) -> Numbers:
    """The numbers of a column. Raises `InvalidSetting` if rows would be counted in the wrong group.

    scope, period: the columns that hold them, if any.
    """
    made = Numbers(name, format=template, reset=reset, **given)
    written = made.rule.format
    if reset != "never" and written.is_bare and not period:
        raise InvalidSetting(
            f"the numbers of {name!r} restart each {reset}: give --period-column, or a --format that has the {reset}"
        )
    if not scope and "scope" not in written.fields and any(one.scope for one in counters):
        raise InvalidSetting(f"the numbers of {name!r} have scopes: give --scope-column, or a --format with {{scope}}")
    return made


def judged(
    rule: NumberRule, zone: tzinfo, read: Read, order: str | None
) -> tuple[list[dict[str, object]], Counter[str], int]:
    """The first findings, the count of each kind, and of rows with a number."""
    counters = {Group(one.scope, one.period): one.n for one in read.counters}
    void = ((Group(one.scope, one.period), one.n) for one in read.void)
    found = audit((read_row(rule, zone, *row) for row in read.rows(None)), counters, void, start=rule.start)
    out_of_order = disorder(read_row(rule, zone, *row) for row in read.rows(order)) if order else ()
    first: list[dict[str, object]] = []
    kinds: Counter[str] = Counter()
    for one in chain(found, out_of_order):
        kinds[one.kind] += 1
        if len(first) < SHOWN:
            first.append(to_row(one, rule.name))
    return first, kinds, read.total


def text_of(found: list[dict[str, object]], kinds: Counter[str], rows: int) -> str:
    lines = [table(found, "kind scope period message")] if found else []
    if more := kinds.total() - len(found):
        lines.append(f"... and {more} more")
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "nothing was found"
    return "\n".join([*lines, f"{rows_of(rows)}: {counts}"])


def rows_of(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def to_row(one: Found, name: str) -> dict[str, object]:
    span = str(one.first) if one.first == one.last else f"{one.first} to {one.last}"
    group = "".join(f" --{what} {quote(value)}" for what, value in one.group._asdict().items() if value)
    sentences = {
        "gap": f"no row has {span}",
        "duplicate": f"several rows have {span}",
        "disorder": f"{one.first} comes after {one.last}",
        "ahead": f"the counter has not reached {span} and will issue it again; raise it with: "
        f"allocator numbers set {name} {one.last}{group}",
        "unreadable": one.text,
    }
    numbers = {"first": str(one.first), "last": str(one.last)}
    return {"kind": one.kind, **one.group._asdict(), **numbers, "message": sentences[one.kind]}

"""`allocator numbers list|set|assign|audit`."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from shlex import quote
from threading import Event
from typing import Any

import click
from sqlalchemy import Connection

from allocator.cli.options import ROWS_ZONE, database_options, open_database, option, options
from allocator.cli.output import REFUSED, CommandGroup, show, show_rows, table
from allocator.database.address import address_of
from allocator.database.dialect import Dialect, transaction
from allocator.database.verbs.gapless_number_rows import Counter as Row
from allocator.database.verbs.gapless_number_rows import fetch_counters, forget_rule
from allocator.database.verbs.number_columns import (
    Source,
    audit_rows,
    read_moments,
    read_uuids,
    snapshot,
    uuid_of,
    writing,
)
from allocator.errors import InvalidSetting
from allocator.numbers import Numbers, zone_of
from allocator.schemes.gapless_audit import Found
from allocator.schemes.gapless_numbers import RESETS, first_day, place, reset_of, settings_in
from allocator.schemes.shared.argument_checks import split_column

SHOWN = 1000
"""Findings that are printed; all are counted."""


@click.group(cls=CommandGroup)
def numbers() -> None:
    """Number invoices and their like without gaps.

    NAME is that of `Numbers("invoice")` in the application, which draws the numbers in its own transactions.
    """


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
    try:
        reset_of(given)
    except ValueError:
        raise click.BadParameter(f"a year, month or day as 2026, 2026-03 or 2026-03-14; got {given!r}") from None
    return given


@numbers.command("set")
@click.argument("name")
@click.argument("n", type=int, required=False)
@click.option("--reformat", is_flag=True, help="In place of N: keep the format, reset and zone of the next draw.")
@click.option("--scope", default="", help="Scope of the numbers, such as a tenant.")
@click.option("--period", default="", callback=check_period, help="Period of the numbers: 2026, 2026-03 or 2026-03-14.")
@database_options
def set_number(name: str, n: int | None, reformat: bool, scope: str, period: str, url: str) -> None:
    """Continue the numbers of NAME after N, the newest that is in use. They are never lowered.

    Its counters keep format, reset, fiscal year and time zone from the first draw, and refuse others. With --reformat
    they keep what draws next.

    Stop whatever else draws these numbers first.

    \b
    Examples:
        allocator numbers set invoice 4711 --scope tenant-7 --period 2026
        allocator numbers set case 90210
        allocator numbers set invoice --reformat
    """
    if reformat == (n is not None) or (reformat and (scope or period)):
        raise click.UsageError("give N, or --reformat without a scope and a period")
    if n is None:
        with open_database(url) as database:
            count = database.run(forget_rule, name)
        show({"name": name, "counters": count}, f"{count} counters of {name!r} keep what draws next")
        return
    made = Numbers(name, reset=reset_of(period))

    def raise_counter(connection: Connection, dialect: Dialect) -> None:
        with transaction(connection, dialect):
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
    raise click.UsageError(f"the numbers of {name!r} restart each {reset_of(newest)}: give --period, as {newest}")


column_options = options(
    click.argument("column", metavar="TABLE.COLUMN"),
    click.argument("name"),
    click.option("--format", help="Format of the numbers; else as the counters keep it."),
    click.option("--reset", type=click.Choice(list(RESETS)), help="When the numbers restart; else as the counters do."),
    click.option("--year-starts", help="First day of a fiscal year, as 04-01; else as the counters keep it."),
    option("--start", type=int, default=1, help="First number of each scope and period."),
    click.option("--timezone", help="Time zone of the dates in --period-column; else as the counters keep it."),
    click.option("--scope-column", "scope", metavar="C", help="Column with the scope."),
    click.option("--period-column", "period", metavar="C", help="Column with the date."),
)


@numbers.command("assign")
@column_options
@click.option("--order-column", "order", required=True, metavar="C", help="Column that orders the rows, as their key.")
@click.option("--follow", is_flag=True, help="Number rows as they are committed, until SIGTERM or Ctrl-C.")
@click.option("--every", type=float, default=0.1, help="Seconds between two looks of --follow.")
@database_options
def assign_column(column: str, name: str, order: str, follow: bool, every: float, url: str, **given: Any) -> None:
    """Number the rows of TABLE whose COLUMN is NULL as NAME.

    A row without a scope or a date does not wait. Several may run at once.

    \b
    Examples:
        allocator numbers assign event.position event.position --reset never
            --order-column id --follow
        allocator numbers assign invoices.number invoice
            --scope-column tenant_id --period-column booked_on --order-column id
    """
    table_name, number = split_column(column)
    counters = counters_of(url, name)
    if not counters and given["reset"] is None:
        raise click.UsageError(f"no counter keeps the reset of {name!r}: give --reset, as the application does")
    made = numbers_in(counters, name, **given)
    scope, at = given["scope"], given["period"]
    with writing(address_of(url), table_name) as (engine, found):
        read_moments(found, at, zone_of_rows())
        if not counters or any(one.scope == str(uuid_of(one.scope)) for one in counters):
            read_uuids(engine, found, scope)
        waiting = made.waiting(found, number=number, scope=scope, at=at, order_by=order)
        done = waiting.follow(engine, until_stopped(), every) if follow else waiting.assign(engine)
    show({"numbered": done}, f"{rows_of(done)} numbered")


def until_stopped() -> Event:
    """Set by the signals that end a command."""
    stop = Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: stop.set())
    return stop


def counters_of(url: str, name: str) -> Sequence[Row]:
    """The counters from which numbers of this name were drawn. A name without any may be a typing error."""
    with open_database(url) as database:
        found = database.run(fetch_counters, name)
    if not found:
        click.echo(f"no number of {name!r} was drawn yet, so it begins; for others: allocator numbers list", err=True)
    return found


def zone_of_rows() -> tzinfo | None:
    """The time zone of datetimes without one: Django's, by `manage.py`; else that of the numbers."""
    given: Mapping[str, Any] = click.get_current_context().obj or {}
    return given.get(ROWS_ZONE)


def settled(counters: Sequence[Row], name: str, given: Mapping[str, str | None]) -> dict[str, str]:
    """What the counters keep, else what is given. Counted otherwise than by the application, the same number would be
    given twice. A column may still hold texts of an earlier format."""
    kept = next((settings_in(one.rule) for one in counters if one.rule), {})
    kept = kept or ({"reset": reset_of(max((one.period for one in counters), key=len))} if counters else {})
    chosen = {setting: value for setting, value in given.items() if value is not None}
    for setting, value in chosen.items():
        if setting != "format" and kept.get(setting, value) != value:
            told = f"--{setting.replace('_', '-')} is {value!r}, but the counters of {name!r} say {kept[setting]!r}"
            raise click.UsageError(f"{told}: leave it out")
    return {"reset": "never", "timezone": "UTC"} | kept | chosen


@numbers.command("audit")
@column_options
@click.option("--order-column", "order", metavar="C", help="Report numbers out of the order of this column.")
@database_options
def audit_column(column: str, name: str, order: str | None, url: str, **given: Any) -> None:
    """Find what is wrong with the numbers of NAME in TABLE.COLUMN. Changes nothing.

    \b
    gap         in no row, and not void
    duplicate   in two rows
    void        void, and in a row
    disorder    below the number of the row before (with --order-column)
    ahead       above the counter, which will issue it again
    unreadable  not a number of this format, scope and period

    TABLE may be a view. Leave out --scope-column and --period-column if the format holds what they do. The exit code is
    1 when something is wrong.

    \b
    Example:
        allocator numbers audit invoices.number invoice --scope-column tenant_id
    """
    table_and_column = split_column(column)
    counters = counters_of(url, name)
    try:
        made = numbers_in(counters, name, **given)
    except InvalidSetting as error:  # exit code 1 would say that something was found
        raise click.UsageError(str(error)) from error
    source = Source(*table_and_column, given["scope"], given["period"], zone_of_rows())
    first: list[dict[str, object]] = []
    kinds: Counter[str] = Counter()
    with snapshot(address_of(url)) as connection:
        rows, found = audit_rows(connection, source, made.rule, zone_of(made.rule.timezone), order)
        for one in found:
            kinds[one.kind] += 1
            if len(first) < SHOWN:
                first.append(to_row(one, name))
    show({"rows": rows, "kinds": kinds, "findings": first}, text_of(first, kinds, rows))
    if first:
        sys.exit(REFUSED)


def numbers_in(
    counters: Sequence[Row], name: str, scope: str | None, period: str | None, start: int, **given: str | None
) -> Numbers:
    """The numbers of a column. Raises `InvalidSetting` if rows would be counted in the wrong group.

    scope, period: the columns that hold them, if any.
    """
    settings: Any = settled(counters, name, given)
    made = Numbers(name, start=start, **settings)
    written, reset = made.rule.format, made.rule.reset
    if reset != "never" and written.is_bare and not period:
        raise InvalidSetting(
            f"the numbers of {name!r} restart each {reset}: give --period-column, or a --format that has the {reset}"
        )
    if not scope and "scope" not in written.fields and any(one.scope for one in counters):
        raise InvalidSetting(f"the numbers of {name!r} have scopes: give --scope-column, or a --format with {{scope}}")
    return made


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
        "void": f"{span} is void, and a row has it",
        "disorder": f"{one.first} comes after {one.last}",
        "ahead": f"the counter has not reached {span} and will issue it again; raise it with: "
        f"allocator numbers set {name} {one.last}{group}",
        "unreadable": one.text,
    }
    numbers = {"first": str(one.first), "last": str(one.last)}
    return {"kind": one.kind, **one.group._asdict(), **numbers, "message": sentences[one.kind]}

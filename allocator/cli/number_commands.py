"""`allocator numbers list|set|audit`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from allocator.cli.options import database_options, open_database, require_files
from allocator.cli.output import REFUSED, show, table, wants_json
from allocator.schemes.checks import split_column
from allocator.schemes.number_audit import Found, Group, audit, first_day, is_period, read_row
from allocator.schemes.numbering import LENGTHS, RESETS, NumberFormat, NumberRule, place

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from allocator.database.dialect import Dialect
    from allocator.database.verbs.number_columns import Counter as Row
    from allocator.database.verbs.number_columns import Read

SHOWN = 1000
"""Findings that are printed; all are counted."""
OF_LENGTH: dict[int, Any] = {length: reset for reset, length in LENGTHS.items()}
HEADINGS = ("name", "scope", "period", "newest")


@click.group()
def numbers() -> None:
    """List, raise and audit numbers without gaps."""


@numbers.command("list")
@click.argument("name", default="")
@database_options
def list_numbers(name: str, url: str) -> None:
    """Print the newest number of each scope and period.

    With NAME, those of that name alone.
    """
    found = fetch(url, name)
    rows = [(one.name, one.scope, one.period, str(one.n)) for one in found]
    show([dict(zip(HEADINGS, row, strict=True)) for row in rows], table([HEADINGS, *rows], numbers={3}))


def fetch(url: str, name: str) -> list[Row]:
    from allocator.database.verbs.number_columns import fetch_counters

    require_files(url)
    with open_database(url) as database:
        return list(database.run(fetch_counters, name))


def check_period(context: click.Context, parameter: click.Parameter, given: str) -> str:
    if not is_period(given):
        raise click.BadParameter(f"a year, month or day as 2026, 2026-03 or 2026-03-14; got {given!r}")
    return given


@numbers.command("set")
@click.argument("name")
@click.argument("n", type=int)
@click.option("--scope", default="", help="Whose numbers these are.")
@click.option("--period", default="", callback=check_period, help="As 2026, 2026-03 or 2026-03-14, where they restart.")
@database_options
def set_number(name: str, n: int, scope: str, period: str, url: str) -> None:
    """Continue the numbers of NAME after N, the newest that is in use. They are never lowered.

    Stop whatever else draws these numbers first.

    \b
    Examples:
        allocator numbers set invoice 4711 --scope tenant-7 --period 2026
        allocator numbers set case 90210
    """
    from allocator.database.verbs.number_columns import fetch_counters
    from allocator.numbers import Numbers

    made = Numbers(name, reset=OF_LENGTH[len(period)])

    def raise_counter(connection: Connection, dialect: Dialect) -> None:
        with dialect.transaction(connection):
            made.set(connection, n, scope=scope, at=first_day(period))

    require_files(url)
    with open_database(url) as database:
        check_restart(name, period, database.run(fetch_counters, name))
        database.run(raise_counter)
    told = {"name": name, "scope": scope, "period": period, "newest": str(n)}
    show(told, f"the next number of {place(name, scope, period)} is {n + 1}")


def check_restart(name: str, period: str, counters: Sequence[Row]) -> None:
    """In a period of another kind, or without one, the counter would be one that nobody draws from."""
    if not counters or len(period) in {len(one.period) for one in counters}:
        return
    newest = max(one.period for one in counters)
    if not newest:
        raise click.UsageError(f"the numbers of {name!r} never restart: leave out --period")
    raise click.UsageError(f"the numbers of {name!r} restart each {reset_of(counters)}: give --period, as {newest}")


@numbers.command("audit")
@click.argument("column", metavar="TABLE.COLUMN")
@click.option("--name", required=True, help="The name of the Numbers that the column holds.")
@click.option("--format", "template", default="{n}", show_default=True, help="Their format.")
@click.option("--reset", type=click.Choice(list(RESETS)), help="When they restart; else as the counters say.")
@click.option("--start", type=int, default=1, show_default=True, help="The first number of each scope and period.")
@click.option("--timezone", default="UTC", show_default=True, help="Of the dates in --period-column.")
@click.option("--scope-column", default="", metavar="C", help="The column of the scope, unless the format holds it.")
@click.option("--period-column", default="", metavar="C", help="That of the date or year, unless the format holds it.")
@click.option("--order-column", default="", metavar="C", help="Report numbers out of the order of this column.")
@database_options
def audit_column(
    column: str,
    name: str,
    template: str,
    reset: Any,
    start: int,
    timezone: str,
    scope_column: str,
    period_column: str,
    order_column: str,
    url: str,
) -> None:
    """Find what is wrong with the numbers in TABLE.COLUMN. Changes nothing.

    \b
    gap         given to no row, and not void
    duplicate   in two rows
    disorder    below the number of the row before (with --order-column)
    ahead       above the counter, which will give it again
    unreadable  not a number of this format, scope and period

    TABLE may be a view. Rows without a number are left out. The exit code is 1 when something was found.

    \b
    Example:
        allocator numbers audit invoices.number --name invoice
            --format 'INV-{year}-{n:05}' --scope-column tenant_id
    """
    from allocator.database.address import address_of
    from allocator.database.verbs.number_columns import Source, read_column
    from allocator.numbers import zone_of

    named = split_column(column)
    counters = fetch(url, name)
    rule, zone = NumberRule(name, NumberFormat(template), reset or reset_of(counters), start), zone_of(timezone)
    check_columns(rule, counters, scope_column, period_column)
    is_text = not rule.format.is_bare
    source = Source(*named, scope_column, period_column, order_column, is_text)

    def judge(read: Read) -> Outcome:
        return judged(rule, zone, read, in_order=bool(order_column))

    outcome = read_column(address_of(url), source, name, judge)
    show(to_json(outcome), text_of(name, outcome))
    if outcome.found:
        sys.exit(REFUSED)


def reset_of(counters: Sequence[Row]) -> Any:
    return OF_LENGTH[max((len(one.period) for one in counters), default=0)]


def check_columns(rule: NumberRule, counters: list[Row], scope_column: str, period_column: str) -> None:
    """Without these every row would be of the wrong group."""
    if rule.reset != "never" and rule.format.is_bare and not period_column:
        raise click.UsageError(
            f"the numbers of {rule.name!r} restart each {rule.reset}: give --period-column, or a --format that has the "
            f"{rule.reset}"
        )
    if not scope_column and "scope" not in rule.format.fields and any(one.scope for one in counters):
        raise click.UsageError(
            f"the numbers of {rule.name!r} have scopes: give --scope-column, or a --format with {{scope}}"
        )


class Outcome(NamedTuple):
    """The first findings, how many there are of each kind, and how many rows were read."""

    found: list[Found]
    kinds: Counter[str]
    rows: int


def judged(rule: NumberRule, zone: tzinfo, read: Read, in_order: bool) -> Outcome:
    counters = {Group(one.scope, one.period): one.n for one in read.counters}
    void = ((Group(one.scope, one.period), one.n) for one in read.void)
    first: list[Found] = []
    kinds: Counter[str] = Counter()
    shows = not wants_json() and sys.stderr.isatty()
    with click.progressbar(read.rows, read.total, "reading", file=sys.stderr, hidden=not shows) as rows:
        read_rows = (read_row(rule, zone, *row) for row in rows)
        for one in audit(read_rows, counters, void, start=rule.start, in_order=in_order):
            kinds[one.kind] += 1
            if len(first) < SHOWN:
                first.append(one)
    return Outcome(first, kinds, read.total)


def text_of(name: str, outcome: Outcome) -> str:
    lines = [line_of(name, one) for one in outcome.found]
    if more := outcome.kinds.total() - len(lines):
        lines.append(f"... and {more} more")
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.kinds.items())) or "nothing was found"
    rows = "1 row" if outcome.rows == 1 else f"{outcome.rows} rows"
    return "\n".join([*lines, f"{rows}: {told}"])


def line_of(name: str, one: Found) -> str:
    return f"{one.kind:<10}  {place(name, *one.group)}: {sentence_of(one)}"


def sentence_of(one: Found) -> str:
    span = str(one.first) if one.first == one.last else f"{one.first} to {one.last}"
    match one.kind:
        case "gap":
            return f"no row has {span}"
        case "duplicate":
            return f"several rows have {span}"
        case "disorder":
            return f"{one.first} comes after {one.last}"
        case "ahead":
            return f"the counter has not reached {span} and will give that again; allocator numbers set raises it"
        case "unreadable":
            return one.text


def to_json(outcome: Outcome) -> dict[str, object]:
    found = [
        {
            "kind": one.kind,
            **one.group._asdict(),
            "first": str(one.first),
            "last": str(one.last),
            "message": sentence_of(one),
        }
        for one in outcome.found
    ]
    return {"rows": outcome.rows, "kinds": dict(outcome.kinds), "findings": found}

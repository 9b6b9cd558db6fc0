"""`allocator doctor`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from allocator.cli.doctor_columns import show_columns
from allocator.cli.options import TIMEOUT, fleet_options, only_one, open_database
from allocator.cli.output import REFUSED, pasteable, show
from allocator.database.columns.tag_columns import read_alone
from allocator.doctor import examine, is_healthy
from allocator.rules.findings import Finding, at, in_order
from allocator.rules.tag_column import findings
from allocator.schemes.shared.argument_checks import check_tag


def parse_pairs(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = [one.rpartition("=") for one in given]
    for column, _, tag in pairs:
        if not column:
            raise click.BadParameter(f"a column and its tag, as orders.id=order; got {tag!r}")
        check_tag(tag)
    return [(column, tag) for column, _, tag in pairs]


@click.command()
@click.option(
    "--column",
    "pairs",
    multiple=True,
    metavar="TABLE.COLUMN=TAG",
    callback=parse_pairs,
    help="Only check this column and the tag whose ids it holds; repeatable.",
)
@click.option("--columns", is_flag=True, help="Only list the integer keys of your own tables, and when they end.")
@click.option("--schema", help="With --columns: only the tables of this schema.")
@click.option(
    "--since",
    metavar="DATE|FILE",
    help="With --columns: for the rates, a date when all was empty, or an earlier --json.",
)
@fleet_options
def doctor(
    pairs: Sequence[tuple[str, str]],
    columns: bool,
    schema: str | None,
    since: str | None,
    urls: tuple[str, ...],
) -> None:
    """Check for causes of duplicate ids and outages. Changes nothing.

    \b
    danger    an id could be issued twice
    outage    ids could stop
    note      worth knowing; also: checks that this user may not run

    The exit code is 1 if there is a danger or an outage, else 0. With --columns it is
    1 if a key is over 80 % full, or ends within a year.
    """
    if pairs:
        report(examine_columns(pairs, only_one(urls)))
        return
    if columns:
        show_columns(urls, schema, since)
        return
    if schema or since:
        raise click.UsageError("--schema and --since are for --columns")
    report(examine(list(urls), timeout=TIMEOUT))


def report(found: Sequence[Finding]) -> None:
    show({"findings": [finding_to_json(one) for one in found]}, "\n\n".join(map(text_of, found)) or "no findings")
    if not is_healthy(found):
        sys.exit(REFUSED)


def examine_columns(pairs: Sequence[tuple[str, str]], url: str) -> list[Finding]:
    with open_database(url) as database:
        read = [(tag, *read_alone(database, column, tag)) for column, tag in pairs]
        found = [one for name, facts, tag in read for one in findings(facts, name, tag)]
        return in_order(at(database.address.shown, found))


def finding_to_json(one: Finding) -> dict[str, str]:
    return {
        "name": one.name,
        "severity": str(one.severity),
        "found": one.found,
        "mend": one.mend,
        "database": one.where,
    }


def text_of(one: Finding) -> str:
    where = f" ({one.where})" if one.where else ""
    return f"{one.severity:<6}  {one.name}{where}\n        {one.found}\n        fix: {pasteable(one.mend)}"

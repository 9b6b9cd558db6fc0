"""`allocator tags list|create|set`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from allocator.cli.options import fleet_command, ids_of, show, table
from allocator.schemes.limits import JAVASCRIPT_MAX_ID
from allocator.schemes.tag import Tag
from allocator.schemes.wire import tag_to_json

HEADINGS = ("tag", "max_value", "step", "max_step", "limit", "used")


@click.group()
def tags() -> None:
    """List, create and change tags."""


def settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `create` and `set` share."""
    for option in (
        click.option("--javascript", is_flag=True, help=f"Same as --limit {JAVASCRIPT_MAX_ID}, for ids browsers read."),
        click.option("--limit", type=int, help="The greatest id the tag will ever give."),
        click.option("--max-step", type=int, help="Most ids a claim takes, at a high rate."),
        click.option("--step", type=int, help="Least ids a claim takes."),
    ):
        function = option(function)
    return function


@tags.command("list")
@fleet_command
def list_tags(urls: tuple[str, ...], as_json: bool) -> None:
    """Print every tag, and how far it is used up."""
    with ids_of(urls) as ids:
        found = ids.tags.list()
    show(as_json, [tag_to_json(tag) for tag in found], shown(found))


@tags.command("create")
@click.argument("tag")
@settings
@click.option("--start-after", type=int, default=0, show_default=True, help="The first id is greater than this.")
@click.option("--start-after-column", metavar="TABLE.COLUMN", help="... and than every value of this column.")
@fleet_command
def create_tag(
    tag: str,
    step: int | None,
    max_step: int | None,
    limit: int | None,
    javascript: bool,
    start_after: int,
    start_after_column: str | None,
    urls: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create TAG. Needed only to choose its settings: a tag is made when it is first used.

    \b
    To take over from an auto-increment column, stop what inserts there, then:
        allocator tags create order --start-after-column orders.id
    """
    with ids_of(urls) as ids:
        made = ids.tags.create(
            tag,
            step=step,
            max_step=max_step,
            limit=the_limit(limit, javascript),
            start_after=start_after,
            start_after_column=start_after_column,
        )
    show(as_json, tag_to_json(made), f"created {made.name}: {first(made)}")


@tags.command("set")
@click.argument("tag")
@settings
@click.option("--start-after", type=int, help="Claims go on above this value; it is never lowered.")
@fleet_command
def set_tag(
    tag: str,
    step: int | None,
    max_step: int | None,
    limit: int | None,
    javascript: bool,
    start_after: int | None,
    urls: tuple[str, ...],
    as_json: bool,
) -> None:
    """Change TAG.

    A limit and --start-after hold for what is claimed from now on; what processes have in memory is still given out, so
    start them anew where it must not be. A step they learn of then, too.
    """
    with ids_of(urls) as ids:
        now = ids.tags.set(
            tag, step=step, max_step=max_step, limit=the_limit(limit, javascript), start_after=start_after
        )
    show(as_json, tag_to_json(now), shown([now]))


def first(tag: Tag) -> str:
    return f"the first id is {tag.max_value + 1}" if tag.remaining else "it has no ids, since it starts at its limit"


def the_limit(limit: int | None, javascript: bool) -> int | None:
    if javascript and limit is not None:
        raise click.UsageError("--limit and --javascript exclude each other")
    return JAVASCRIPT_MAX_ID if javascript else limit


def shown(found: list[Tag]) -> str:
    return table([HEADINGS, *(cells(tag) for tag in found)], numbers=range(1, len(HEADINGS)))


def cells(tag: Tag) -> tuple[str, ...]:
    used = f"{100 * tag.max_value / tag.limit:.2f}%"
    return (tag.name, str(tag.max_value), str(tag.step), str(tag.max_step), str(tag.limit), used)

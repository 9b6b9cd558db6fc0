"""`allocator tags list|show|create|set|repair|delete|bind|unbind`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

import click

from allocator.cli.doctor import show_with_findings
from allocator.cli.options import fleet_options, open_allocator, option, options
from allocator.cli.output import confirm, show, table, yes_option
from allocator.database.columns import bindings
from allocator.database.store import Database
from allocator.errors import AllocatorError, InvalidSetting
from allocator.fleet.tag_administration import Tags
from allocator.fleet.tag_deletion import delete, last_claimed
from allocator.remote.wire import tag_to_json
from allocator.rules.column_bindings import findings
from allocator.schemes.shared.argument_checks import JAVASCRIPT_MAX_ID
from allocator.schemes.tag import FailoverGap, Tag

GAP = "Ids to skip after a failover; auto: by the ids issued so far; refuse: stop the tag."
COLUMN = "Start after the greatest value of this column; its type sets the limit."
HEADINGS = ("tag", "max_value", "step", "max_step", "limit", "failover_gap", "used")

ORDERS: dict[str, Callable[[Tag], Any]] = {
    "tag": lambda tag: tag.name,
    "max_value": lambda tag: -tag.max_value,
    "used": lambda tag: -tag.used,
}


@click.group()
def tags() -> None:
    """List, create, change, bind, repair and delete tags."""


def parse_gap(context: click.Context, parameter: click.Parameter, given: str | None) -> FailoverGap | None:
    if given is None:
        return None
    if given == "auto":
        return "auto"
    if given == "refuse":
        return "refuse"
    try:
        return int(given)
    except ValueError:
        raise click.BadParameter(f"must be a number of ids, auto or refuse, got {given!r}") from None


settings_options = options(
    click.option("--step", type=int, help="Smallest number of ids per claim."),
    click.option("--max-step", type=int, help="Largest number of ids per claim, at a high rate."),
    click.option("--limit", type=int, help="Greatest id of the tag."),
    click.option("--javascript", is_flag=True, help=f"Same as --limit {JAVASCRIPT_MAX_ID}, for browsers."),
    click.option("--failover-gap", callback=parse_gap, metavar="N|auto|refuse", help=GAP),
)


@tags.command("list")
@click.argument("pattern", default="*")
@option("--sort", type=click.Choice(list(ORDERS)), default="tag", help="Sort key; numbers descend.")
@fleet_options
def list_tags(pattern: str, sort: str, urls: tuple[str, ...]) -> None:
    """Print tags, and how much of each is used.

    PATTERN selects tags by name, such as 'order-*'. Without it, all tags are printed.
    """
    with open_allocator(urls) as ids:
        found = sorted((tag for tag in ids.tags.list() if fnmatchcase(tag.name, pattern)), key=ORDERS[sort])
    show([tag_to_json(tag) for tag in found], table_of(found))


@tags.command("show")
@click.argument("tag")
@fleet_options
def show_tag(tag: str, urls: tuple[str, ...]) -> None:
    """Print TAG: settings, remaining ids and last claim."""
    with open_allocator(urls) as ids:
        found = ids.tags.get(tag)
        bound = [one.place for database in ids.tags.databases() for one in database.bindings(tag)]
    claimed_at = datetime.fromtimestamp(found.claimed_at / 1000, UTC) if found.claimed_at else None
    more = {"remaining": str(found.remaining), "claimed_at": claimed_at and claimed_at.isoformat(), "bound_to": bound}
    last = f"{claimed_at:%Y-%m-%d %H:%M:%S} UTC" if claimed_at else "unknown" if found.max_value else "never"
    lines = [*zip(HEADINGS, to_row(found), strict=True), ("remaining", more["remaining"]), ("last claim", last)]
    lines += [("bound to", place) for place in bound]
    show(tag_to_json(found) | more, "\n".join(f"{name:<12}  {value}" for name, value in lines))


@tags.command("create")
@click.argument("tag")
@settings_options
@option("--start-after", type=int, default=0, help="The first id is above this.")
@click.option("--start-after-column", metavar="TABLE.COLUMN", help=COLUMN)
@fleet_options
def create_tag(tag: str, limit: int | None, javascript: bool, urls: tuple[str, ...], **settings: Any) -> None:
    """Create TAG.

    Only needed to choose its settings: the first use of a tag creates it too.

    \b
    To take over an auto-increment column, stop all inserts into it, then:
        allocator tags create order --start-after-column orders.id
    """
    with open_allocator(urls, creates=True) as ids:
        made = ids.tags.create(tag, limit=limit_of(limit, javascript), **settings)
    follows = {"limit_from": made.limit_from} if made.limit_from else {}
    show(tag_to_json(made) | follows, f"created {made.name}: {first_id(made)}" + limit_follows(made))


@tags.command("set")
@click.argument("tag")
@settings_options
@click.option("--start-after", type=int, help="Claim only ids above this; never goes back.")
@fleet_options
def set_tag(tag: str, limit: int | None, javascript: bool, urls: tuple[str, ...], **settings: Any) -> None:
    """Change the settings of TAG.

    --limit and --start-after apply to the next claim. Processes still issue the ids in their memory; restart them if
    they must not. They use a new --step after a restart.
    """
    with open_allocator(urls) as ids:
        now = ids.tags.set(tag, limit=limit_of(limit, javascript), **settings)
    show(tag_to_json(now), table_of([now]))


@tags.command("repair")
@click.argument("names", metavar="[TAG]...", nargs=-1)
@click.option("--all", "of_all", is_flag=True, help="Repair all tags.")
@click.option("--above", type=int, help="Greatest id in use. Default: skip the failover gap.")
@fleet_options
def repair(names: tuple[str, ...], of_all: bool, above: int | None, urls: tuple[str, ...]) -> None:
    """Let tags continue after a failover or a restore.

    The tags continue above all ids that the database may have lost.

    First make sure that no process uses the old server. Processes with the error ServerReplaced continue by themselves.
    Restart those with the error MaxValueWentBack.

    \b
        allocator tags repair order
        allocator tags repair --all
        allocator tags repair order --above 9000000
    """
    if bool(names) == of_all:
        raise click.UsageError("name the tags or pass --all, not both")
    with open_allocator(urls) as ids:
        chosen = [tag.name for tag in ids.tags.list()] if of_all else names
        repaired, refused = repair_each(ids.tags, chosen, above)
    if repaired or not refused:
        show([tag_to_json(tag) for tag in repaired], table_of(repaired))
    for error in refused[1:]:
        click.echo(f"error: {error}", err=True)
    if refused:
        raise refused[0]


@tags.command("delete")
@click.argument("tag")
@yes_option
@fleet_options
def delete_tag(tag: str, sure: bool, urls: tuple[str, ...]) -> None:
    """Delete TAG. If its name is used again, its ids repeat.

    Asks for confirmation if the tag has issued ids: its next use would create it again, from 1. Processes that still
    draw from it stop with an error.

    \b
    To stop a tag for ever, lower its limit instead:
        allocator tags set order --limit LAST
    """
    with open_allocator(urls) as ids:
        databases = ids.tags.databases()
        if not databases:
            raise InvalidSetting("a service deletes no tags; pass the URL of its database as --url")
        if last := last_claimed(databases, tag):
            confirm(f"tag {tag!r} has issued ids up to {last}; they repeat if its name is used again", sure)
        bound = delete(databases, tag, last)
    again = f"; to use the name again: allocator tags create {tag} --start-after {last}" if last else ""
    bindings = f", and its binding to {', '.join(bound)}" if bound else ""
    show({"deleted": tag, "last": str(last), "bound_to": bound}, f"deleted {tag}{bindings}{again}")


@tags.command("bind")
@click.argument("tag")
@click.argument("place", metavar="TABLE.COLUMN")
@fleet_options
def bind_tag(tag: str, place: str, urls: tuple[str, ...]) -> None:
    """Bind TAG to TABLE.COLUMN, which gets its ids.

    From then on the doctor checks both: the tag is above the column, the column is wide enough, and all rows are the
    tag's.

    \b
        allocator tags bind order orders.id
        allocator doctor
    """
    with open_allocator(urls) as ids:
        database, now = the_only(ids.tags), datetime.now(UTC)
        made = database.run(bindings.bind, place, tag)
        found = findings(database.run(bindings.read, made), int(now.timestamp() * 1000), now.date())
    show_with_findings({"place": made.place, "tag": tag}, f"{made.place} is bound to tag {tag}", found)


@tags.command("unbind")
@click.argument("place", metavar="TABLE.COLUMN")
@fleet_options
def unbind_tag(place: str, urls: tuple[str, ...]) -> None:
    """End the binding of TABLE.COLUMN. Its tag stays as it is."""
    with open_allocator(urls) as ids:
        ended = the_only(ids.tags).run(bindings.unbind, place)
    show({"place": ended.place, "tag": ended.tag}, f"{ended.place} is not bound to tag {ended.tag} any more")


def the_only(tags: Tags) -> Database:
    """The database of tags that have no shards."""
    databases = tags.databases()
    if not databases:
        raise InvalidSetting("a service binds no tags; pass the URL of its database as --url")
    if len(databases) > 1 or databases[0].has_siblings():
        raise InvalidSetting(
            "a tag of several shards cannot be bound: the column holds ids of all shards, and each shard knows "
            "only its own"
        )
    return databases[0]


def repair_each(tags: Tags, names: Iterable[str], above: int | None) -> tuple[list[Tag], list[AllocatorError]]:
    """Repair each tag; an error of one does not stop the others."""
    repaired, refused = [], []
    for name in names:
        try:
            repaired.append(tags.repair(name, above=above))
        except AllocatorError as error:
            refused.append(error)
    return repaired, refused


def first_id(tag: Tag) -> str:
    return f"the first id is {tag.max_value + 1}" if tag.remaining else "it has no ids, because it starts at its limit"


def limit_follows(tag: Tag) -> str:
    if not tag.limit_from:
        return ""
    return f"\n{tag.name}: limit {tag.limit:,}, the greatest value of {tag.limit_from}"


def limit_of(limit: int | None, javascript: bool) -> int | None:
    if javascript and limit is not None:
        raise click.UsageError("--limit and --javascript exclude each other")
    return JAVASCRIPT_MAX_ID if javascript else limit


def table_of(found: list[Tag]) -> str:
    return table([HEADINGS, *(to_row(tag) for tag in found)], numbers=range(1, len(HEADINGS)))


def to_row(tag: Tag) -> tuple[str, ...]:
    used = f"{100 * tag.used:.2f}%"
    settings = (tag.max_value, tag.step, tag.max_step, tag.limit, tag.failover_gap)
    return (tag.name, *map(str, settings), used)

"""`allocator tags list|create|set|repair|delete`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from allocator.cli.doctor import report
from allocator.cli.options import fleet_options, only_one, open_allocator, open_database, options
from allocator.cli.output import CommandGroup, show, show_rows, table, tell_errors
from allocator.database import columns
from allocator.errors import AllocatorError, InvalidSetting
from allocator.remote.wire import gap_from_json, tag_to_json
from allocator.schemes.shared.argument_checks import JAVASCRIPT_MAX_ID, check_tag
from allocator.schemes.shared.findings import at, in_order
from allocator.schemes.slots import unasked
from allocator.schemes.tag import DEFAULT_MAX_STEP, Tag
from allocator.schemes.tag_column import end_of, findings, is_late, max_step_for, planned_start

GAP = "Ids to skip after a failover; auto: by the ids issued so far; refuse: stop the tag."
COLUMN = "Start after the greatest value of this column; its type sets the limit."
NO_IDS = "it has no ids, because it starts at its limit; delete it, and create it with a lower --start-after"
COLUMNS = "tag max_value step max_step limit failover_gap used:.2%"


@click.group(cls=CommandGroup)
def tags() -> None:
    """Begin tags above existing ids, limit them, repair them.

    A tag, such as "order", is a name with ids of its own. Its first id creates it, so many tags need none of these
    commands.
    """


def parse_gap(context: click.Context, parameter: click.Parameter, given: str | None) -> int | str | None:
    return None if given is None else gap_from_json(given)


settings_options = options(
    click.option("--step", type=int, help="Smallest number of ids per claim."),
    click.option("--max-step", type=int, help="Largest number of ids per claim, at a high rate."),
    click.option("--limit", type=int, help=f"Greatest id of the tag; {JAVASCRIPT_MAX_ID} for browsers."),
    click.option("--failover-gap", callback=parse_gap, metavar="N|auto|refuse", help=GAP),
)


@tags.command("list")
@click.argument("tag", default="")
@fleet_options
def list_tags(tag: str, urls: tuple[str, ...]) -> None:
    """Print all tags or one, and how much of each is used. With --json also the remaining ids and the last claim."""
    with open_allocator(urls) as ids:
        found = [ids.tags.get(tag)] if tag else ids.tags.list()
    show_rows([to_row(tag) for tag in found], COLUMNS)
    for one in found:
        tell_differing(one)


def tell_differing(tag: Tag) -> None:
    if tag.differs:
        mend = f"allocator tags set {tag.name}, with the URL of every slot and one value"
        click.echo(f"warning: tag {tag.name!r} has {tag.differs}; to make them equal: {mend}", err=True)


@tags.command("create")
@click.argument("tag")
@settings_options
@click.option("--start-after", type=int, help="The first id is above this. Default: 0, or above lost ids.")
@click.option("--start-after-column", metavar="TABLE.COLUMN", help=COLUMN)
@click.option("--beside-column", "column", metavar="TABLE.COLUMN", help="Share this column with its own counter.")
@fleet_options
def create_tag(tag: str, column: str | None, urls: tuple[str, ...], **settings: Any) -> None:
    """Create TAG.

    Only needed to choose its settings: the first use of a tag creates it too.

    \b
    For an auto-increment column, stop all inserts into it, then name the last id
    of its counter, which knows of deleted rows:
        allocator tags create order --start-after LAST --start-after-column orders.id
    Or let both give ids. Run this, then the statement that it prints, then this again:
        allocator tags create order --beside-column orders.id
    Whenever it is run again, it checks that neither gives an id of the other.
    """
    if not column:
        with open_allocator(urls, creates=True) as ids:
            show_made(ids.tags.create(tag, **settings))
        return
    if any(settings.pop(name) is not None for name in ("limit", "start_after", "start_after_column")):
        raise click.UsageError("--beside-column finds the start and the limit; leave out the other options for these")
    share_column(tag, column, only_one(urls), settings)


def show_made(made: Tag) -> None:
    first = f"the first id is {made.max_value + 1}" if made.remaining else NO_IDS
    values, text = tag_to_json(made), f"created {made.name}: {first}"
    if made.limit_from:
        values["limit_from"] = made.limit_from
        text += f"\n{made.name}: limit {made.limit:,}, the greatest value of {made.limit_from}"
    show(values, text)


def share_column(name: str, column: str, url: str, settings: dict[str, Any]) -> None:
    """Make the tag closed, and open it once the counter cannot come to its ids; print what is found until then."""
    with open_database(url, creates=True) as database, open_allocator((url,), creates=True) as ids:
        held, tag = database.on_tables(columns.read_shared, column, check_tag(name))
        if tag is None or is_late(held, tag):
            start = planned_start(held)
            if tag is None:
                settings["max_step"] = settings["max_step"] or DEFAULT_MAX_STEP
                ids.tags.create(name, start_after=start, limit=start, **settings)
            else:
                ids.tags.set(name, start_after=start, limit=start)
            tag = ids.tags.get(name)
        found = in_order(at(database.address.shown, findings(held, tag)))
        if found or not tag.waits_beside_column:
            report(found)
            return
        limit = end_of(tag, held)
        most = max_step_for(limit - tag.skipped, tag.step, tag.max_step)
        show_made(ids.tags.set(name, limit=limit, max_step=most))


@tags.command("set")
@click.argument("tag")
@settings_options
@click.option("--start-after", type=int, help="Claim only ids above this; never goes back.")
@fleet_options
def set_tag(tag: str, urls: tuple[str, ...], **settings: Any) -> None:
    """Change the settings of TAG.

    --limit and --start-after apply to the next claim. Processes still issue the ids in their memory; restart them if
    they must not. They use a new --step after a restart.
    """
    with open_allocator(urls) as ids:
        now = ids.tags.set(tag, **settings)
        missing = unasked([database.settled_shard() for database in ids.tags.databases()])
    row = to_row(now)
    show(row, table([row], COLUMNS))
    tell_differing(now)
    for slot in missing:
        click.echo(f"warning: slot {slot} was not given, and its settings of tag {tag!r} stay as they are", err=True)


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
    repaired, refused = [], []
    with open_allocator(urls) as ids:
        repair = ids.tags.repairing(above)
        chosen = [tag.name for tag in ids.tags.list()] if of_all else names
        for name in chosen:
            try:
                repaired.append(repair(name))
            except AllocatorError as error:
                refused.append(error)
    if repaired or not refused:
        show_rows([to_row(tag) for tag in repaired], COLUMNS)
    tell_errors(refused)


@tags.command("delete")
@click.argument("tag")
@click.option("--yes", "sure", is_flag=True, help="Delete a tag that has issued ids.")
@fleet_options
def delete_tag(tag: str, sure: bool, urls: tuple[str, ...]) -> None:
    """Delete TAG. If its name is used again, its ids repeat.

    Needs --yes if the tag has issued ids: its next use would create it again. Processes that still draw from it stop
    with an error.

    \b
    To stop a tag for ever, lower its limit instead:
        allocator tags set order --limit LAST
    """
    with open_allocator(urls) as ids:
        if (last := ids.tags.last_claimed(tag)) and not sure:
            raise InvalidSetting(
                f"tag {tag!r} may have issued ids up to {last}; they repeat if its name is used again; "
                "to confirm, add --yes"
            )
        ids.tags.delete(tag, last)
    again = f"; to use the name again: allocator tags create {tag} --start-after {last}" if last else ""
    show({"deleted": tag, "last": str(last)}, f"deleted {tag}{again}")


def to_row(tag: Tag) -> dict[str, object]:
    claimed_at = datetime.fromtimestamp(tag.claimed_at / 1000, UTC) if tag.claimed_at else None
    return tag_to_json(tag) | {
        "used": round(tag.used, 6),
        "remaining": str(tag.remaining),
        "claimed_at": claimed_at,
    }

"""Rules on tags, nodes, workers, clocks and formats."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import timedelta

from allocator.rules.failover import has_room, reach_of
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding, few
from allocator.schemes.formats.bit_layout import Layout, moment
from allocator.schemes.meteor import METEOR, MORE_NODES, WARN_FROM, MeteorSettings
from allocator.schemes.shared.argument_checks import MAX_ID, TAG
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.snowflake import SNOWFLAKE, SnowflakeSettings, SnowflakeWorker
from allocator.schemes.tag import REFUSE, Tag

SOON = timedelta(days=730)
"""Warn two years before the end of a format: changing one takes a year."""

CLOCK_SECONDS = 5.0
"""Clock skew that is ignored: NTP jitter plus the round trip."""


def of_tags(tags: Sequence[Tag], residue: Residue) -> Iterator[Finding]:
    """Check the tags of one database, which should all have `residue`."""
    broken = [tag for tag in tags if is_broken(tag)]
    if broken:
        repeats = any(type(tag.max_value) is not int or tag.limit > MAX_ID for tag in broken)
        yield Finding(
            "tag-changed-by-hand",
            DANGER if repeats else OUTAGE,
            f"rows of allocator_segment are inconsistent, and {'ids may repeat' if repeats else 'ids may stop'}: "
            f"{few(map(contradiction, broken))}",
            "correct them, with --start-after not below any id in use: "
            "allocator tags set TAG --start-after N --limit N --step N --max-step N",
        )
    sound = [tag for tag in tags if tag not in broken]
    yield from of_residues(sound, residue)
    yield from of_limits(sound)


def is_broken(tag: Tag) -> bool:
    numbers = (tag.max_value, tag.step, tag.max_step, tag.limit)
    return (
        not all(type(number) is int for number in numbers)
        or not TAG.fullmatch(tag.name)
        or not 0 <= tag.max_value <= tag.limit <= MAX_ID
        or not 1 <= tag.step <= tag.max_step
    )


def contradiction(tag: Tag) -> str:
    return f"{tag.name!r} has max_value {tag.max_value}, limit {tag.limit}, step {tag.step}, max_step {tag.max_step}"


def of_residues(tags: Iterable[Tag], residue: Residue) -> Iterator[Finding]:
    """Find tags with the residues of another shard, which issue its ids too."""
    astray = [tag for tag in tags if tag.residue != residue]
    if astray:
        shown = few(f"{tag.name!r} has offset {tag.residue.offset} and step {tag.residue.step}" for tag in astray)
        shard = f"this shard has offset {residue.offset} and step {residue.step}"
        yield Finding(
            "tag-of-another-lane",
            DANGER,
            f"tags have the residues of another shard: {shown}, but "
            f"{'this database is no shard' if residue == ALL else shard}",
            f"stop all processes that use these tags; in their rows of allocator_segment, set shard_offset = "
            f"{residue.offset} and shard_step = {residue.step}; then raise each tag above every id in use on any "
            "shard: allocator tags set TAG --start-after N",
        )


def of_limits(tags: Iterable[Tag]) -> Iterator[Finding]:
    ending = [tag for tag in tags if tag.max_value >= WARN_FROM * tag.limit]
    if ending:
        shown = few(f"{tag.name!r} has {tag.remaining} of {tag.limit} ids left" for tag in ending)
        yield Finding(
            "tag-near-limit",
            OUTAGE,
            f"tags have used {100 * WARN_FROM:.0f} % or more of their limit: {shown}",
            f"if the column of the ids is wide enough, raise the limit, to at most {MAX_ID}: "
            f"allocator tags set {ending[0].name} --limit N",
        )


def of_gaps(tags: Sequence[Tag], elsewhere: Container[str], has_standby: bool) -> Iterator[Finding]:
    """Check the failover gaps. `elsewhere` are the runs of other servers.

    has_standby: whether a standby follows asynchronously, and would lack the latest commits if promoted.
    """
    if waiting := [tag.name for tag in tags if tag.failover_gap == REFUSE and tag.server_run in elsewhere]:
        yield Finding(
            "server-replaced",
            OUTAGE,
            f"{few(waiting)} issue no ids: the database server changed, and their failover_gap is 'refuse'",
            "when nothing uses the old server any more: allocator tags repair TAG",
        )
    if bare := [tag.name for tag in tags if tag.failover_gap == 0]:
        yield Finding(
            "failover-gap-zero",
            DANGER if has_standby else NOTE,
            f"{few(bare)} skip no ids after a failover or a restore: ids that the new server lacks are issued again"
            + (", and a replica follows asynchronously" if has_standby else ""),
            "allocator tags set TAG --failover-gap auto",
        )
    if narrow := [f"{tag.name!r} has {tag.remaining} ids left" for tag in tags if is_narrow(tag)]:
        yield Finding(
            "failover-gap-near-limit",
            OUTAGE,
            f"too few ids are left for the skip at a failover, after which a tag would issue none: {few(narrow)}",
            "raise the limit (allocator tags set TAG --limit N), or lower --max-step or a fixed --failover-gap",
        )


def is_narrow(tag: Tag) -> bool:
    return tag.failover_gap != REFUSE and not has_room(tag, reach_of(tag))


def of_nodes(greatest: int, layout: Layout = METEOR) -> Iterator[Finding]:
    """`greatest` is the number of the newest node, 0 before the first."""
    limit = layout.limit("node")
    if greatest >= WARN_FROM * limit:
        yield Finding(
            "nodes-run-out",
            OUTAGE,
            f"{greatest} of {limit} node numbers of the layout {layout} are used; each process start uses one",
            f"{MORE_NODES}: MeteorSettings(layout=…)",
        )


def of_workers(workers: Sequence[SnowflakeWorker], now: float) -> Iterator[Finding]:
    """`now` is in seconds since 1970."""
    formats = sorted({(one.layout, one.epoch) for one in workers})
    if len(formats) > 1:
        shown = few(f"layout {name}, epoch {epoch}" for name, epoch in formats)
        yield Finding(
            "worker-formats-differ",
            OUTAGE,
            f"workers are leased for different formats, so no process can lease another: {shown}",
            "use the same SnowflakeSettings in all processes; if no id of the other format is in use, stop them "
            "all and empty allocator_worker",
        )
    elif formats:
        name, epoch = formats[0]
        yield from of_leases(workers, layout_of(name), epoch, now)


def layout_of(name: str) -> Layout:
    """Parse the stored widths of a snowflake layout."""
    widths = re.findall(r"\d+", name)
    return Layout(**dict(zip(SNOWFLAKE.widths, map(int, widths), strict=True)))


def of_leases(workers: Sequence[SnowflakeWorker], layout: Layout, epoch: int, now: float) -> Iterator[Finding]:
    yield from of_end("snowflake-runs-out", "timestamp", layout, epoch / 1000, 1000, now)
    size = 1 << layout.widths["datacenter"] + layout.widths["worker"]
    leased = sum(one.until >= now * 1000 for one in workers)
    if leased >= WARN_FROM * size:
        yield Finding(
            "workers-run-out",
            OUTAGE,
            f"{leased} of {size} workers of the layout {layout} are leased now",
            "run fewer processes that draw snowflakes, or shorten SnowflakeSettings(lease=…): an ended process "
            "keeps its worker until its lease ends",
        )


def of_end(name: str, field: str, layout: Layout, epoch: float, per_second: int, now: float) -> Iterator[Finding]:
    """Warn of the end of a time field; `epoch` and `now` are in seconds since 1970."""
    end = layout.runs_out(field, epoch, per_second)
    if end - moment(now) <= SOON:
        yield Finding(
            name,
            OUTAGE,
            f"the field {field!r} of the layout {layout} with the epoch {moment(epoch):%Y-%m-%d} ends on "
            f"{end:%Y-%m-%d}",
            "plan a layout with more bits for it, or a later epoch, for a new column: beside ids of the old format, "
            "some would come again",
        )


def of_formats(meteor: MeteorSettings, snowflake: SnowflakeSettings, now: float) -> Iterator[Finding]:
    yield from of_end("meteor-runs-out", "second", meteor.layout, meteor.epoch, 1, now)
    yield from of_end("snowflake-runs-out", "timestamp", snowflake.layout, snowflake.epoch / 1000, 1000, now)


def of_clocks(ahead: float, lease: float) -> Iterator[Finding]:
    """Check the clock skew. `ahead` is this clock minus the database's, `lease` that of snowflakes, in seconds."""
    apart = abs(ahead)
    if apart > CLOCK_SECONDS:
        yield Finding(
            "clocks-differ",
            OUTAGE if apart > lease else NOTE,
            f"this machine's clock is {apart:.0f} s {'ahead of' if ahead > 0 else 'behind'} the database's: the time "
            "in snowflakes and meteors may be wrong, and workers whose lease has ended may count as leased",
            "synchronize both with the same NTP servers (check with chronyc tracking, timedatectl)",
        )

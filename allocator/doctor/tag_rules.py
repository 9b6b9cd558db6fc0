"""Rules on the rows of one database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from allocator.schemes.failover import has_room, reach_of
from allocator.schemes.formats.bit_layout import Layout
from allocator.schemes.meteor import METEOR, MORE_NODES, WARN_FROM
from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.shared.findings import DANGER, NOTE, OUTAGE, Finding, Severity, few
from allocator.schemes.shared.residues import NONE, Residue
from allocator.schemes.tag import REFUSE, Tag
from allocator.schemes.worker_number_lease import SNOWFLAKE_SECONDS, Space

CLOCK_SECONDS = 5.0
"""Clock skew that is ignored: NTP jitter plus the round trip."""
REFUSED_SECONDS = SNOWFLAKE_SECONDS / 2
"""A clock that is further ahead of the database's leases no snowflake worker."""


class TagRule(NamedTuple):
    """A rule on each tag of a database: what is wrong of a tag, given the residue of the database and the key of its
    last move; what is shown of it; and the finding about all that are wrong."""

    name: str
    severity: Severity
    wrong: Callable[[Tag, Residue, int | None], bool]
    shown: str
    found: str
    mend: str


TAG_RULES = (
    TagRule(
        "tag-of-another-lane",
        DANGER,
        lambda tag, residue, move: tag.residue not in (residue, NONE),
        "{0.name!r} has offset {0.residue.offset} and step {0.residue.step}",
        "tags have the residue of another slot, and issue its ids too: {tags}, but this database is slot "
        "{here.offset} of {here.step}",
        "stop all processes that use these tags; in their rows of allocator_segment, set shard_offset = {here.offset} "
        "and shard_step = {here.step}; then raise each tag above every id in use in any slot: "
        "allocator tags set TAG --start-after N",
    ),
    TagRule(
        "tag-half-deleted",
        OUTAGE,
        lambda tag, residue, move: tag.residue == NONE,
        "{0.name!r}",
        "{tags} issue no ids: their deletion has begun, and has not ended",
        "allocator tags delete TAG",
    ),
    TagRule(
        "tag-near-limit",
        OUTAGE,
        lambda tag, residue, move: tag.max_value >= WARN_FROM * tag.limit,
        "{0.name!r} has {0.remaining} of {0.limit} ids left",
        f"tags have used {100 * WARN_FROM:.0f} % or more of their limit: {{tags}}",
        f"if the column of the ids is wide enough, raise the limit, to at most {MAX_ID}: "
        "allocator tags set TAG --limit N",
    ),
    TagRule(
        "server-replaced",
        OUTAGE,
        lambda tag, residue, move: tag.failover_gap == REFUSE and tag.move != move,
        "{0.name!r}",
        "{tags} issue no ids: the database server changed, and their failover_gap is 'refuse'",
        "when nothing uses the old server any more: allocator tags repair TAG",
    ),
    TagRule(
        "failover-gap-zero",
        NOTE,
        lambda tag, residue, move: tag.failover_gap == 0,
        "{0.name!r}",
        "{tags} skip no ids after a failover or a restore: ids that the new server lacks are issued again",
        "allocator tags set TAG --failover-gap auto",
    ),
    TagRule(
        "failover-gap-near-limit",
        OUTAGE,
        lambda tag, residue, move: tag.failover_gap != REFUSE and not has_room(tag, reach_of(tag)),
        "{0.name!r} has {0.remaining} ids left",
        "too few ids are left for the skip at a failover, after which a tag would issue none: {tags}",
        "raise the limit (allocator tags set TAG --limit N), or lower --max-step or a fixed --failover-gap",
    ),
)


def of_tags(tags: Sequence[Tag], residue: Residue, move: int | None) -> Iterator[Finding]:
    """Check the tags of one database, which should all have `residue`. `move` is the key of the last move."""
    for rule in TAG_RULES:
        if wrong := [tag for tag in tags if rule.wrong(tag, residue, move)]:
            facts = {"tags": few(map(rule.shown.format, wrong)), "here": residue}
            yield Finding(rule.name, rule.severity, rule.found.format_map(facts), rule.mend.format_map(facts))


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


def of_spaces(spaces: Sequence[Space]) -> Iterator[Finding]:
    for space in spaces:
        size = 1 << space.bits
        if len(space.held) >= WARN_FROM * size:
            yield Finding(
                "workers-run-out",
                OUTAGE,
                f"{len(space.held)} of {size} worker numbers of the space {space.name!r} are held",
                f"run fewer processes that lease them, or lease wider ones; that of a process that was killed is held "
                f"for {2 * space.length_ms / 1000:g} s",
            )


def of_clocks(ahead: float) -> Iterator[Finding]:
    """Check the clock skew: `ahead` is this clock minus the database's, in seconds."""
    apart = abs(ahead)
    if apart > CLOCK_SECONDS:
        yield Finding(
            "clocks-differ",
            OUTAGE if apart > REFUSED_SECONDS else NOTE,
            f"this machine's clock is {apart:.0f} s {'ahead of' if ahead > 0 else 'behind'} the database's: the time "
            "in snowflakes and meteors may be wrong, and a clock far ahead of the database's leases no worker number",
            "synchronize both with the same NTP servers (check with chronyc tracking, timedatectl)",
        )

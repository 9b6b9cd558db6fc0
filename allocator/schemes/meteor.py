"""Meteor: a time, a registered node and a sequence; it reads the clock only at the start.

    sign 1 | second 29 | node 20 | sequence 11 | random 3

second     seconds since the epoch (2020-12-10T00:00:00Z) at registration; incremented whenever the sequence wraps,
           whatever the clock says
node       registered by auto-increment, new for every start and never reused: this makes ids unique
sequence   incremented before each id, so that the first id has sequence 1
random     16-bit xorshift % 7, so never 7: it hides how many ids lie between two

The second field lasts for 17 years at 2048 ids a second. Ids may be drawn faster: a generator ahead of the clock is
harmless, since no other one has its node. At the end of the field it raises an error and never wraps.
Source: TheFutureIsOurs/meteor.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import accumulate, chain, cycle, islice, pairwise

from allocator.errors import AllocatorError, Exhausted, NodeIdsExhausted
from allocator.schemes.formats.bit_layout import MAX_EPOCH, Format, Layout, check_layout, moment
from allocator.schemes.shared.argument_checks import check_whole
from allocator.schemes.shared.retry_pace import Pace, Wait

EPOCH = 1_607_558_400
METEOR = Layout(sign=1, second=29, node=20, sequence=11, random=3)
MAX_SEED = 0xFFFF
RANDOMS = 7

MORE_NODES = (
    "for all processes at once, give the node bits of the second, and keep the epoch; with any other layout or epoch, "
    "ids of the same column may come again"
)
"""A second with fewer bits stands higher, so that new ids are above all old ones."""
WARN_FROM = 0.8
"""From this share of used node numbers on, each registration logs a warning, and the doctor reports an outage ahead."""


def xorshift(state: int) -> int:
    """The next of 65535 states of 16 bits: with these shifts the period holds each number but 0."""
    state ^= (state << 7) & MAX_SEED
    state ^= state >> 9
    return state ^ ((state << 8) & MAX_SEED)


@cache
def period() -> tuple[bytes, dict[int, int]]:
    """One period of random fields from seed 1, and the place of each seed in it. Computed once, in 20 ms."""
    randoms, places, state = bytearray(), {}, 1
    for place in range(MAX_SEED):
        places[state] = place
        state = xorshift(state)
        randoms.append(state % RANDOMS)
    return bytes(randoms), places


@cache
def differences(step: int, limit: int) -> tuple[Sequence[int], Sequence[int]]:
    """One period of random fields up to `limit`, and the differences between consecutive ids."""
    values = [value % min(RANDOMS, limit + 1) for value in period()[0]]
    between = [step + after - before for before, after in pairwise([*values, values[0]])]
    return values, bytes(between) if max(between) < 256 else array("q", between)


@dataclass(frozen=True, slots=True)
class MeteorSettings:
    """The format of an allocator's meteor ids. `epoch` is in seconds since 1970."""

    epoch: int = EPOCH
    layout: Layout = METEOR

    @property
    def form(self) -> Format:
        return Format(self.layout, self.epoch)

    def first_id_at(self, at: datetime) -> int:
        """The least id of a second, for `WHERE id >= …`; 0 before the epoch. A time without a zone is UTC.

        A process counts on from the second of its start: its later ids may be of an earlier second.
        """
        return self.form.first_id_at(at)

    def checked(self) -> MeteorSettings:
        check_layout(self.layout, METEOR)
        check_whole("epoch", self.epoch, 0, MAX_EPOCH)
        return self


class MeteorBlocks:
    """The ids of one node, one second at a time, by checked settings. Not thread-safe: callers hold a lock."""

    __slots__ = ("_between", "_place", "_randoms", "_sequence", "_step", "form", "layout", "node", "second")

    def __init__(self, node: int, second: int, seed: int, settings: MeteorSettings) -> None:
        self.form = settings.form
        self.layout = layout = settings.layout
        self.node = check_whole("node", node, 0, layout.limit("node"))
        self.second = check_whole("second", second, 0, layout.limit("second"))
        self._place = period()[1][check_whole("seed", seed, 1, MAX_SEED)]
        self._step = 1 << layout.shift("sequence")
        self._randoms, self._between = differences(self._step, layout.limit("random"))
        self._sequence = 1

    @property
    def at_end(self) -> bool:
        return self.second > self.layout.limit("second")

    def take(self) -> Iterator[int]:
        """The remaining ids of the present second, in order; each step of the iterator is one C call."""
        if self.at_end:
            raise Exhausted(
                f"meteor node {self.node} has used its last second, {moment(self.form.time(self.second - 1))}; "
                "register a new node"
            )
        first = self.layout.pack(second=self.second, node=self.node, sequence=self._sequence)
        count = self.layout.limit("sequence") + 1 - self._sequence
        place, self._place = self._place, (self._place + count) % MAX_SEED
        self.second, self._sequence = self.second + 1, 0
        # accumulate() adds in C, without a Python call per id.
        return accumulate(self._steps(place, count - 1), initial=first | self._randoms[place])

    def _steps(self, place: int, count: int) -> Iterable[int]:
        if place + count <= MAX_SEED:
            return self._between[place : place + count]
        return islice(chain(self._between[place:], cycle(self._between)), count)


@dataclass(frozen=True, slots=True, eq=False)
class NodeClaim:
    """Ask the database for a node number."""


@dataclass(frozen=True, slots=True)
class Node:
    """One start of a meteor generator; its number is never used again."""

    number: int
    host: str
    process: int
    version: str
    started_at: datetime


def check_node(number: int, layout: Layout) -> str:
    """A warning when node numbers run short, empty otherwise. Raises `NodeIdsExhausted` beyond the layout's width."""
    limit = layout.limit("node")
    if number > limit:
        raise NodeIdsExhausted(
            f"node {number} does not fit the layout {layout}, whose greatest node is {limit}; {MORE_NODES}"
        )
    if number >= WARN_FROM * limit:
        return f"{100 * number // limit} % of the node numbers of layout {layout} are used: {number} of {limit}"
    return ""


class RegisteredMeteor:
    """The ids of one process, under nodes that it registers on demand. Pure, and driven like `Segments`."""

    __slots__ = ("blocks", "pace")
    stopped: AllocatorError | None = None

    def __init__(self, lost_after: float = 60.0) -> None:
        self.blocks: MeteorBlocks | None = None
        self.pace: Pace[NodeClaim] = Pace(lost_after)

    def take(self) -> Iterable[int]:
        """The next second's ids; none without a node, or when the node has used its last second."""
        return () if self.blocks is None or self.blocks.at_end else self.blocks.take()

    def want(self, now: float, missing: int = 1) -> NodeClaim | Wait | None:
        if (self.blocks is not None and not self.blocks.at_end) or self.pace.busy(now):
            return None
        return self.pace.wait(now) or self.pace.begin(NodeClaim(), now)

    def committed(self, claim: NodeClaim, blocks: MeteorBlocks, now: float) -> None:
        if self.pace.succeeded(claim):
            self.blocks = blocks

    def failed(self, claim: NodeClaim, error: AllocatorError, now: float) -> None:
        self.pace.failed(claim, error, now)

"""The backend of one database, or of several that are shards of one fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import TypeVar

from allocator.database.store import Database
from allocator.errors import AllocatorClosed, AllocatorError, FleetGrowing, InvalidTag, MaxValueWentBack
from allocator.fleet.shard_rotation import FAULTS, TAG_FAULTS, Handle, Shards
from allocator.fleet.tag_administration import Tags
from allocator.runtime.thread_pool import Background
from allocator.schemes.shared.residues import Seen
from allocator.schemes.tag import Tag
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease

T = TypeVar("T")

PART_OF_TIMEOUT = 0.9
"""A claim or draw ends before its caller's timeout, so that the caller learns the reason of a failure."""

OF_ONE_DATABASE = (
    "open_segment",
    "claim_segment",
    "register_node",
    "lease_number",
    "renew_number",
    "release_number",
)
"""The verbs of an only database: called on it directly, even if it is one shard of several."""


class Fleet:
    """Fulfils `Backend`. Safe to use from several threads. Nothing is opened before the first call."""

    def __init__(
        self,
        databases: Sequence[Database],
        background: Background,
        fleet: str | None,
        timeout: float,
    ) -> None:
        self._timeout = timeout
        self._shards = Shards(databases, background, fleet)
        self._templates: dict[str, tuple[Tag, bool]] = {}
        self.is_alone = len(databases) == 1
        self.open = self._shards.open
        self.databases = self._shards.databases
        self.troubles = self._shards.troubles
        self.abandon = self._shards.abandon
        self.close = self._shards.close
        if self.is_alone:
            for verb in OF_ONE_DATABASE:
                setattr(self, verb, getattr(databases[0], verb))

    @property
    def shown(self) -> str:
        return ", ".join(database.address.shown for database in self.databases())

    @property
    def files(self) -> list[str]:
        """The files of embedded databases."""
        return [file for database in self.databases() if (file := database.address.file)]

    def ticket(self, kind: str, end: float) -> int:
        """Draw the next ticket of a type from the next shard, before `end`."""
        end -= (1 - PART_OF_TIMEOUT) * self._timeout
        return self._on_a_shard(partial(Handle.draw, kind=kind, take=self._shards.take), end, FAULTS)

    def open_segment(self, template: Tag, create: bool) -> Tag:
        tag = self._on_a_shard(lambda shard: shard.database.open_segment(template, create), self._end(), TAG_FAULTS)
        self._templates[tag.name] = (template, create)
        return tag

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        def claim(shard: Handle) -> range:
            # A shard that is new, or was away, has not read the row of the tag.
            if not shard.database.has_opened(name):
                shard.database.open_segment(*self._templates[name])
            return shard.database.claim_segment(name, size, seen, exact=exact)

        return self._on_a_shard(claim, self._end(), TAG_FAULTS)

    def register_node(self) -> int:
        return self.lead().register_node()

    def lease_number(self, claim: NumberClaim) -> NumberLease:
        return self.lead().lease_number(claim)

    def renew_number(self, lease: NumberLease, wall_ms: int) -> None:
        self.lead().renew_number(lease, wall_ms)

    def release_number(self, lease: NumberLease, used_ms: int) -> None:
        self.lead().release_number(lease, used_ms)

    def _end(self) -> float:
        return monotonic() + PART_OF_TIMEOUT * self._timeout

    def _on_a_shard(self, act: Callable[[Handle], T], end: float, faults: tuple[type[AllocatorError], ...]) -> T:
        """Act on the next shard. After a fault of that shard act on another one, until `end`."""
        self._shards.open()
        refusals: dict[int, AllocatorError] = {}
        while True:
            shard = self._shards.next()
            try:
                return act(shard)
            except (AllocatorClosed, InvalidTag):
                raise
            except FleetGrowing as error:
                refusals[shard.number] = error
            except faults as error:
                self._shards.fail(shard, error)
                if monotonic() >= end:
                    raise
            except MaxValueWentBack:
                raise
            except AllocatorError as error:  # the shard is sound and refuses this request
                refusals[shard.number] = error
            self._raise_if_refused(refusals, end)

    def _raise_if_refused(self, refusals: dict[int, AllocatorError], end: float) -> None:
        """Raise when every shard in use has refused. Wait for a fleet that grows."""
        if len(refusals) < max(1, self._shards.in_use()):
            return
        last = list(refusals.values())[-1]
        if not isinstance(last, FleetGrowing) or monotonic() >= end:
            raise last
        self._shards.pause()
        refusals.clear()

    def ping(self) -> None:
        if self.is_alone:
            self.databases()[0].ping()
        else:
            self._on_a_shard(lambda shard: self._shards.take(shard, shard.look()), self._end(), TAG_FAULTS)

    def create_tables(self) -> None:
        for database in self.databases():
            database.upgrade_schema()

    def tags(self, template: Tag) -> Tags:
        return Tags(self.serving, template)

    def lead(self) -> Database:
        """The database that numbers nodes, leases workers and keeps tokens for the fleet."""
        return self._shards.lead() if self._has_shards() else self.databases()[0]

    def serving(self) -> list[Database]:
        """All databases that serve these tags."""
        return self._shards.all() if self._has_shards() else self.databases()

    def _has_shards(self) -> bool:
        """Whether there are several shards; an only database may name others."""
        return not self.is_alone or self.databases()[0].has_siblings()

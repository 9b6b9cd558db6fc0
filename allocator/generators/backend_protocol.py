"""Where ids come from: each verb that a database, a fleet, a service or a test in memory must have, stated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from allocator.errors import AllocatorError
from allocator.schemes.layout import Layout
from allocator.schemes.residues import Seen
from allocator.schemes.segment import Claim
from allocator.schemes.snowflake import Lease, LeaseClaim
from allocator.schemes.tag import Tag


@runtime_checkable
class Backend(Protocol):
    """Blocking, and safe to use from several threads. Nothing is opened before the first call.

    Each call may be repeated at any time: what the first one claimed is a gap then.
    """

    @property
    def shown(self) -> str:
        """The URL or URLs without passwords."""

    def open_segment(self, template: Tag, create: bool) -> Tag:
        """The settings of a tag. A missing tag is made like `template` where `create` allows it."""

    def open_segments(self, templates: Sequence[Tag], create: bool) -> list[Tag]:
        """The same for several tags, of as many as are there."""

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        """`size` ids above those `seen`; fewer, if no more remain and they need not be `exact`."""

    def claim_segments(self, claims: Mapping[str, Claim]) -> dict[str, range]:
        """Segments of as many of these tags as can be claimed at once; never the error of one tag alone."""

    def ticket(self, kind: str, end: float) -> int:
        """The next ticket of a type, before `end` on the monotonic clock."""

    def register_node(self) -> int:
        """A new node number."""

    def lease_worker(self, claim: LeaseClaim, layout: Layout, epoch: int) -> Lease:
        """Lease a worker, or renew `claim.lease`."""

    def tags(self, template: Tag) -> Any:
        """The `Tags` of `allocator.fleet.tags`: their administration."""

    def ping(self) -> None:
        """Raise what a claim would raise now, as far as one round trip tells."""

    def create_tables(self) -> None:
        """Bring the schema up to date."""

    def troubles(self) -> Sequence[AllocatorError | None]:
        """Of each shard, why it is left alone, if it is; nothing where there are none."""

    def close(self) -> None: ...

    def abandon(self) -> None:
        """After a fork, in the child."""

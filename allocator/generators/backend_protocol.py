"""The protocol of a backend: a database, a fleet of several, a service, or memory in a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from allocator.errors import AllocatorError
from allocator.schemes.shared.residues import Seen
from allocator.schemes.tag import Tag
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease


@runtime_checkable
class Backend(Protocol):
    """The source of ids. Blocking, safe to use from several threads, and opens nothing before the first call.

    Every call may be repeated; the ids that the first one claimed become a gap.
    """

    @property
    def shown(self) -> str:
        """The URL or URLs without passwords."""

    def open_segment(self, template: Tag, create: bool) -> Tag:
        """Fetch a tag; if it is missing and `create`, create it from `template`. Raises `UnknownTag`."""

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        """Claim `size` ids above those in `seen`; fewer if fewer are left, unless `exact`."""

    def ticket(self, kind: str, end: float) -> int:
        """Draw a ticket of a type. Of several databases none is asked after `end`, of the monotonic clock."""

    def register_node(self) -> int:
        """Register a new node number."""

    def lease_number(self, claim: NumberClaim) -> NumberLease:
        """Lease a free worker number of a space."""

    def renew_number(self, lease: NumberLease, wall_ms: int) -> None:
        """Raises `LeaseLost`. `wall_ms` is the holder's wall clock, read before the call."""

    def release_number(self, lease: NumberLease, used_ms: int) -> None:
        """Give a worker number back; it was not used after the millisecond `used_ms` of the wall clock."""

    def tags(self, template: Tag) -> Any:
        """The `Tags` of `allocator.fleet.tag_administration`, for administration."""

    def ping(self) -> None:
        """Raise the error by which the rows cannot be read now, in one round trip."""

    def create_tables(self) -> None:
        """Bring the schema up to date."""

    def troubles(self) -> Sequence[AllocatorError | None]:
        """The error of each database of a fleet that is skipped, None for the others; empty without a fleet."""

    def close(self) -> None: ...

    def abandon(self) -> None:
        """Forget the parent's connections in a forked child, without closing them."""

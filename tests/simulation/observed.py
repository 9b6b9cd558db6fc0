"""The real `Allocator`, with somebody who writes down what the database brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from allocator import Allocator
from allocator.generators.backend_protocol import Backend
from allocator.schemes.segment_refill import Claim, Segments
from allocator.schemes.shared.residues import Seen
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease
from simulation.scheduler import current

if TYPE_CHECKING:
    from simulation.process import Process


class Watched:
    """Passes everything on."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_backend"], name)

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        found = self._backend.claim_segment(name, size, seen, exact=exact)
        process = acting()
        process.world.account.brought(process, name, found)
        if exact:
            process.burnt[name] += len(found)  # until the call returns it
        return found

    def lease_number(self, claim: NumberClaim) -> NumberLease:
        lease = self._backend.lease_number(claim)
        acting().world.account.leases.leased(acting(), lease, claim.wall_ms)
        return lease

    def renew_number(self, lease: NumberLease, wall_ms: int) -> None:
        self._backend.renew_number(lease, wall_ms)
        acting().world.account.leases.leased(acting(), lease, wall_ms)

    def release_number(self, lease: NumberLease, used_ms: int) -> None:
        acting().world.account.leases.released(lease, used_ms)
        self._backend.release_number(lease, used_ms)

    def register_node(self) -> int:
        node = self._backend.register_node()
        acting().world.account.leases.registered(acting(), node)
        return node


def acting() -> Process:
    task = current()
    assert task is not None
    return task.process


class ObservedAllocator(Allocator):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._change(cast(Any, Watched(self.backend)))


committed = Segments.committed


def note_what_is_late(core: Segments, claim: Claim, segment: range, now: float) -> None:
    """Stands for `Segments.committed`, under the lock: a claim that was given up is burnt when it ends after all."""
    if claim is not core.pace.under_way:
        process = acting()
        for tag in [tag for tag, supply in process.ids._sequences.items() if supply._core is core]:
            process.burnt[tag] += len(segment)
            process.world.account.counts["claims that ended late"] += 1
    committed(core, claim, segment, now)

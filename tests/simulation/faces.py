"""The real `Allocator` in a simulated process: what stands for its clocks, threads and databases, and its fork.

A fork copies every object of a process's memory as it is at that moment, locks held and all. Only the thread that forks
is there in the child; what the others were doing is never gone on with.
"""

from __future__ import annotations

import gc
import logging
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from types import FunctionType, MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast
from unittest.mock import patch
from weakref import WeakSet

import allocator.aio
import allocator.database.store
import allocator.fleet.fleet_backend
import allocator.generators.meteor
import allocator.generators.sequence
import allocator.generators.snowflake
import allocator.generators.supply
import allocator.runtime.forks
import allocator.runtime.threads
import allocator.sync
from allocator import Allocator
from allocator.backend import SHARES
from allocator.database.store import Database
from allocator.fleet.fleet_backend import Alone, Fleet
from allocator.generators.backend_protocol import Backend
from allocator.runtime.forks import RANGES
from allocator.schemes import worker_number_lease
from allocator.schemes.segment_refill import Claim, Segments
from allocator.schemes.shared.residues import Seen
from allocator.schemes.worker_number_lease import Clocks, NumberClaim, NumberLease
from simulation import scheduler, threads
from simulation.account import SNOWFLAKE
from simulation.dialect import imitation
from simulation.network import Engine
from simulation.scheduler import Time, monotonic, running
from simulation.seeds import Violation

if TYPE_CHECKING:
    from simulation.process import Process

T = TypeVar("T")


# -- what the database brings is written down


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
        self._holds(lease, claim.wall_ms)
        return lease

    def renew_number(self, lease: NumberLease, wall_ms: int) -> None:
        self._backend.renew_number(lease, wall_ms)
        self._holds(lease, wall_ms)

    def _holds(self, lease: NumberLease, wall_ms: int) -> None:
        """From the first request to a length after the last one."""
        workers = acting().world.account.workers
        workers.held(lease.number, lease.holder, acting(), wall_ms, wall_ms + lease.length_ms)

    def release_number(self, lease: NumberLease, used_ms: int) -> None:
        acting().world.account.workers.ends(lease.number, lease.holder, used_ms)
        self._backend.release_number(lease, used_ms)

    def register_node(self) -> int:
        node = self._backend.register_node()
        if acting().world.account.nodes.setdefault(node, acting()) is not acting():
            raise Violation(f"node {node} is of two")
        return node


def acting() -> Process:
    return running().process


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


# -- what stands for the world


def dice() -> Any:
    return running().scheduler.random


def backend_of(database: Any, shards: Any, token: Any, background: Any, timeout: float) -> Any:
    if database is not None:
        return Alone(database, timeout)
    return Fleet([Database(one, timeout / SHARES) for one in shards], background, timeout)


run = Database.run


def run_imitation(database: Database, verb: Any, *args: Any) -> Any:
    return run(database, imitation(verb), *args)


MODULES = (
    allocator.database.store,
    allocator.fleet.fleet_backend,
    allocator.generators.meteor,
    allocator.generators.sequence,
    allocator.generators.snowflake,
    allocator.generators.supply,
    allocator.runtime.forks,
    allocator.runtime.threads,
    allocator.sync,
)
FACES = {
    "__version__": "simulated",
    "_thread": SimpleNamespace(start_new_thread=threads.start_new_thread),
    "address_of": lambda place: place,
    "alive": WeakSet(),
    "backend_of": backend_of,
    "engine_of": lambda place, timeout: place.engine(timeout),
    "monotonic": monotonic,
    "queue": SimpleNamespace(SimpleQueue=threads.SimpleQueue),
    "randbelow": lambda limit: dice().randrange(limit),
    "randbits": lambda bits: dice().getrandbits(bits),
    "random_holder": lambda: dice().randbytes(16).hex(),
    "read_clocks": lambda: Clocks(monotonic(), int(Time.time() * 1000)),
    "sleep": scheduler.pause,
    "takes_signals": lambda: False,
    "this_process": lambda: ("simulated", acting().number),
    "threading": threads.Threading,
    "time": Time.time,
    "time_ns": lambda: int(Time.time() * 1e9),
    "uniform": lambda low, high: dice().uniform(low, high),
    "urandom": lambda size: dice().randbytes(size),
}
"""By name, in each of these modules that has it."""


@contextmanager
def faces() -> Iterator[None]:
    """For as long as worlds are run, which do not look through what others left in memory at every collection."""
    gc.collect()
    gc.freeze()
    log = logging.getLogger("allocator")
    level = log.level
    with ExitStack() as stack:
        for module in MODULES:
            names = {name: face for name, face in FACES.items() if hasattr(module, name)}
            stack.enter_context(patch.multiple(module, **names))
        stack.enter_context(patch.multiple(Database, run=run_imitation, transact=run_imitation))
        stack.enter_context(patch.object(Segments, "committed", note_what_is_late))
        stack.enter_context(patch.object(worker_number_lease, "SNOWFLAKE_SECONDS", SNOWFLAKE.lease))
        log.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            log.setLevel(level)
            gc.unfreeze()
            gc.collect()


# -- a fork


COPIED = ("allocator.", "simulation.threads")
"""The modules whose objects hold what a process has; all others are values, or outside of it."""
COLLECTIONS = (dict, list, deque)
SHARED = (FunctionType, type, threads.Thread)


def forked(thing: T) -> T:
    """The child's own copy of an allocator or generator."""
    copied: T = Copier().copy(thing)
    return copied


class Copier:
    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._kept: list[Any] = []

    def copy(self, thing: Any) -> Any:
        if id(thing) not in self._made:
            self._made[id(thing)] = self._copied(thing)
            self._kept.append(thing)  # so that no other object gets its number
        return self._made[id(thing)]

    def _copied(self, thing: Any) -> Any:
        if isinstance(thing, weakref.finalize):
            return SimpleNamespace(atexit=False, detach=lambda: None)  # the parent's stays
        if isinstance(thing, RANGES):
            return copy(thing)
        if isinstance(thing, MethodType):
            return MethodType(thing.__func__, self.copy(thing.__self__))
        if isinstance(thing, Engine):
            return Engine(thing._place, thing._timeout)
        if isinstance(thing, weakref.WeakValueDictionary):
            return weakref.WeakValueDictionary({key: self.copy(value) for key, value in thing.items()})
        return self._filled(thing) if isinstance(thing, COLLECTIONS) or self._is_held(thing) else thing

    def _is_held(self, thing: Any) -> bool:
        held = type(thing).__module__.startswith(COPIED) or isinstance(thing, ObservedAllocator | Watched)
        return held and not isinstance(thing, (*SHARED, Exception)) and not isinstance(thing, tuple)

    def _filled(self, thing: Any) -> Any:
        kind = type(thing)
        made = self._made[id(thing)] = (kind if isinstance(thing, COLLECTIONS) else object).__new__(kind)
        for each in kind.__mro__:
            for name in each.__dict__.get("__slots__", ()):
                if name not in {"__weakref__", "__dict__"} and hasattr(thing, name):
                    object.__setattr__(made, name, self.copy(getattr(thing, name)))
        for name, value in getattr(thing, "__dict__", {}).items():
            made.__dict__[name] = self.copy(value)
        if isinstance(thing, dict):
            made.update({key: self.copy(value) for key, value in thing.items()})
        elif isinstance(thing, COLLECTIONS):
            made.extend(self.copy(one) for one in thing)
        return made

"""Puts the simulated clocks, threads and databases in the place of the real ones, for the modules of the allocator."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
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
from allocator.backend import ATTEMPTS
from allocator.database.store import Database
from allocator.fleet.fleet_backend import Alone, Fleet
from allocator.schemes import worker_number_lease
from allocator.schemes.segment_refill import Segments
from allocator.schemes.worker_number_lease import Clocks
from simulation import clocks, threads
from simulation.dialect import imitation
from simulation.leases import SNOWFLAKE
from simulation.observed import note_what_is_late
from simulation.scheduler import current


def dice() -> Any:
    task = current()
    assert task is not None
    return task.scheduler.random


def backend_of(database: Any, shards: Any, token: Any, headers: Any, background: Any, timeout: float) -> Any:
    if database is not None:
        return Alone(database, timeout)
    return Fleet([Database(one, timeout / ATTEMPTS) for one in shards], background, timeout)


run = Database.run


def run_imitation(database: Database, verb: Any, *args: Any) -> Any:
    return run(database, imitation(verb), *args)


STORE = {
    "threading": threads.Threading,
    "address_of": lambda place: place,
    "monotonic": clocks.monotonic,
    "engine_of": lambda place, timeout: place.engine(timeout),
    "sleep": clocks.sleep,
    "takes_signals": lambda: False,
    "randbits": lambda bits: dice().getrandbits(bits),
    "randbelow": lambda limit: dice().randrange(limit),
    "time_ns": lambda: int(clocks.Time.time() * 1e9),
    "__version__": "simulated",
    "this_process": lambda: ("simulated", current().process.number),  # type: ignore[union-attr]
}
FACES: tuple[tuple[Any, dict[str, Any]], ...] = (
    (
        allocator.generators.supply,
        {"monotonic": clocks.monotonic, "threading": threads.Threading},
    ),
    (Segments, {"committed": note_what_is_late}),
    (allocator.generators.sequence, {"monotonic": clocks.monotonic}),
    (
        allocator.sync,
        {"monotonic": clocks.monotonic, "backend_of": backend_of},
    ),
    (allocator.fleet.fleet_backend, {"monotonic": clocks.monotonic, "threading": threads.Threading}),
    (
        allocator.generators.snowflake,
        {
            "monotonic": clocks.monotonic,
            "read_clocks": lambda: Clocks(clocks.monotonic(), int(clocks.Time.time() * 1000)),
            "random_holder": lambda: dice().randbytes(16).hex(),
            "this_process": lambda: ("simulated", current().process.number),  # type: ignore[union-attr]
        },
    ),
    (worker_number_lease, {"SNOWFLAKE_SECONDS": SNOWFLAKE.lease}),
    (
        allocator.generators.meteor,
        {"time": clocks.Time.time, "urandom": lambda size: dice().randbytes(size)},
    ),
    (allocator.runtime.forks, {"threading": threads.Threading, "alive": WeakSet()}),
    (
        allocator.runtime.threads,
        {
            "_thread": SimpleNamespace(start_new_thread=threads.start_new_thread),
            "monotonic": clocks.monotonic,
            "queue": SimpleNamespace(SimpleQueue=threads.SimpleQueue),
            "threading": threads.Threading,
        },
    ),
    (allocator.database.store, STORE),
    (Database, {"run": run_imitation, "transact": run_imitation}),
)


@contextmanager
def faces() -> Iterator[None]:
    """For as long as worlds are run, which do not look through what others left in memory at every collection."""
    gc.collect()
    gc.freeze()
    log = logging.getLogger("allocator")
    level = log.level
    with ExitStack() as stack:
        for module, names in FACES:
            stack.enter_context(patch.multiple(module, **names))
        log.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            log.setLevel(level)
            gc.unfreeze()
            gc.collect()

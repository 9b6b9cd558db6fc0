"""Meteor generators: with a node number from the caller, or under nodes registered in the database."""

from __future__ import annotations

import logging
from os import urandom
from time import time

from allocator.generators.supply import Supply, Terms
from allocator.runtime import forks
from allocator.schemes.formats.bit_layout import Layout
from allocator.schemes.meteor import (
    EPOCH,
    MAX_SEED,
    METEOR,
    MeteorBlocks,
    MeteorSettings,
    NodeClaim,
    RegisteredMeteor,
    check_node,
)

log = logging.getLogger("allocator")


def fresh_seed() -> int:
    return 1 + int.from_bytes(urandom(8)) % MAX_SEED


class Meteor(forks.Unforkable):
    """Meteor ids of one node. Each start needs a node number that was never used; `Allocator.meteor` registers one.

    node: 0 to 1048575 in the default layout.
    second: the second field to start with, in seconds since the epoch; by default now.
    seed: seed of the random fields, 1 to 65535; by default random.
    epoch: seconds since 1970, by default 2020-12-10T00:00:00Z.

    Safe to use from several threads. Raises `InvalidSetting` for a value that does not fit its field.
    """

    _name, _given = "this meteor", "node"

    def __init__(
        self,
        node: int,
        *,
        second: int | None = None,
        seed: int | None = None,
        epoch: int = EPOCH,
        layout: Layout = METEOR,
    ) -> None:
        settings = MeteorSettings(epoch, layout).checked()
        second = settings.form.ticks(int(time())) if second is None else second
        self._blocks = MeteorBlocks(node, second, fresh_seed() if seed is None else seed, settings)
        super().__init__()

    def next_id(self) -> int:
        """The next id, greater than the last. Raises `Exhausted` when the second field has reached its end."""
        try:
            return next(self._values)
        except StopIteration:
            return self._refill()

    def _refill(self) -> int:
        forks.enter(self)
        with self._lock:
            self._check_process()
            value = next(self._values, None)  # another thread may have refilled first
            return self._serve(self._blocks.take()) if value is None else value


class MeteorSupply(Supply):
    """The meteors of an allocator. Registers a node for the first id, and when a node has used its last second."""

    _name = "meteor"

    def __init__(self, terms: Terms, settings: MeteorSettings) -> None:
        self._settings = settings
        super().__init__(terms)

    def _new_core(self) -> RegisteredMeteor:
        return RegisteredMeteor(self._terms.lost_after)

    def _claim(self, claim: NodeClaim) -> MeteorBlocks:
        settings = self._settings
        second = settings.form.ticks(int(time()))  # first: an error here must not waste a node number
        node = self._terms.backend.register_node()
        if warning := check_node(node, settings.layout):
            log.warning("meteor: %s", warning)
        return MeteorBlocks(node, second, fresh_seed(), settings)

"""Claims with their entries in the ledger; and without, where that fails and it may."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, time
from typing import Any

from allocator.database.numbers import identity, our_version
from allocator.database.runner import Runner
from allocator.errors import AllocatorClosed, AllocatorError, MaxValueWentBack
from allocator.schemes.ledger import DAY, LEFT_ALONE, Author, LedgerSettings, Standing

log = logging.getLogger("allocator")

PART, LEAST_PART = 0.5, 0.25
"""Of the timeout, that a ledger may take for itself, and what is left at least for the claim without it."""


class Recorder:
    """The ledger of one database. `later` runs a call in the background."""

    def __init__(self, settings: LedgerSettings, later: Callable[..., Any]) -> None:
        self._settings = settings
        self._later = later
        self._standing = Standing(monotonic())

    def another(self) -> Recorder:
        """For another database of the same allocator."""
        return Recorder(self._settings, self._later)

    def claim(self, database: Runner, *claim: Any) -> int | None:
        """What `claim_segment` returns."""
        required = self._settings.required
        began = monotonic()
        if not required and not self._standing.is_trusted(began):
            return database.run(database.dialect.claim_segment, *claim)
        patience = database.timeout if required else PART * database.timeout
        author = Author(*identity(), our_version())
        try:
            end = database.run_within(patience, database.dialect.claim_recorded, author, patience, *claim)
        except MaxValueWentBack:  # of these very ids there is an entry
            raise
        except AllocatorError as error:
            if required:
                raise
            return self._without(database, error, claim, monotonic() - began)
        self._sweep_sometimes(database)
        return end

    def _without(self, database: Runner, error: AllocatorError, claim: tuple[Any, ...], passed: float) -> int | None:
        """If this works, the ledger was at fault. A claim whose end nobody knows is burnt like any other."""
        if passed >= PART * database.timeout:  # its claim may still hold the row, so that this one must wait as well
            self._standing.paused(monotonic())
        rest = max(LEAST_PART * database.timeout, database.timeout - passed)
        end = database.run_within(rest, database.dialect.claim_within, rest, *claim)
        self._standing.failed(monotonic())
        log.warning(
            "the ledger of %s cannot be written, and claims go on without it for %d seconds: %s",
            database.address.shown,
            LEFT_ALONE,
            error,
        )
        return end

    def _sweep_sometimes(self, database: Runner) -> None:
        if self._standing.begins_sweep(monotonic()):
            with suppress(AllocatorClosed):
                self._later(self.sweep, database)

    def sweep(self, database: Runner) -> None:
        """Delete what is older than it is kept."""
        before = int(time() - DAY * self._settings.keep_days)
        try:
            while database.run(database.dialect.sweep_ledger, before):
                pass
        except AllocatorClosed:
            pass
        except AllocatorError as error:
            log.warning("old entries of the ledger of %s are not deleted: %s", database.address.shown, error)

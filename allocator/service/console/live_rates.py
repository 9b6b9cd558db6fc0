"""Rates and refills of the last minutes, from the metrics of all workers.

A worker reads the totals once a second: always if it is the only one, else while somebody views its pages.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from threading import Lock
from time import monotonic, time

from allocator.service.console.history import History, Sample, totals_of
from allocator.service.console.tag_table import Figure
from allocator.service.metrics import Figures

log = logging.getLogger("allocator.service")

WATCHED_SECONDS = 180.0
"""Seconds that a worker continues to read after the last view of a page."""


class LiveRates:
    """The history of the service, kept by one worker."""

    def __init__(self, metrics: Figures, is_alone: bool) -> None:
        self._metrics = metrics
        self._is_alone = is_alone
        self._watched_until = -inf
        self._lock = Lock()
        self._history = History()

    async def run(self) -> None:
        """Read until cancelled, half a second after the workers write their totals at full seconds."""
        while True:
            await asyncio.sleep(1.0 - (time() + 0.5) % 1.0)
            if self._is_wanted():
                await self._try_to_read()

    def _is_wanted(self) -> bool:
        return self._is_alone or monotonic() < self._watched_until

    async def _try_to_read(self) -> None:
        """Read, and log any error, such as no free thread, so that later reads still happen."""
        try:
            await asyncio.to_thread(self._read)
        except Exception:
            log.exception("the console could not read the metrics")

    def _read(self) -> None:
        second = int(time())
        totals = totals_of(self._metrics.collect())
        with self._lock:
            self._history.add(totals, second)

    async def watch(self) -> None:
        """Note a view of a page; read at once if the worker was not reading."""
        was_wanted, self._watched_until = self._is_wanted(), monotonic() + WATCHED_SECONDS
        if not was_wanted:
            await self._try_to_read()

    def samples(self, name: str) -> list[Sample]:
        with self._lock:
            return self._history.samples(name)

    def figures(self) -> tuple[float, dict[str, Figure]]:
        """The rate of all ids, and the figures of each tag."""
        with self._lock:
            return self._history.rate(), self._history.figures()

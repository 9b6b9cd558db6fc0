"""The console: its table of routes, and what runs beside it."""

from __future__ import annotations

import asyncio
import logging
from secrets import token_bytes
from time import monotonic, time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from allocator.service.auth import Book
from allocator.service.console.actions import Changes
from allocator.service.console.assets import PREFIX, Assets
from allocator.service.console.board import Board
from allocator.service.console.frames import SIGN_IN, Frames
from allocator.service.console.peers import Peers
from allocator.service.console.pulse import Pulse
from allocator.service.console.screen import Screen
from allocator.service.console.sessions import Sessions
from allocator.service.console.sign_in import Signing
from allocator.service.console.views import Views
from allocator.service.console.visitors import Visitors
from allocator.service.id_handlers import Ids
from allocator.service.metrics import Figures
from allocator.service.pages import to_docs
from allocator.service.readiness import Watch
from allocator.service.refusal_log import Refusals
from allocator.service.settings import ServeSettings

log = logging.getLogger("allocator.service")

TAG = "/console/tags/{tag}"
LATE = 0.02
"""Seconds: a timer may fire a little early, and that would be in the second before."""


class Console:
    """Of one worker."""

    def __init__(
        self, settings: ServeSettings, service: Ids, book: Book, watch: Watch, figures: Figures, refusals: Refusals
    ) -> None:
        self._assets = Assets()
        self._pulse = Pulse(service)
        figures.refilled = self._pulse.refilled
        self._peers = Peers(settings.folder, settings.workers)
        self._board = Board(service.sequences, self._pulse, self._peers, watch)
        visitors = Visitors(book, Sessions(settings.console_key or token_bytes(32)))
        self._frames = Frames(Screen(self._assets), visitors, book, refusals)
        self._views = Views(self._frames, self._board, settings)
        self._changes = Changes(self._frames, visitors, self._board, service.sequences, self._views)
        self._signing = Signing(self._frames, visitors)

    async def run(self) -> None:
        """Until it is cancelled: measure at each full second, so that the seconds of all workers are the same."""
        while True:
            await asyncio.sleep(1.0 - time() % 1.0 + LATE)
            try:
                for _ in self._pulse.measure(monotonic(), time()):
                    await asyncio.sleep(0)
                if self._peers.are_there:
                    await asyncio.to_thread(self._peers.tell, self._board.told)
            except Exception:
                log.exception("the figures of the console are not complete")

    def close(self) -> None:
        self._views.background.close(0.0)

    def routes(self) -> list[BaseRoute]:
        views, changes, signing, guarded = self._views, self._changes, self._signing, self._frames.guarded

        async def home(request: Request) -> Response:
            accepted = request.headers.get("accept", "")
            wants_json = "json" in accepted and "html" not in accepted
            return await (to_docs if wants_json else views.tags)(request)

        return [
            Route("/", guarded(home)),
            Route(SIGN_IN, guarded(signing.sign_in), methods=["POST"]),
            Route(SIGN_IN, guarded(signing.ask)),
            Route("/console/sign-out", guarded(signing.sign_out), methods=["POST"]),
            Route("/console/new", guarded(changes.create), methods=["POST"]),
            Route("/console/new", guarded(changes.blank)),
            Route(TAG, guarded(changes.change), methods=["POST"]),
            Route(TAG, guarded(views.tag)),
            Route("/console/series", guarded(views.series)),
            Route("/console/inspect", guarded(views.inspect)),
            Route("/console/fleet", guarded(views.fleet)),
            Route("/console/doctor", guarded(changes.look_again), methods=["POST"]),
            Route("/console/doctor", guarded(views.doctor)),
            Route(f"{PREFIX}/{{version}}/{{name}}", guarded(self._assets.answer)),
        ]

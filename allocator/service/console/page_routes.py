"""The paths of the console, and its background task."""

from __future__ import annotations

from secrets import token_bytes

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from allocator.service.auth import Book
from allocator.service.console.actions import Actions
from allocator.service.console.live_rates import LiveRates
from allocator.service.console.rendering import SIGN_IN, STATIC_PREFIX, Endpoint, Pages
from allocator.service.console.sign_in import Sessions, SignIn
from allocator.service.console.tag_data import TagData
from allocator.service.console.views import Views
from allocator.service.metrics import Figures
from allocator.service.pages import to_docs
from allocator.service.problems import Refusals
from allocator.service.readiness import Watch
from allocator.service.sequences import Sequences
from allocator.service.settings import ServeSettings


class Console:
    """The console of one worker. `run` updates the rates until cancelled."""

    def __init__(
        self,
        settings: ServeSettings,
        sequences: Sequences,
        book: Book,
        watch: Watch,
        metrics: Figures,
        refusals: Refusals,
    ) -> None:
        rates = LiveRates(metrics, is_alone=settings.workers == 1)
        self.run = rates.run
        self._pages = Pages(book, refusals)
        self._sign_in = SignIn(book, Sessions(settings.console_key or token_bytes(32)), self._pages)
        tags = TagData(sequences, rates, watch)
        self._views = Views(self._sign_in, self._pages, tags, watch, settings)
        self._actions = Actions(self._sign_in, self._pages, tags, sequences, self._views)
        self.close = self._views.close

    def routes(self) -> list[BaseRoute]:
        views, actions, sign_in = self._views, self._actions, self._sign_in

        async def home(request: Request) -> Response:
            accepted = request.headers.get("accept", "")
            wants_json = "json" in accepted and "html" not in accepted
            return await (to_docs if wants_json else views.tags)(request)

        return [
            self._route("/", GET=home),
            self._route(SIGN_IN, GET=sign_in.show, POST=sign_in.sign_in),
            self._route("/console/sign-out", POST=sign_in.sign_out),
            self._route("/console/new", GET=views.new, POST=actions.create),
            self._route("/console/tags/{tag}", GET=views.tag, POST=actions.change),
            self._route("/console/series", GET=views.series),
            self._route("/console/numbers", GET=views.numbers),
            self._route("/console/inspect", GET=views.inspect),
            self._route("/console/fleet", GET=views.fleet),
            self._route("/console/keys", GET=views.keys),
            self._route("/console/doctor", GET=views.doctor, POST=actions.examine_again),
            self._route(f"{STATIC_PREFIX}/{{version}}/{{name:path}}", GET=self._pages.static),
        ]

    def _route(self, path: str, **endpoints: Endpoint) -> Route:
        async def answer(request: Request) -> Response:
            return await endpoints["GET" if request.method == "HEAD" else request.method](request)

        return Route(path, self._pages.guarded(answer), methods=list(endpoints))

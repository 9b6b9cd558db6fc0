"""What all pages have in common: who looks, what the head of a page shows, and how a refusal looks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import time
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from allocator.errors import AllocatorError
from allocator.service.auth import Book
from allocator.service.console.screen import HEADERS, Screen
from allocator.service.console.visitors import Visitor, Visitors
from allocator.service.problems import HttpRefusal, Unauthorized, detail_of, status_of
from allocator.service.refusal_log import Refusals

Endpoint = Callable[[Request], Awaitable[Response]]

SIGN_IN = "/console/sign-in"


class Frames:
    def __init__(self, screen: Screen, visitors: Visitors, book: Book, refusals: Refusals) -> None:
        self._screen = screen
        self._visitors = visitors
        self._book = book
        self._refusals = refusals

    async def visitor(self, request: Request) -> Visitor:
        return await self._visitors.of(request)

    def show(
        self, request: Request, visitor: Visitor | None, template: str, status: int = 200, **values: Any
    ) -> Response:
        path = request.scope["path"]
        return self._screen.show(
            template, status, visitor=visitor, path=path, clock=time(), is_away=self._book.failure is not None, **values
        )

    def guarded(self, answer: Endpoint) -> Endpoint:
        """An endpoint of which every error becomes a page; who may sign in is sent to where that is done."""

        async def run(request: Request) -> Response:
            try:
                return await answer(request)
            except Unauthorized as error:
                return self._to_sign_in(request, error)
            except AllocatorError as error:
                return self._refused(request, error)

        return run

    def _to_sign_in(self, request: Request, error: AllocatorError) -> Response:
        if request.method != "GET":
            return self._refused(request, error)
        if "hx-request" in request.headers:
            return Response(status_code=401, headers=HEADERS | {"hx-redirect": SIGN_IN})
        query = request.scope["query_string"].decode("latin-1")
        there = quote(request.scope["path"] + (f"?{query}" if query else ""), safe="")
        wanted = f"?next={there}" if there != "%2F" else ""
        return RedirectResponse(f"{SIGN_IN}{wanted}", 303, HEADERS)

    def _refused(self, request: Request, error: AllocatorError) -> Response:
        status, headers, _ = self._refusals.tell(error, request.scope)
        answer = self.show(
            request, None, "refused.html", status, detail=detail_of(error), request_name=headers["x-request-id"]
        )
        for name in ("retry-after", "x-request-id", "connection"):
            if name in headers:
                answer.headers[name] = headers[name]
        return answer


def refusal_of(error: AllocatorError) -> tuple[str, int]:
    """What a form says beside its fields, and the status of that page. Raises what is no matter of the form."""
    status = status_of(error)
    if status >= 500 or isinstance(error, HttpRefusal | Unauthorized):
        raise error
    return detail_of(error), status

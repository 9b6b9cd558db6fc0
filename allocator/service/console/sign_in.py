"""In and out: a token is taken once, and a cookie is given for it; see `sessions`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from allocator.service.auth import EVERYTHING, is_here
from allocator.service.console.actions import form_of, see
from allocator.service.console.frames import Frames
from allocator.service.console.sessions import LIFETIME, own_path
from allocator.service.console.visitors import Visitors, check_source, name_for
from allocator.service.handlers import headers_of
from allocator.service.problems import Unauthorized

REFUSED = "this token is not known here, was revoked or has expired"


class Signing:
    def __init__(self, frames: Frames, visitors: Visitors) -> None:
        self._frames = frames
        self._visitors = visitors

    async def ask(self, request: Request) -> Response:
        return self._form(request, request.query_params.get("next", "/"))

    def _form(self, request: Request, there: str, refusal: str = "", status: int = 200) -> Response:
        host = request.headers.get("host", "").encode()
        is_plain = request.scope["scheme"] != "https" and not is_here(host)
        values = {"next": own_path(there), "refusal": refusal, "is_plain": is_plain}
        is_foreign = request.headers.get("sec-fetch-site") == "cross-site"
        return self._frames.show(request, None, "sign_in.html", status, **values, is_foreign=is_foreign)

    async def sign_in(self, request: Request) -> Response:
        check_source(request)
        form = await form_of(request)
        there = own_path(form.get("next", "/"))
        try:
            grant = await self._visitors.book.of_secret(form.get("token", "").encode(), headers_of(request))
        except Unauthorized:
            return self._form(request, there, REFUSED, 401)
        grant.admit()
        answer = see(there)
        if grant.token is not EVERYTHING:
            self._keep(request, answer, self._visitors.sessions.issue(grant.digest), LIFETIME)
        return answer

    async def sign_out(self, request: Request) -> Response:
        await self._visitors.check_change(request, await form_of(request))
        answer = see("/console/sign-in")
        self._keep(request, answer, "", 0)
        return answer

    def _keep(self, request: Request, answer: Response, session: str, seconds: int) -> None:
        answer.set_cookie(
            name_for(request),
            session,
            max_age=seconds,
            path="/",
            secure=request.scope["scheme"] == "https",
            httponly=True,
            samesite="strict",
        )

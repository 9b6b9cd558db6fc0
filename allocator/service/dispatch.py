"""Between FastAPI and the handlers: the token, its rights, limits of query and body, and errors as problem+json."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, get_type_hints

from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette import routing
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from allocator.errors import AllocatorError, InvalidCount, InvalidSetting
from allocator.service.auth import Principal, TokenCache
from allocator.service.error_responses import NO_STORE, ErrorReporter, HttpRefusal, request_name
from allocator.service.log_config import NUMBER

BODY_SECONDS = 10.0
"""The server bounds the time of a head only."""
MAX_BODY = 65_536
MAX_FORM = 4096
"""Bytes of a form. It is read before its token is checked, so anybody can send it, on many connections."""
MAX_QUERY = 4096
BODY, QUERY = "form", "wanted"
"""The arguments of a handler that are a body and a query. Others are parts of the path."""

Endpoint = Callable[[Request], Awaitable[Response]]
Reader = Callable[[Request, bytes], Any]
"""Reads an argument of a handler from a request and its body."""

MESSAGES = {
    400: "the body must be a JSON object with the fields in /openapi.json",
    404: "there is no such path; see /openapi.json for all paths",
    500: "internal error; the operator of the service finds a traceback in the log",
}


class Right(NamedTuple):
    """What a token needs for a route: a verb on the tag, ticket type or space in the path; or on a scheme."""

    verb: str
    scheme: str | None = None


ANY_TOKEN = Right("")


class GuardedRoute(APIRoute):
    """A route of the API. It finds the token and checks its right before it reads a body.

    It reads the arguments itself, by the annotations from which FastAPI describes them: FastAPI looks into these again
    at each request, for longer than most answers take.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], *, right: Right, **described: Any) -> None:
        self.right = right
        hints = {name: hint for name, hint in get_type_hints(endpoint, include_extras=True).items() if name != "return"}
        self.takes_body = BODY in hints
        self.readers = {name: reader_of(name, hint) for name, hint in hints.items()}
        extra = {"x-verb": right.verb, "x-scheme": right.scheme, **described.pop("openapi_extra", {})}
        shown = {name: value for name, value in extra.items() if value}
        super().__init__(path, endpoint, openapi_extra=shown, **described)

    def get_route_handler(self) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            dispatch: Dispatch = request.app.state.dispatch
            return await dispatch.guarded(lambda request: dispatch.answer(self, request))(request)

        return answer


class Dispatch:
    """Makes Starlette endpoints of routes."""

    def __init__(self, token_cache: TokenCache, error_reporter: ErrorReporter) -> None:
        self._token_cache = token_cache
        self._error_reporter = error_reporter

    async def answer(self, route: GuardedRoute, request: Request) -> Response:
        principal, right = await self.principal_of(request), route.right
        if right is not ANY_TOKEN:
            principal.check(right.verb, right.scheme or next(iter(request.path_params.values()), None))
        request.state.principal = principal
        if len(query := request.scope["query_string"]) > MAX_QUERY:
            raise HttpRefusal(414, f"the query may have at most {MAX_QUERY} bytes, got {len(query)}")
        # The body last: a caller without rights must not make this process hold 64 KB for each connection.
        raw = await body_within(request)
        if not route.takes_body and raw.strip() not in {b"", b"{}"}:
            raise HttpRefusal(400, "this route takes no body; send parameters in the query")
        try:
            arguments = {name: read(request, raw) for name, read in route.readers.items()}
        except ValidationError as error:
            raise refusal_of(error) from None
        response: Response = await route.endpoint(**arguments)
        return response

    def guarded(self, answer: Endpoint) -> Endpoint:
        """Wrap an endpoint: its errors are reported, and become problem+json."""

        async def run(request: Request) -> Response:
            try:
                response, name = await answer(request), request_name(headers_of(request))
            except AllocatorError as error:
                return self._error_reporter.response(error, request.scope)
            response.headers["x-request-id"] = name
            return response

        return run

    async def principal_of(self, request: Request) -> Principal:
        principal = await self._token_cache.find(headers_of(request))
        request.scope[NUMBER] = principal.token.number
        return principal

    async def of_framework(self, request: Request, error: Exception) -> Response:
        """Answer an error of Starlette, or an unexpected exception, whose traceback Starlette logs."""
        if principal := self._token_cache.find_in_memory(headers_of(request)):
            request.scope[NUMBER] = principal.token.number
        status, headers = 500, {}
        if isinstance(error, HTTPException):
            status, headers = error.status_code, dict(error.headers or {})
        message = MESSAGES.get(status, "the request was refused")
        if status == 405:
            headers["Allow"] = ", ".join(sorted(methods_of(request)))
            message = f"{request.method} is not allowed here; allowed: {headers['Allow']}"
        return self._error_reporter.response(HttpRefusal(status, message, **headers), request.scope)


def methods_of(request: Request) -> set[str]:
    """The methods of a path, each of which has a route of its own."""
    routes = [one for one in request.app.routes if isinstance(one, routing.Route)]
    found = [one for one in routes if one.matches(request.scope)[0] is not routing.Match.NONE]
    return {method for one in found for method in one.methods or ()} or {"GET"}  # of the console's files


def reader_of(name: str, hint: Any) -> Reader:
    if hint is Request:
        return lambda request, body: request
    if name == BODY:
        return lambda request, body: hint.model_validate_json(body)
    if name == QUERY:
        return lambda request, body: hint.__origin__.model_validate(dict(request.query_params))
    part = next((one.alias for one in getattr(hint, "__metadata__", ()) if getattr(one, "alias", None)), name)
    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    return lambda request, body: adapter.validate_python(request.path_params[part])


def refusal_of(refused: ValidationError) -> AllocatorError:
    """The first field that cannot be read, in a sentence."""
    first = refused.errors()[0]
    reason = first.get("ctx", {}).get("error")
    if isinstance(reason, AllocatorError):  # of a check of ours
        return reason
    if not first["loc"]:
        return HttpRefusal(400, MESSAGES[400])
    name = first["loc"][0]
    if first["type"] == "extra_forbidden":
        return InvalidSetting(f"unknown parameter {name!a:.80}; /openapi.json has those of each route")
    if first["type"] == "missing":
        return InvalidSetting(f"parameter {name} is missing")
    kind = InvalidCount if name in {"count", "size"} else InvalidSetting
    return kind(f"{name}: {first['msg']}, got {first['input']!a:.80}")


def headers_of(request: Request) -> dict[bytes, bytes]:
    return dict(request.scope["headers"])


async def body_within(request: Request, most: int = MAX_BODY) -> bytes:
    """Read the body; refuse one that is too large or too slow."""
    too_large = HttpRefusal(413, f"the body may have at most {most} bytes", Connection="close")
    length = request.headers.get("content-length", "0")
    # 20 digits are above any limit. `int` refuses more than 4300, and a header may have 16,384.
    if length.isdecimal() and int(length[:20]) > most:
        raise too_large
    if length == "0" and "transfer-encoding" not in request.headers:
        return b""
    raw = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > most:
                    raise too_large
    except TimeoutError:
        raise HttpRefusal(408, f"the body must arrive within {BODY_SECONDS:g} seconds", Connection="close") from None
    except ClientDisconnect:
        raise HttpRefusal(400, "the client disconnected before the end of the body") from None
    return bytes(raw)


def json_response(body: Any, status: int = 200) -> Response:
    """Make a response of encoded JSON (bytes), or of a value to encode."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(content, status, dict(NO_STORE), "application/json")

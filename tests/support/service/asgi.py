"""One request to an application, called as a server calls it."""

import json
from typing import Any


async def ask(app: Any, method: str, path: str, query: str = "", body: object = None) -> tuple[int, Any]:
    """The status of the answer, and its JSON."""
    sent: list[dict[str, Any]] = []
    scope = {"type": "http", "http_version": "1.1", "method": method, "scheme": "http", "root_path": ""}
    scope |= {"path": path, "raw_path": path.encode(), "query_string": query.encode(), "path_params": {}}
    scope |= {"headers": [(b"content-type", b"application/json")]}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])

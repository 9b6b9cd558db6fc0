"""Ids over HTTP, for programs in other languages or without access to the database. Needs the extra `server`.

Start reading here: `server` starts it, `http_server` listens and embeds granian, `app` wires the parts,
`hot_path` answers the hot routes, `routes` has the table of all routes and their handlers, `dispatch` calls these, and
`error_responses` maps errors to HTTP statuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.service.settings import ServeSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["ServeSettings", "application"]


def application(settings: ServeSettings) -> ASGIApp:
    """The ASGI application, to run on another server than that of `allocator serve`."""
    from allocator.service.app import application as made

    return made(settings)

"""What libpq says without a code, and how it is kept from saying a password."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import URL

from allocator.database.driver_errors import MISSTATED, UNPROVEN

REFUSALS = ("password authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry")
"""A refused connection has no SQLSTATE in psycopg, only the server's words."""
REFUSED = "28000"
WITHHELD = "authentication method requirement"
WRONG = re.compile(
    r"invalid connection option|bad value for|invalid (\w+ value|port)|definition of service .* not found"
)
"""What libpq and psycopg say of an argument that they do not take, before any server is asked."""
REQUIRES = 160000
"""The version from which libpq knows `require_auth`."""


def code_of_words(words: str) -> str:
    if WITHHELD in words:
        return UNPROVEN
    if any(refusal in words for refusal in REFUSALS):
        return REFUSED
    return MISSTATED if WRONG.search(words) else ""


def only_scram(url: URL) -> dict[str, Any]:
    """Arguments with which a server that is reached over a network learns no password, whatever it asks for.

    An older libpq has none for that: there the rule of hosts stands alone.
    """
    host = url.host or ""
    if not host or host.startswith("/") or url.get_driver_name() != "psycopg" or version() < REQUIRES:
        return {}
    # A server that asks for no password learns none; one that knows ours can prove so.
    return {"require_auth": "scram-sha-256" if url.password else "scram-sha-256,none"}


def version() -> int:
    from psycopg import pq

    return pq.version()

"""Errors of libpq that have no code, and the arguments that keep it from sending a password in clear."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import URL

from allocator.database.driver_errors import MISSTATED, UNPROVEN

REFUSALS = ("password authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry")
"""psycopg gives a refused connection no SQLSTATE, only the server's message."""
REFUSED = "28000"
WITHHELD = "authentication method requirement"
WRONG = re.compile(
    r"invalid connection option|bad value for|invalid (\w+ value|port)|definition of service .* not found"
)
"""Messages of libpq and psycopg for an invalid argument, before any connection."""
REQUIRES = 160000
"""The first version of libpq with `require_auth`."""


def code_of_words(words: str) -> str:
    if WITHHELD in words:
        return UNPROVEN
    if any(refusal in words for refusal in REFUSALS):
        return REFUSED
    return MISSTATED if WRONG.search(words) else ""


def only_scram(url: URL) -> dict[str, Any]:
    """Arguments with which a server on the network gets no password in clear, whatever it asks for.

    An older libpq has no such argument; there only the rule of hosts protects the password.
    """
    host = url.host or ""
    if not host or host.startswith("/") or url.get_driver_name() != "psycopg" or version() < REQUIRES:
        return {}
    # A server that asks for no password gets none; SCRAM proves that a server knows ours.
    return {"require_auth": "scram-sha-256" if url.password else "scram-sha-256,none"}


def version() -> int:
    from psycopg import pq

    return pq.version()

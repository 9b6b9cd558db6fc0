"""What the error codes of PostgreSQL mean."""

from __future__ import annotations

import re

from allocator.database.driver_errors import ABORTED, DEADLOCK, DRAWN_MEANWHILE, GUARD_FIRED, NO_WRITES, ErrorCodes
from allocator.database.postgresql.identity import NOT_READY
from allocator.errors import (
    DatabaseRefused,
    Exhausted,
    InvalidDatabase,
    MaxValueWentBack,
    NumberConflict,
    SchemaDamaged,
    SchemaOutOfDate,
)

GUARDED = "ID001"
"""Our own SQLSTATE, raised by the triggers of the guard; class ID is none of the server's."""
READ_ONLY, NO_SCHEMA, NO_FUNCTION = "25006", "3F000", "42883"
MISSTATED, UNPROVEN = "misstated", "unproven"
"""No server's codes: the driver refused an argument, or to log in to a server that asks for a password in clear."""
REFUSED = "28000"
LACKING = "{where} refuses: {words}; this server lacks what the statement needs: allocator doctor"
OUT_OF_RANGE = frozenset({"22003", "23514"})

CODES = ErrorCodes(
    errors={
        **dict.fromkeys(("23505", GUARDED), MaxValueWentBack),
        **dict.fromkeys((REFUSED, "28P01", "3D000", "42", "0A"), DatabaseRefused),
        **dict.fromkeys((MISSTATED, NO_SCHEMA, UNPROVEN, NOT_READY), DatabaseRefused),
        **dict.fromkeys(("42P01", "42703"), SchemaOutOfDate),
        **dict.fromkeys(OUT_OF_RANGE, SchemaDamaged),
        "2200H": Exhausted,
    },
    advice={
        MISSTATED: "{where} cannot be used: {words}; check the URL and its arguments",
        READ_ONLY: "{where} is read-only: {words}; use the primary, or if this is it: ALTER ROLE name SET "
        "default_transaction_read_only = off",
        NO_SCHEMA: "{where} refuses: {words}; check that the search_path of the user or the URL names a schema that "
        "exists",
        **dict.fromkeys((NOT_READY, "0A000", NO_FUNCTION), LACKING),
        UNPROVEN: "{where} is named by the fleet, and its server does not log in by SCRAM: {words}; give its URL too",
        GUARDED: GUARD_FIRED,
    },
    of_draw={
        "40P01": (NumberConflict, DEADLOCK),
        "40001": (NumberConflict, DRAWN_MEANWHILE),
        "25P02": (InvalidDatabase, ABORTED),
        READ_ONLY: (DatabaseRefused, NO_WRITES),
    },
    locked=frozenset({"55P03"}),
    out_of_range=OUT_OF_RANGE,
    contended=frozenset({"40001", "40P01", "55P03"}),
    misplaced=frozenset({READ_ONLY}),
    forbidden=frozenset({"42501"}),
    no_function=frozenset({NO_FUNCTION}),
)

REFUSED_IN_WORDS = ("password authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry")
"""psycopg gives a refused connection no SQLSTATE, only the server's message."""
WITHHELD = "authentication method requirement"
WRONG = re.compile(
    r"invalid connection option|bad value for|invalid (\w+ value|port)|definition of service .* not found"
)
"""libpq and psycopg refuse an invalid argument before any connection, so there is no SQLSTATE."""


def code_of_words(words: str) -> str:
    """The code of an error that libpq says in words."""
    if WITHHELD in words:
        return UNPROVEN
    if any(refusal in words for refusal in REFUSED_IN_WORDS):
        return REFUSED
    return MISSTATED if WRONG.search(words) else ""

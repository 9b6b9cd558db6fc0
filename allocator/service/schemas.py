"""The shapes of the answers, as JSON schemas."""

from __future__ import annotations

from typing import Any

Shape = dict[str, Any]

NUMBER: Shape = {"type": "string", "pattern": "^[0-9]{1,19}$"}
"""An id is text, since a browser reads 9007199254740993 as 9007199254740992."""
WHOLE: Shape = {"type": "integer", "minimum": 0}
TEXT: Shape = {"type": "string"}


def many(items: Shape) -> Shape:
    return {"type": "array", "items": items}


def record(**fields: Shape) -> Shape:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


IDS = record(ids=many(NUMBER))
TAGGED_IDS = record(tag=TEXT, ids=many(NUMBER))
OBJECT_IDS = record(ids=many({"type": "string", "pattern": "^[0-9a-f]{24}$"}))
SEGMENT = record(tag=TEXT, start=NUMBER, stop=NUMBER, step=NUMBER)
TICKET = record(type=TEXT, id=NUMBER)
NODE = record(node=NUMBER)
LEASE = record(worker=WHOLE, holder=TEXT, since=WHOLE, until=WHOLE)
GAP: Shape = {"type": "string", "pattern": "^([0-9]{1,19}|auto|refuse)$"}
TAG = record(tag=TEXT, max_value=NUMBER, step=WHOLE, max_step=WHOLE, limit=NUMBER, failover_gap=GAP)
TAGS = record(sequences=many(TAG))
TAGS["properties"]["next"] = TEXT
"""Only where the page is full."""
READING = record(
    scheme=TEXT,
    likely={"type": "boolean"},
    why=TEXT,
    fields={"type": "object", "additionalProperties": TEXT},
    time={"type": ["string", "null"]},
    cannot_tell=TEXT,
)
INSPECTION = record(id=TEXT, readings=many(READING))
PROBLEM = record(type=TEXT, title=TEXT, status=WHOLE, error=TEXT, detail=TEXT, request=TEXT)

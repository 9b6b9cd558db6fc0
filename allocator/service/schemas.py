"""The shapes of the answers, as JSON schemas, each with an example."""

from __future__ import annotations

from typing import Any

Shape = dict[str, Any]

NUMBER: Shape = {"type": "string", "pattern": "^[0-9]{1,19}$"}
"""An id is a string, since a browser reads the number 9007199254740993 as 9007199254740992."""
WHOLE: Shape = {"type": "integer", "minimum": 0}
TEXT: Shape = {"type": "string"}


def many(items: Shape) -> Shape:
    return {"type": "array", "items": items}


def record(**fields: Shape) -> Shape:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def shown(shape: Shape, **example: object) -> Shape:
    """With an example, which pages and clients made of the description show."""
    return shape | {"examples": [example]}


METEORS = shown(record(ids=many(NUMBER)), ids=["5016762319896585", "5016762319896596"])
SNOWFLAKES = shown(record(ids=many(NUMBER)), ids=["1541815603606036480", "1541815603606036481"])
TAGGED_IDS = shown(record(tag=TEXT, ids=many(NUMBER)), tag="order", ids=["1", "2"])
OBJECT_IDS = shown(
    record(ids=many({"type": "string", "pattern": "^[0-9a-f]{24}$"})),
    ids=["65f1c0ffee5ca1ab1e000001", "65f1c0ffee5ca1ab1e000002"],
)
SEGMENT = shown(record(tag=TEXT, start=NUMBER, stop=NUMBER, step=NUMBER), tag="order", start="1", stop="1001", step="1")
TICKET = shown(record(type=TEXT, id=NUMBER), type="case", id="1")
NODE = shown(record(node=NUMBER), node="1")
LEASE = shown(
    record(worker=WHOLE, holder=TEXT, since=WHOLE, until=WHOLE),
    worker=0,
    holder="3f1d0a5c8e9b4d27a6c1f0e2b7d49853",
    since=1790000000000,
    until=1790000010000,
)
NUMBER_LEASE = shown(
    record(space=TEXT, number=WHOLE, holder=TEXT, until=WHOLE),
    space="billing",
    number=0,
    holder="3f1d0a5c8e9b4d27a6c1f0e2b7d49853",
    until=1790000060000,
)
GAP: Shape = {"type": "string", "pattern": "^([0-9]{1,19}|auto|refuse)$"}
ORDER = {
    "tag": "order",
    "max_value": "1000",
    "step": 1000,
    "max_step": 1_000_000,
    "limit": "9223372036854775807",
    "failover_gap": "auto",
}
TAG = shown(record(tag=TEXT, max_value=NUMBER, step=WHOLE, max_step=WHOLE, limit=NUMBER, failover_gap=GAP), **ORDER)
TAGS = shown(record(sequences=many(TAG)), sequences=[ORDER])
TAGS["properties"]["next"] = TEXT
"""Only on a full page."""
READING = record(
    scheme=TEXT,
    likely={"type": "boolean"},
    why=TEXT,
    fields={"type": "object", "additionalProperties": TEXT},
    time={"type": ["string", "null"]},
    cannot_tell=TEXT,
)
INSPECTION = shown(
    record(id=TEXT, readings=many(READING)),
    id="5016762319896585",
    readings=[
        {
            "scheme": "meteor",
            "likely": True,
            "why": "its time would be 2020-12-13 09:06:54+00:00",
            "fields": {"second": "292014", "node": "0", "sequence": "1", "random": "1"},
            "time": "2020-12-13T09:06:54+00:00",
            "cannot_tell": "whether layout and epoch are the default ones; the exact time",
        }
    ],
)
PROBLEM = shown(
    record(type=TEXT, title=TEXT, status=WHOLE, error=TEXT, detail=TEXT, request=TEXT),
    type="urn:allocator:InvalidCount",
    title="Bad Request",
    status=400,
    error="InvalidCount",
    detail="count must be 1 to 10000, got 0",
    request="4fd5c1a9b0e2",
)

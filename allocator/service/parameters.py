"""What a request may hold, each field with its check and its description in OpenAPI: one cannot lie about the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from allocator.errors import AllocatorError, InvalidSetting
from allocator.remote.wire import whole
from allocator.service.problems import HttpRefusal

MAX_BODY = 65_536
MAX_FORM = 4096
"""Of a body that is read before its token is known, from anybody and on as many connections as there may be."""
MAX_QUERY = 4096


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a query or body: `read` makes its value of what was sent, or raises an `InvalidArgument`."""

    name: str
    read: Callable[[Any], Any]
    schema: Mapping[str, Any]
    about: str
    required: bool = False
    example: object = None


def required(field: Field, example: object) -> Field:
    return replace(field, required=True, example=example)


def number(
    name: str, low: int, high: int, about: str, *, error: type[AllocatorError] = InvalidSetting, example: object = None
) -> Field:
    """A whole number, or its digits as text."""

    def read(value: object) -> int:
        try:
            return whole(name, value, low, high)
        except InvalidSetting as refused:
            raise error(str(refused)) from None

    return Field(name, read, {"type": "integer", "minimum": low, "maximum": high}, about, example=example)


def long_number(name: str, low: int, high: int, about: str, example: object = None) -> Field:
    """A number that JavaScript cannot hold, and may better be sent as text."""
    plain = number(name, low, high, about)
    as_text = {"type": "string", "pattern": "^[0-9]{1,19}$"}
    return replace(plain, schema={"oneOf": [dict(plain.schema), as_text]}, example=example)


def text(name: str, read: Callable[[Any], Any], pattern: str, about: str) -> Field:
    return Field(name, read, {"type": "string", "pattern": pattern}, about)


def choice(name: str, known: Sequence[str], about: str) -> Field:
    def read(value: object) -> str:
        if value not in known:
            raise InvalidSetting(f"{name} must be one of {', '.join(known)}, got {value!a:.80}")
        return str(value)

    return Field(name, read, {"type": "string", "enum": list(known)}, about)


def flag(name: str, about: str) -> Field:
    def read(value: object) -> bool:
        if value not in ("true", "false"):  # what cannot be hashed comes here too
            raise InvalidSetting(f"{name} must be true or false, got {value!a:.80}")
        return value == "true"

    return Field(name, read, {"type": "boolean"}, about)


def read_query(raw: bytes, fields: Sequence[Field]) -> dict[str, Any]:
    """The fields of a query string; one that is not known, or stands there twice, is refused."""
    if len(raw) > MAX_QUERY:
        raise HttpRefusal(414, f"a query has at most {MAX_QUERY} bytes, got {len(raw)}")
    pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=None)
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name in given:
            raise InvalidSetting(f"{name!a:.80} is given twice")
        given[name] = value
    return read_fields(given, fields)


def read_body(raw: bytes, fields: Sequence[Field]) -> dict[str, Any]:
    """The fields of a JSON object. Where none are expected, a body that says nothing does no harm."""
    if not fields and raw.strip() in {b"", b"{}"}:
        return {}
    if not fields:
        raise HttpRefusal(400, "this takes no body; its parameters stand in the query")
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise HttpRefusal(400, f"the body must be a JSON object, of {', '.join(field.name for field in fields)}")
    return read_fields(given, fields)


def read_fields(given: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    known = {field.name: field for field in fields}
    for name in given:
        if name not in known:
            others = f"there are {', '.join(known)}" if known else "there are none"
            raise InvalidSetting(f"there is no parameter {name!a:.80} here; {others}")
    missing = [field.name for field in fields if field.required and field.name not in given]
    if missing:
        raise InvalidSetting(f"{missing[0]} is missing")
    return {name: known[name].read(value) for name, value in given.items()}

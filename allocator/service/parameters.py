"""The fields of queries and bodies. A field holds its check and its OpenAPI description, so that they agree."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from allocator.errors import AllocatorError, InvalidSetting
from allocator.remote.wire import whole
from allocator.service.error_responses import HttpRefusal

MAX_BODY = 65_536
MAX_FORM = 4096
"""Bytes of a form. It is read before its token is checked, so anybody can send it, on many connections."""
MAX_QUERY = 4096


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a query or body. `read` converts its value, or raises an `InvalidArgument`."""

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
    """A field for a whole number, or its digits as text."""

    def read(value: object) -> int:
        try:
            return whole(name, value, low, high)
        except InvalidSetting as refused:
            raise error(str(refused)) from None

    return Field(name, read, {"type": "integer", "minimum": low, "maximum": high}, about, example=example)


def long_number(name: str, low: int, high: int, about: str, example: object = None) -> Field:
    """A field for a number above 2**53, which JavaScript clients must send as text."""
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
        if isinstance(value, bool):
            return value
        if value not in ("true", "false"):  # not a set: a JSON list cannot be hashed
            raise InvalidSetting(f"{name} must be true or false, got {value!a:.80}")
        return value == "true"

    return Field(name, read, {"type": "boolean"}, about)


def read_query(raw: bytes, fields: Sequence[Field]) -> dict[str, Any]:
    """Read a query string; refuse an unknown or repeated field."""
    if len(raw) > MAX_QUERY:
        raise HttpRefusal(414, f"the query may have at most {MAX_QUERY} bytes, got {len(raw)}")
    pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=None)
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name in given:
            raise InvalidSetting(f"parameter {name!a:.80} occurs twice")
        given[name] = value
    return read_fields(given, fields)


def read_body(raw: bytes, fields: Sequence[Field]) -> dict[str, Any]:
    """Read a JSON object. A route without fields accepts an empty one."""
    if not fields and raw.strip() in {b"", b"{}"}:
        return {}
    if not fields:
        raise HttpRefusal(400, "this route takes no body; send parameters in the query")
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise HttpRefusal(400, f"the body must be a JSON object with {', '.join(field.name for field in fields)}")
    return read_fields(given, fields)


def read_fields(given: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    known = {field.name: field for field in fields}
    for name in given:
        if name not in known:
            allowed = f"allowed: {', '.join(known)}" if known else "this route takes none"
            raise InvalidSetting(f"unknown parameter {name!a:.80}; {allowed}")
    missing = [field.name for field in fields if field.required and field.name not in given]
    if missing:
        raise InvalidSetting(f"parameter {missing[0]} is missing")
    return {name: known[name].read(value) for name, value in given.items()}

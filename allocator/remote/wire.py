"""The wire format between the service and its clients: JSON and text. Ids are strings, because JavaScript rounds them.

    a segment      {"tag": "order", "start": "1", "stop": "1001", "step": "1"}
    a tag          {"tag": "order", "max_value": "1000", "step": 10, "max_step": 1000000, "limit": "9223…",
                    "failover_gap": "auto"}, or "refuse", or a number
    seen           1.1.1000,2.3.4001       offset, step and greatest id of each slot
    a number       {"space": "billing", "number": 7, "holder": "…", "until": 1700000060000}

The functions check their input, since it is untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from allocator.errors import InvalidSetting
from allocator.schemes.shared.argument_checks import MAX_ID, MAX_STEP, check_tag, check_whole
from allocator.schemes.shared.residues import MAX_SLOTS, Residue, Seen
from allocator.schemes.tag import FailoverGap, Tag, gap_of
from allocator.schemes.worker_number_lease import NumberLease

MAX_RESIDUES = 100
"""Up to 30 characters each: 100 fit into a query, which may have 4096."""
NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)


def whole(name: str, value: object, low: int = 0, high: int = MAX_ID) -> int:
    """Check a whole number, given as a number or as digits."""
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return check_whole(name, int(value), low, high)
    return check_whole(name, value, low, high)


def segment_to_json(tag: str, segment: range) -> dict[str, object]:
    ends = {"start": segment.start, "stop": segment.stop, "step": segment.step}
    return {"tag": tag, **{name: str(value) for name, value in ends.items()}}


def check_asked(value: Mapping[str, Any], kind: str, name: str) -> None:
    """Raises `InvalidSetting` if an answer is for another tag, type or space than was asked for."""
    if value.get(kind) != name:
        raise InvalidSetting(f"the answer is for {kind} {value.get(kind)!a:.80}, not for {name!r}")


def segment_from_json(value: Mapping[str, Any], tag: str) -> range:
    """Raises `InvalidSetting` unless this is a segment of the tag."""
    check_asked(value, "tag", tag)
    start = whole("start", value.get("start"), 1)
    stop = whole("stop", value.get("stop"), start + 1, MAX_ID + MAX_STEP)
    segment = range(start, stop, whole("step", value.get("step"), 1, MAX_SLOTS))
    check_whole("the last id", segment[-1], 1, MAX_ID)
    return segment


def ticket_from_json(value: Mapping[str, Any], kind: str) -> int:
    check_asked(value, "type", kind)
    return whole("id", value.get("id"), 1)


def tag_to_json(tag: Tag) -> dict[str, object]:
    return {"tag": tag.name, "max_value": str(tag.max_value), **settings_to_json(tag)}


def settings_to_json(tag: Tag) -> dict[str, object]:
    return {
        "step": tag.step,
        "max_step": tag.max_step,
        "limit": str(tag.limit),
        "failover_gap": str(tag.failover_gap),
    }


def tag_from_json(value: Mapping[str, Any]) -> Tag:
    return Tag(
        check_tag(value.get("tag")),
        whole("max_value", value.get("max_value")),
        whole("step", value.get("step"), 1),
        whole("max_step", value.get("max_step"), 1),
        whole("limit", value.get("limit"), 1),
        failover_gap=gap_from_json(value.get("failover_gap", "auto")),
    )


def gap_from_json(value: object) -> FailoverGap:
    if isinstance(value, str) and not NUMBER.fullmatch(value):
        return gap_of(value)
    return whole("failover_gap", value)


def seen_to_text(seen: Seen) -> str:
    return ",".join(f"{residue.offset}.{residue.step}.{greatest}" for residue, greatest in seen.items())


def seen_from_text(text: str) -> dict[Residue, int]:
    parts = text.split(",") if text else []
    if len(parts) > MAX_RESIDUES:
        raise InvalidSetting(f"seen must name at most {MAX_RESIDUES} slots, got {len(parts)}")
    seen = {}
    for part in parts:
        numbers = part.split(".")
        if len(numbers) != 3:
            raise InvalidSetting(f"seen must be offset.step.id for each slot, such as 1.1.1000, got {part!a:.80}")
        offset, step, greatest = (whole("a number of seen", number) for number in numbers)
        seen[Residue(offset, step)] = greatest
    return seen


def number_lease_to_json(lease: NumberLease, until_ms: int) -> dict[str, object]:
    return {"space": lease.space, "number": lease.number, "holder": lease.holder, "until": until_ms}


def number_lease_from_json(value: Mapping[str, Any], space: str, bits: int, length_ms: int) -> NumberLease:
    """Raises `InvalidSetting` unless this is a lease of a number of the space."""
    check_asked(value, "space", space)
    number = whole("number", value.get("number"), 0, (1 << bits) - 1)
    return NumberLease(space, number, holder_of(value.get("holder")), length_ms)


def holder_of(value: object) -> str:
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value):
        return value
    raise InvalidSetting(f"holder must be 32 hexadecimal digits, got {value!a:.80}")

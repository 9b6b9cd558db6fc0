"""Rules on several databases: whether each is the slot that its URL says, and whether all were given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from allocator.doctor.examination import Examination
from allocator.errors import AllocatorError
from allocator.schemes.shared.findings import DANGER, NOTE, Finding, few, unchecked
from allocator.schemes.slots import ARGUMENT, check_word, unasked


def of_fleet(databases: Sequence[Examination]) -> Iterator[Finding]:
    for one in databases:
        if one.shard is None:
            continue
        if one.word:
            try:
                check_word(one.where, one.word, one.shard)
            except AllocatorError as error:
                found, _, mend = str(error).partition("; ")
                yield Finding("shard-is-another", DANGER, found, mend)
        elif one.shard.word:
            yield Finding(
                "url-names-no-slot",
                NOTE,
                f"{one.where} is in a fleet, and its URL does not say which slot: a copy or an older state of it would "
                "be used in its place",
                f"add ?{ARGUMENT}={one.shard.word} to the URL, wherever it is written",
            )
    if missing := unasked([one.shard for one in databases if one.shard and one.shard.fleet]):
        yield unchecked(
            "all slots", f"not given: {few([f'slot {slot}' for slot in missing])}", "pass --url once for each slot"
        )

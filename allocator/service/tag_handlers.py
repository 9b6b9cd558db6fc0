"""The handlers that look at tags, and create and change them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allocator.remote.wire import tag_to_json
from allocator.rules.token import DRAW, READ
from allocator.schemes.checks import check_tag
from allocator.service.problems import HttpRefusal
from allocator.service.request import Answer, Asked
from allocator.service.sequences import Pages, Sequences, page_of

PAGE = 100
"""Tags in an answer, unless it is said how many."""

CONDITIONS = ("If-None-Match", "If-Match")


@dataclass(frozen=True, slots=True)
class Administration:
    sequences: Sequences

    async def list(self, asked: Asked) -> Answer:
        """A page of those that the token may read. A full one has a `next`, after which nothing may come."""
        after, limit, token = asked.query.get("after", ""), asked.query.get("limit", PAGE), asked.grant.token

        def page(tags: Pages) -> bytes:
            found = page_of(tags, after, limit, lambda name: token.may(READ, name))
            answer: dict[str, Any] = {"sequences": [tag_to_json(tag) for tag in found]}
            return json.dumps(answer | ({"next": found[-1].name} if len(found) == limit else {})).encode()

        return Answer(await self.sequences.read(page))

    async def get(self, asked: Asked) -> Answer:
        """Who may draw ids may also know the tag's settings, as a client that serves them from memory must."""
        name = check_tag(asked.names["tag"])
        if not asked.grant.token.may(READ, name):
            asked.grant.check(DRAW, name)
        return Answer(tag_to_json(await self.sequences.get(name)))

    async def put(self, asked: Asked) -> Answer:
        new, old = (is_given(name, asked.headers) for name in CONDITIONS)
        name, form = check_tag(asked.names["tag"]), dict(asked.body)
        tag, created = await self.sequences.put(name, form, asked.caller, new=new, old=old)
        return Answer(tag_to_json(tag), 201 if created else 200)


def is_given(condition: str, headers: Mapping[str, str]) -> bool:
    """Whether a request depends on there being a tag, or none; tags have no ETag to compare with."""
    given = [value for name, value in headers.items() if name == condition.lower()]
    if any(value.strip() != "*" for value in given):
        raise HttpRefusal(400, f"{condition} must be *, got {', '.join(given)!a:.80}")
    return bool(given)

"""The backend over HTTP: segments, tickets, nodes, leases and tags from a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any

from allocator.errors import AccessDenied, AllocatorError, InvalidSetting, LeaseLost, TagExists, UnknownTag
from allocator.fleet.tag_administration import Tags
from allocator.remote.http import Servers, printable
from allocator.remote.wire import (
    check_asked,
    number_lease_from_json,
    seen_to_text,
    segment_from_json,
    settings_to_json,
    tag_from_json,
    ticket_from_json,
    whole,
)
from allocator.schemes.shared.argument_checks import check_tag
from allocator.schemes.shared.residues import Seen, mark, residue_of
from allocator.schemes.tag import Tag, damaged
from allocator.schemes.tag_column import Column
from allocator.schemes.worker_number_lease import MAX_BITS, NumberClaim, NumberLease

PAGE = 1000
"""Tags in one request, the most that a service allows."""


class ServiceBackend:
    """The backend of an `Allocator` whose source is a service."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.shown, self.close, self.abandon = servers.shown, servers.close, servers.abandon

    def troubles(self) -> list[AllocatorError | None]:
        return []  # each error of the service names its own cause

    def ping(self) -> None:
        self.servers.request("GET", "/readyz", read=lambda answer: str(answer["status"]))

    def create_tables(self) -> None:
        raise InvalidSetting(
            "a client of a service cannot create tables; run on the service's database: allocator db upgrade --url ..."
        )

    def open_segment(self, template: Tag, create: bool) -> Tag:
        """Read the tag's settings, and create a missing tag from `template`.

        Without the right to administer, the first claim creates it with the settings of the service.
        """
        try:
            return self.read_tag(template.name)
        except UnknownTag:
            if not create:
                raise
        try:
            return self.make_tag(template, has_start=False)
        except TagExists:
            return self.read_tag(template.name)
        except AccessDenied:
            return template

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        def read(answer: Any) -> range:
            segment = segment_from_json(answer, name)
            if len(segment) > size or (exact and len(segment) != size):
                raise InvalidSetting(
                    f"requested {size} ids, got {len(segment)}, and used none of them; retry, or use the same "
                    "version of client and service"
                )
            low = mark(seen, residue_of(segment))
            if segment[0] <= low:
                raise damaged(name, f"a claim of {size} ids above {low} returned {segment}")
            return segment

        fields = {"size": str(size), "exact": str(exact).lower(), "seen": seen_to_text(seen)}
        return self.servers.request("POST", f"/v1/tags/{name}/segments", fields, read=read)

    def ticket(self, kind: str, end: float) -> int:
        path, left = f"/v1/tickets/{check_tag(kind)}", end - monotonic()
        return self.servers.request("POST", path, timeout=left, read=lambda answer: ticket_from_json(answer, kind))

    def register_node(self) -> int:
        return self.servers.request("POST", "/v1/nodes", read=lambda answer: whole("node", answer.get("node"), 1))

    def lease_number(self, claim: NumberClaim) -> NumberLease:
        form = {
            "bits": claim.bits,
            "seconds": claim.length_ms / 1000,
            "now": claim.wall_ms,
            "host": printable(claim.host).encode("ascii", "replace").decode()[:255] or "unknown",
            "process": claim.process,
            "format": claim.format,
        }
        return self._number("POST", claim.space, claim.bits, claim.length_ms, form)

    def renew_number(self, lease: NumberLease, wall_ms: int) -> None:
        self._change_number(lease, now=wall_ms)

    def release_number(self, lease: NumberLease, used_ms: int) -> None:
        self._change_number(lease, now=used_ms, release=True)

    def _change_number(self, lease: NumberLease, **form: object) -> None:
        form |= {"number": lease.number, "holder": lease.holder, "seconds": lease.length_ms / 1000}
        # A lease does not know the width of its space: accept any number, and compare it with ours.
        if self._number("PUT", lease.space, MAX_BITS, lease.length_ms, form) != lease:
            raise LeaseLost(f"the service answered for another number than {lease.number} of space {lease.space!r}")

    def _number(self, method: str, space: str, bits: int, length_ms: int, form: Mapping[str, object]) -> NumberLease:
        read = partial(number_lease_from_json, space=space, bits=bits, length_ms=length_ms)
        return self.servers.request(method, f"/v1/workers/{space}", body=form, read=read)

    def tags(self, template: Tag) -> Tags:
        return RemoteTags(self, template)

    def make_tag(self, tag: Tag, *, has_start: bool) -> Tag:
        start = {"start_after": tag.max_value} if has_start else {}
        return self.put_tag(tag.name, settings_to_json(tag) | start, {"If-None-Match": "*"})

    def read_tag(self, name: str) -> Tag:
        return self._tag("GET", name)

    def put_tag(self, name: str, form: Mapping[str, object], headers: Mapping[str, str]) -> Tag:
        return self._tag("PUT", name, body=form, headers=headers, once="start_after" in form)

    def _tag(self, method: str, name: str, **content: Any) -> Tag:
        def read(answer: Any) -> Tag:
            check_asked(answer, "tag", name)
            return tag_from_json(answer)

        return self.servers.request(method, f"/v1/tags/{check_tag(name)}", read=read, **content)


class RemoteTags(Tags):
    """The tags of a service."""

    def __init__(self, service: ServiceBackend, template: Tag) -> None:
        super().__init__(lambda: (), template)
        self._service = service

    def _page(self, after: str, most: int) -> list[Tag]:
        fields = {"limit": str(most)} | ({"after": after} if after else {})
        return self._service.servers.request(
            "GET", "/v1/tags", fields, read=lambda answer: [tag_from_json(one) for one in answer["tags"]]
        )

    def list(self) -> list[Tag]:
        tags = page = self._page("", PAGE)
        while len(page) == PAGE:
            page = self._page(page[-1].name, PAGE)
            tags = tags + page
        return tags

    def get(self, tag: str) -> Tag:
        try:
            return self._service.read_tag(tag)
        except UnknownTag:
            raise self._unknown(tag) from None

    def _make(self, fresh: Tag, slots: object) -> Tag:
        return self._service.make_tag(fresh, has_start=slots is not None)

    def repairing(self, above: int | None) -> Callable[[str], Tag]:
        raise InvalidSetting("a service repairs no tags; run on its database: allocator tags repair TAG --url ...")

    def last_claimed(self, tag: str) -> int:
        raise InvalidSetting("a service deletes no tags; run on its database: allocator tags delete TAG --url ...")

    def delete(self, tag: str, last: int) -> None:
        self.last_claimed(tag)

    def _set(self, tag: str, given: dict[str, Any]) -> Tag:
        if "failover_gap" in given:
            given["failover_gap"] = str(given["failover_gap"])
        return self._service.put_tag(tag, given, {"If-Match": "*"})

    def _column(self, name: str) -> Column:
        raise InvalidSetting("start_after_column needs the URL of the database, not of a service")

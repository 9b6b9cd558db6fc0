"""The service as a source of ids for another process: segments, tickets, nodes, leases and tags over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, TypeVar

from allocator.errors import (
    AccessDenied,
    DatabaseRefused,
    InvalidArgument,
    InvalidSetting,
    TagExists,
    UnknownTag,
)
from allocator.schemes.epoch import told
from allocator.schemes.lane import Seen, is_outgrown, lane_of, mark
from allocator.schemes.layout import Layout
from allocator.schemes.limits import check_tag
from allocator.schemes.segment import Claim
from allocator.schemes.snowflake import Lease, LeaseClaim
from allocator.schemes.tag import Tag, damaged
from allocator.schemes.wire import (
    lease_from_json,
    seen_to_text,
    segment_from_json,
    tag_from_json,
    ticket_from_json,
    whole,
)
from allocator.servers import Servers
from allocator.tags import Tags

T = TypeVar("T")


class Service:
    """The backend of an `Allocator` that was given the addresses of a service."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.close = servers.close
        self.abandon = servers.abandon

    @property
    def shown(self) -> str:
        return self.servers.shown

    # -- ids

    def open_segment(self, template: Tag, create: bool) -> Tag:
        """The tag's settings. One that is missing is made as ours where we may do that, and as the service makes tags
        where its first claim does."""
        try:
            return self.read_tag(template.name)
        except UnknownTag:
            if not create:
                raise
        try:
            return self.make_tag(template)
        except TagExists:
            return self.read_tag(template.name)
        except AccessDenied:
            return template

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        fields = {"size": str(size), "exact": str(exact).lower(), "seen": seen_to_text(seen)}
        answer = self.servers.ask("POST", f"/v1/sequences/{name}/segments", fields)
        found = checked(lambda value: segment_from_json(value, name), answer)
        low = mark(seen, lane_of(found))
        if found[0] <= low or is_outgrown(lane_of(found), seen) or len(found) > size or (exact and len(found) != size):
            raise damaged(name, f"a claim of {size} ids above {low} returned {found}")
        return found

    def open_segments(self, templates: Sequence[Tag], create: bool) -> list[Tag]:
        return []  # the service gathers what its clients claim

    def claim_segments(self, claims: Mapping[str, Claim]) -> dict[str, range]:
        return {}

    def ticket(self, kind: str, end: float) -> int:
        answer = self.servers.ask("POST", f"/v1/tickets/{check_tag(kind)}", timeout=end - monotonic())
        return checked(lambda value: ticket_from_json(value, kind), answer)

    def register_node(self) -> int:
        return checked(lambda value: whole("node", value.get("node"), 1), self.servers.ask("POST", "/v1/nodes"))

    def lease_worker(self, claim: LeaseClaim, layout: Layout, epoch: int) -> Lease:
        workers = (layout.limit("datacenter") + 1) * (layout.limit("worker") + 1)
        form = {"layout": str(layout), "epoch": epoch, "now": claim.now, "until": claim.until}
        if claim.lease is None:
            answer = self.servers.ask("POST", "/v1/workers", body=form)
        else:
            form |= {"holder": claim.lease.holder, "since": claim.lease.since}
            answer = self.servers.ask("PUT", f"/v1/workers/{claim.lease.number}", body=form)
        return checked(lambda value: lease_from_json(value, workers), answer)

    # -- tags

    def tags(self, template: Tag) -> Tags:
        return ServedTags(self, template)

    def read_tag(self, name: str) -> Tag:
        return checked(tag_from_json, self.servers.ask("GET", f"/v1/sequences/{check_tag(name)}"))

    def make_tag(self, tag: Tag) -> Tag:
        form: dict[str, object] = {
            "step": tag.step,
            "max_step": tag.max_step,
            "limit": tag.limit,
            "start_after": tag.max_value,
        }
        form["margin"] = str(told(tag.margin))
        return self.put_tag(tag.name, form, {"If-None-Match": "*"})

    def put_tag(self, name: str, form: Mapping[str, object], headers: Mapping[str, str]) -> Tag:
        return checked(
            tag_from_json, self.servers.ask("PUT", f"/v1/sequences/{check_tag(name)}", body=form, headers=headers)
        )


class ServedTags(Tags):
    """The tags of a service."""

    def __init__(self, service: Service, template: Tag) -> None:
        super().__init__(lambda: (), template)
        self._service = service

    def list(self) -> list[Tag]:
        found = self._service.servers.ask("GET", "/v1/sequences")
        return checked(lambda value: [tag_from_json(one) for one in value["sequences"]], found)

    def get(self, tag: str) -> Tag:
        return self._service.read_tag(tag)

    def _make(self, fresh: Tag) -> None:
        self._service.make_tag(fresh)

    def repair(self, tag: str, *, above: int | None = None) -> Tag:
        raise InvalidSetting("repair needs the database itself: allocator tags repair --url ...")

    def _set(self, tag: str, given: dict[str, Any]) -> Tag:
        return self._service.put_tag(tag, given, {"If-Match": "*"})

    def _highest(self, name: str) -> int:
        raise InvalidSetting("start_after_column needs the database itself; create this tag where that can be reached")


def checked(read: Callable[[Any], T], answer: Any) -> T:
    """What `read` makes of an answer; one that is not as agreed is a server of another kind."""
    try:
        return read(answer)
    except (InvalidArgument, AttributeError, KeyError, TypeError) as error:
        raise DatabaseRefused(f"the server's answer is not that of this service: {error}") from error

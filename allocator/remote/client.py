"""The service as a source of ids for another process: segments, tickets, nodes, leases and tags over HTTP."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from time import monotonic
from typing import Any

from allocator.errors import (
    AccessDenied,
    AllocatorError,
    InvalidArgument,
    InvalidSetting,
    LeaseLost,
    TagExists,
    UnknownTag,
)
from allocator.fleet.tags import Tags
from allocator.remote.http import Servers
from allocator.remote.wire import (
    lease_from_json,
    seen_to_text,
    segment_from_json,
    tag_from_json,
    ticket_from_json,
    whole,
)
from allocator.rules.column_limit import Column
from allocator.rules.failover import public_gap
from allocator.schemes.checks import check_tag
from allocator.schemes.layout import Layout
from allocator.schemes.residues import Seen, is_outgrown, lane_of, mark
from allocator.schemes.segment import Claim
from allocator.schemes.snowflake import Lease, LeaseClaim
from allocator.schemes.tag import Tag, damaged

PAGE = "1000"
"""Tags that are asked for at once: the most that a service gives."""
NUMBERS = 10_000
SEGMENTS = 100
"""How many of its latest tickets and nodes, and of its latest segments, a process compares with what comes next."""


class Received:
    """What the servers gave to this process lately, so that nothing is taken from them twice."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._segments: deque[tuple[str, range]] = deque(maxlen=SEGMENTS)
        self.lock = threading.Lock()

    def number(self, what: str, number: int) -> int:
        with self.lock:
            if (what, number) in self._numbers:
                raise InvalidSetting(f"{what} {number} came before")
            self._numbers[what, number] = None
            if len(self._numbers) > NUMBERS:
                self._numbers.popitem(last=False)
        return number

    def segment(self, tag: str, segment: range) -> range:
        """Marks of what was seen do not tell of a claim that was under way at the same time."""
        with self.lock:
            if any(name == tag and overlap(segment, known) for name, known in self._segments):
                raise InvalidSetting(f"ids of {segment} came before")
            self._segments.append((tag, segment))
        return segment


def overlap(one: range, other: range) -> bool:
    """Whether they may share an id; those of two lanes of one fleet never do."""
    beside = one.step == other.step and one[0] % one.step != other[0] % one.step
    return not beside and one[0] <= other[-1] and other[0] <= one[-1]


class Service:
    """The backend of an `Allocator` that was given the addresses of a service."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.close = servers.close
        self._received = Received()

    def abandon(self) -> None:
        """After a fork, in the child."""
        self._received.lock = threading.Lock()
        self.servers.abandon()

    @property
    def shown(self) -> str:
        return self.servers.shown

    def troubles(self) -> list[AllocatorError | None]:
        return []  # an error of the service says itself what is wrong

    def ping(self) -> None:
        self.servers.ask("GET", "/readyz", read=lambda answer: str(answer["status"]))

    def create_tables(self) -> None:
        raise InvalidSetting("the tables are made where the service has its database: allocator db upgrade")

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
        def read(answer: Any) -> range:
            found = segment_from_json(answer, name)
            if len(found) > size or (exact and len(found) != size):
                raise InvalidSetting(f"{size} ids were asked for, and {len(found)} came")
            low = mark(seen, lane_of(found))
            if found[0] <= low or is_outgrown(lane_of(found), seen):
                raise damaged(name, f"a claim of {size} ids above {low} returned {found}")
            return self._received.segment(name, found)

        fields = {"size": str(size), "exact": str(exact).lower(), "seen": seen_to_text(seen)}
        return self.servers.ask("POST", f"/v1/sequences/{name}/segments", fields, read=read)

    def open_segments(self, templates: Sequence[Tag], create: bool) -> list[Tag]:
        return []  # the service gathers what its clients claim

    def claim_segments(self, claims: Mapping[str, Claim]) -> dict[str, range]:
        return {}

    def ticket(self, kind: str, end: float) -> int:
        def read(answer: Any) -> int:
            return self._received.number(f"ticket of type {kind}:", ticket_from_json(answer, kind))

        return self.servers.ask("POST", f"/v1/tickets/{check_tag(kind)}", timeout=end - monotonic(), read=read)

    def register_node(self) -> int:
        def read(answer: Any) -> int:
            return self._received.number("node", whole("node", answer.get("node"), 1))

        return self.servers.ask("POST", "/v1/nodes", read=read)

    def lease_worker(self, claim: LeaseClaim, layout: Layout, epoch: int) -> Lease:
        workers = (layout.limit("datacenter") + 1) * (layout.limit("worker") + 1)
        form = {"layout": str(layout), "epoch": epoch, "now": claim.now, "until": claim.until}
        method, path = "POST", "/v1/workers"
        if claim.lease is not None:
            method, path = "PUT", f"{path}/{claim.lease.number}"
            form |= {"holder": claim.lease.holder, "since": claim.lease.since}

        def read(answer: Any) -> Lease:
            return check_lease(claim, lease_from_json(answer, workers))

        try:
            return self.servers.ask(method, path, body=form, read=read)
        except InvalidArgument as refused:
            if claim.lease is None:
                raise
            raise LeaseLost(f"worker {claim.lease.number} was not renewed: {refused}") from refused

    # -- tags

    def tags(self, template: Tag) -> Tags:
        return ServedTags(self, template)

    def read_tag(self, name: str) -> Tag:
        path = f"/v1/sequences/{check_tag(name)}"
        return self.servers.ask("GET", path, read=lambda value: tag_named(name, value))

    def page_of_tags(self, after: str) -> tuple[list[Tag], str]:
        """A page, and the `next` to ask for; empty at the end."""

        def read(answer: Any) -> tuple[list[Tag], str]:
            found, following = [tag_from_json(one) for one in answer["sequences"]], answer.get("next", "")
            names = [after, *(tag.name for tag in found)]
            if following not in ("", *names[1:][-1:]) or any(one >= other for one, other in pairwise(names)):
                raise InvalidSetting(f"these are not the tags that follow {after!r}, by name")
            return found, following

        fields = {"limit": PAGE} | ({"after": after} if after else {})
        return self.servers.ask("GET", "/v1/sequences", fields, read=read)

    def make_tag(self, tag: Tag) -> Tag:
        form: dict[str, object] = {
            "step": tag.step,
            "max_step": tag.max_step,
            "limit": tag.limit,
            "start_after": tag.max_value,
        }
        form["failover_gap"] = str(public_gap(tag.failover_gap))
        return self.put_tag(tag.name, form, {"If-None-Match": "*"})

    def put_tag(self, name: str, form: Mapping[str, object], headers: Mapping[str, str]) -> Tag:
        path = f"/v1/sequences/{check_tag(name)}"
        return self.servers.ask("PUT", path, body=form, headers=headers, read=lambda value: tag_named(name, value))


def tag_named(name: str, value: Any) -> Tag:
    tag = tag_from_json(value)
    if tag.name != name:
        raise InvalidSetting(f"this is about {tag.name!r}, and not {name!r}")
    return tag


def check_lease(claim: LeaseClaim, lease: Lease) -> Lease:
    """The lease, if it is the one that was asked for; a longer one might be somebody else's before it ends."""
    before = claim.lease
    if before and (lease.number, lease.holder, lease.since) != (before.number, before.holder, before.since):
        raise InvalidSetting(f"worker {before.number} was to be renewed, and the lease of another one came")
    begin = claim.now if before else lease.since
    if not claim.now <= begin <= lease.until <= begin + claim.until - claim.now:
        raise InvalidSetting(f"a lease from {claim.now} to {claim.until} was asked for, got {begin} to {lease.until}")
    return lease


class ServedTags(Tags):
    """The tags of a service."""

    def __init__(self, service: Service, template: Tag) -> None:
        super().__init__(lambda: (), template)
        self._service = service

    def list(self) -> list[Tag]:
        found, following = self._service.page_of_tags("")
        while following:
            more, following = self._service.page_of_tags(following)
            found += more
        return found

    def count(self) -> int:
        return len(self.list())

    def get(self, tag: str) -> Tag:
        return self._service.read_tag(tag)

    def _make(self, fresh: Tag) -> None:
        self._service.make_tag(fresh)

    def repair(self, tag: str, *, above: int | None = None) -> Tag:
        raise InvalidSetting("repair needs the database itself: allocator tags repair --url ...")

    def _set(self, tag: str, given: dict[str, Any]) -> Tag:
        if "failover_gap" in given:
            given["failover_gap"] = str(public_gap(given["failover_gap"]))
        return self._service.put_tag(tag, given, {"If-Match": "*"})

    def _column(self, name: str) -> Column:
        raise InvalidSetting("start_after_column needs the database itself; create this tag where that can be reached")

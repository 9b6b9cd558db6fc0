"""The backend of a `MemoryAllocator`: the verbs of a database in memory, without a clock or randomness."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from allocator.errors import AllocatorError, NodeIdsExhausted, NotCopyable
from allocator.fleet.tag_administration import COLUMNS, Tags
from allocator.schemes.column_limit import NoColumn
from allocator.schemes.failover import repaired
from allocator.schemes.shared.argument_checks import check_tag
from allocator.schemes.shared.residues import Seen
from allocator.schemes.slots import Shard
from allocator.schemes.tag import Tag, settle, unknown
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease

FIELDS = {column: name for name, column in COLUMNS.items() if name == "limit"}


class MemoryBackend:
    """Implements `Backend`, and the part of `Database` that `Tags` uses; `Tags.delete` is not for tests.

    failure: raised by every call.
    """

    shown = "memory"

    def __init__(self) -> None:
        self.failure: AllocatorError | None = None
        self.rows: dict[str, Tag] = {}
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._held: defaultdict[str, set[int]] = defaultdict(set)
        self._forked = False

    def check(self) -> None:
        """Raise `failure` if it is set; and in a forked child."""
        if self._forked:
            raise NotCopyable("a MemoryAllocator cannot be used after a fork: create a new one in the child")
        if self.failure is not None:
            raise self.failure.again()

    @contextmanager
    def _table(self) -> Iterator[dict[str, Tag]]:
        """Lock the rows for one statement."""
        self.check()
        with self._lock:
            yield self.rows

    def open_segment(self, template: Tag, create: bool) -> Tag:
        with self._table() as rows:
            if create:
                return rows.setdefault(template.name, template)
            if template.name not in rows:
                raise unknown(template.name)
            return rows[template.name]

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        with self._table() as rows:
            tag = rows.get(name)
            size = settle(tag, name, size, seen, exact)
            assert tag is not None
            last = tag.max_value + size
            rows[name] = replace(tag, max_value=last)
            return tag.residue.ids(last, size)

    def tags(self, template: Tag) -> Tags:
        database: Any = self
        return Tags(lambda: [database], template)

    def ticket(self, kind: str, end: float) -> int:
        return self._count(f"tickets of {check_tag(kind)}")

    def register_node(self) -> int:
        return self._count("nodes")

    def _count(self, counter: str) -> int:
        with self._table():
            self._counts[counter] += 1
            return self._counts[counter]

    def lease_number(self, claim: NumberClaim) -> NumberLease:
        """Lease the smallest free number, until it is released."""
        with self._table():
            held = self._held[claim.space]
            number = next(number for number in count() if number not in held)
            if number >> claim.bits:
                raise NodeIdsExhausted(f"all {1 << claim.bits} numbers of space {claim.space!r} are held")
            held.add(number)
            return NumberLease(claim.space, number, claim.holder, claim.length_ms)

    def renew_number(self, lease: NumberLease, wall_ms: int) -> None:
        self.ping()

    def release_number(self, lease: NumberLease, used_ms: int) -> None:
        with self._table():
            self._held[lease.space].discard(lease.number)

    def ping(self) -> None:
        with self._table():
            pass

    def create_tables(self) -> None:
        """Do nothing: there are no tables."""

    def troubles(self) -> list[AllocatorError | None]:
        return []

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def abandon(self) -> None:
        self._forked = True

    def fetch_tag(self, name: str) -> Tag | None:
        with self._table() as rows:
            return rows.get(name)

    def fetch_page(self, after: str, most: int) -> list[Tag]:
        with self._table() as rows:
            return [rows[name] for name in sorted(rows) if name > after][:most]

    def create_tag(self, tag: Tag, *, has_start: bool) -> Shard | None:
        made = replace(tag, skipped=tag.max_value)
        with self._table() as rows:
            return self.read_shard() if rows.setdefault(tag.name, made) is made else None

    def start_tag(self, fresh: Tag, changes: Mapping[str, int]) -> Shard | None:
        return self.read_shard() if self.change_tag(fresh.name, changes) else self.create_tag(fresh, has_start=True)

    def change_tag(self, name: str, changes: Mapping[str, int]) -> bool:
        """Change a row that `Tags` has validated; False if it is missing."""
        with self._table() as rows:
            if name not in rows:
                return False
            fields: dict[str, Any] = {FIELDS.get(column, column): value for column, value in changes.items()}
            rows[name] = replace(rows[name], **fields)
            return True

    def repair_segment(self, tag: Tag, above: int | None) -> None:
        with self._table() as rows:
            rows[tag.name] = replace(tag, max_value=repaired(tag, above, 0))

    def read_shard(self) -> Shard:
        """Memory is in no fleet."""
        return Shard()

    def read_column(self, table: str, column: str) -> tuple[object, str, int]:
        raise NoColumn(f"a MemoryAllocator has no tables, so it cannot read the column {table}.{column}")

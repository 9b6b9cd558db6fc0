"""Where the ids of a `MemoryAllocator` come from: what a database does, in memory, without a clock or randomness."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from allocator.errors import AllocatorError, DatabaseUnavailable, NotCopyable, SchemaOutOfDate
from allocator.fleet.tags import COLUMNS, Tags
from allocator.rules.failover import plain, repaired
from allocator.rules.fleet import STATEMENTS
from allocator.schemes.checks import check_tag
from allocator.schemes.layout import Layout
from allocator.schemes.residues import Seen
from allocator.schemes.segment import Claim
from allocator.schemes.snowflake import Lease, LeaseClaim
from allocator.schemes.tag import Tag, settle, unknown

FIELDS = {column: name for name, column in COLUMNS.items() if name == "limit"}
"""Of `Tag`, where the columns are called otherwise."""


class MemoryBackend:
    """Fulfils `Backend`, and what `Tags` asks of a `Database`.

    `failure` is of every call for ids, `is_away` of what asks the database.
    """

    shown = "memory"

    def __init__(self, statement: str | None = None) -> None:
        self.failure: AllocatorError | None = None
        self.is_away = False
        self.rows: dict[str, Tag] = {}
        self._lock = threading.RLock()
        self._each_counts = statement not in (None, STATEMENTS[0])
        self._tickets: Counter[str] = Counter()
        self._nodes = 0
        self._forked = False

    def check(self) -> None:
        """Raise what every call for ids raises at present, also where memory could serve it."""
        if self.failure is not None:
            raise self.failure.again()

    @contextmanager
    def _table(self) -> Iterator[dict[str, Tag]]:
        """The rows, for one statement at a time."""
        if self._forked:
            raise NotCopyable("ids in memory are of one process, and this one was forked: make a new MemoryAllocator")
        self.check()
        if self.is_away:
            raise DatabaseUnavailable("the database is away, as the test wants it")
        with self._lock:
            yield self.rows

    # -- as a backend

    def open_segment(self, template: Tag, create: bool) -> Tag:
        with self._table() as rows:
            if create:
                return rows.setdefault(template.name, template)
            if template.name not in rows:
                raise unknown(template.name)
            return rows[template.name]

    def open_segments(self, templates: Sequence[Tag], create: bool) -> list[Tag]:
        return []  # each is opened alone

    def claim_segments(self, claims: Mapping[str, Claim]) -> dict[str, range]:
        return {}

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        with self._table() as rows:
            tag = rows.get(name)
            size = settle(tag, name, size, seen, exact)
            assert tag is not None
            last = tag.max_value + size
            rows[name] = replace(tag, max_value=last)
            return tag.lane.ids(last, size)

    def tags(self, template: Tag) -> Tags:
        database: Any = self
        return Tags(lambda: [database], template)

    def ticket(self, kind: str, end: float) -> int:
        name = check_tag(kind)
        counter = name if self._each_counts else ""
        with self._table():
            self._tickets[counter] += 1
            return self._tickets[counter]

    def register_node(self) -> int:
        with self._table():
            self._nodes += 1
            return self._nodes

    def lease_worker(self, claim: LeaseClaim, layout: Layout, epoch: int) -> Lease:
        """There is nobody else: worker 0, for the whole of the time."""
        with self._table():
            return Lease(0, "memory", claim.now, claim.until)

    def ping(self) -> None:
        with self._table():
            pass

    def create_tables(self) -> None:
        """There are none."""

    def troubles(self) -> list[AllocatorError | None]:
        return []

    def close(self) -> None:
        """Nothing is open."""

    def abandon(self) -> None:
        self._forked = True

    # -- as a database

    def check_sound(self) -> None:
        """Tables are always as they should be."""

    def fetch_tag(self, name: str) -> Tag | None:
        with self._table() as rows:
            return rows.get(name)

    def fetch_tags(self) -> list[Tag]:
        with self._table() as rows:
            return [rows[name] for name in sorted(rows)]

    def fetch_page(self, after: str, most: int) -> list[Tag]:
        return [tag for tag in self.fetch_tags() if tag.name > after][:most]

    def count_tags(self) -> int:
        return len(self.fetch_tags())

    def create_tag(self, tag: Tag) -> bool:
        with self._table() as rows:
            return rows.setdefault(tag.name, tag) is tag

    def change_tag(self, name: str, changes: Mapping[str, int]) -> bool:
        """False where the row is missing. That the changes fit, `Tags` has seen."""
        with self._table() as rows:
            if name not in rows:
                return False
            fields: dict[str, Any] = {FIELDS.get(column, column): value for column, value in changes.items()}
            fields["max_value"] = max(rows[name].max_value, fields.get("max_value", 0))
            rows[name] = replace(rows[name], **fields)
            return True

    def repair_segment(self, tag: Tag, above: int | None) -> None:
        with self._table() as rows:
            rows[tag.name] = replace(tag, max_value=repaired(tag, above, plain(tag.server_run, "memory")))

    def fetch_shard(self) -> None:
        """It is no shard of a fleet."""

    def read_column(self, table: str, column: str) -> tuple[object, str, int]:
        raise SchemaOutOfDate(f"there is no table {table} in memory, with a column {column}")

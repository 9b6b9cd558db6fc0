"""Shards in memory, under the real fleet and the real growth: exact, and without waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from allocator.database.verbs import tickets
from allocator.errors import AllocatorError, DatabaseRefused, DatabaseUnavailable, FleetGrowing
from allocator.rules.failover import Move
from allocator.rules.fleet_consistency import BEGUN, Shard
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.tag import Tag, is_of_tickets
from allocator.schemes.ticket import REPLACE, RESERVED


class MemoryShard:
    """What `Database` is to a fleet, and the tables of one database. `before` is called before each act on them."""

    def __init__(self, name: str, world: dict[str, MemoryShard], tickets: str = REPLACE) -> None:
        world[name] = self
        self.world = world
        self.address = SimpleNamespace(shown=name, public_url=name, file=None)
        self.may_create = True
        self.timeout = 1.0
        self.dialect = self
        self.embedded = False
        self.engine = SimpleNamespace(dispose=lambda: None)
        self.row: Shard | None = None
        self.server = f"server of {name}"
        self.tickets = tickets
        self.counter = 0
        self.rows: dict[str, Tag] = {}
        self.first_value = 0
        self.down = False
        self.before: Callable[[], None] = lambda: None

    # -- as Database

    open_segment = claim_segment = register_node = None
    lease_number = renew_number = release_number = None

    def cross_all(self) -> None:
        """Memory is never another server run."""

    def current(self, start: Any = None) -> SimpleNamespace:
        if start is None:
            self.answer()
        row = self.row and replace(self.row, move=Move(first_value=self.first_value))
        return SimpleNamespace(shard=row)

    def begin_above(self, value: int) -> None:
        self.answer()
        self.first_value = max(self.first_value, value)

    def answer(self) -> None:
        self.before()
        if self.down:
            raise DatabaseUnavailable(f"{self.address.shown} is down")

    def run(self, verb: Callable[..., Any], *args: Any) -> Any:
        self.answer()
        try:
            return self.imitation(verb)(None, *args)
        except AllocatorError:
            raise
        except Exception as error:
            raise DatabaseRefused(f"{type(error).__name__}: {error}") from error

    on_tables = run

    def imitation(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        """Stands for a function of `allocator.database.verbs`: `shard_row_fetch` for `shard_row.fetch`."""
        method: Callable[..., Any] = getattr(self, f"{verb.__module__.rpartition('.')[2]}_{verb.__name__}")
        return method

    def is_missing(self) -> bool:
        return False

    def shard_row_check_writer(self, connection: None) -> None:
        pass

    def shard_row_check_owner(self, connection: None) -> None:
        pass

    def check_schema(self) -> None:
        if self.down:
            raise DatabaseUnavailable(f"{self.address.shown} is down")

    def start(self) -> SimpleNamespace:
        self.answer()
        return SimpleNamespace(shard=self.row, numbering=None)

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass

    # -- in place of the functions of `allocator.database.verbs`

    def shard_row_fetch(self, connection: None) -> Shard | None:
        return self.row

    def shard_row_fetch_member(self, connection: None, alone: bool = False) -> Shard | None:
        is_used = self.tickets_has_any if alone else self.shard_row_has_ids
        return None if self.row and self.row.is_alone and not is_used(None) else self.row

    def servers_fetch_place(self, connection: None) -> str:
        return self.server

    def tickets_has_any(self, connection: None) -> bool:
        return bool(self.counter or self.tickets_fetch_last(None))

    def shard_row_has_ids(self, connection: None) -> bool:
        return bool(self.rows) or self.tickets_has_any(None)

    def tickets_fetch_last(self, connection: None) -> int:
        return max(self.counter, *(row.max_value for name, row in self.rows.items() if is_of_tickets(name)), 0)

    def shard_row_add(self, connection: None, fresh: Shard, where: str) -> None:
        if self.shard_row_fetch_member(None) is None:
            self.row = replace(fresh, tickets=self.tickets)

    def shard_row_begin(self, connection: None, key: str) -> None:
        if self.row and self.row.key == key and self.row.revision == 0:
            self.row = replace(self.row, revision=BEGUN)

    def shard_row_change(self, connection: None, decide: Any, tags: Any = (), trust: bool = False) -> Shard:
        now = self.row
        assert now is not None
        self.counter += 1
        greatest = max(self.tickets_fetch_last(None), now.numbering.floor - 1)
        fresh = decide(now, greatest)
        if fresh is None:
            return now
        self.row = replace(fresh, is_trusted=True) if trust else fresh
        for tag in tags:
            mine = self.rows.get(tag.name, tag)
            self.rows[tag.name] = replace(mine, max_value=max(mine.max_value, tag.max_value))
        if (fresh.numbering.floor, fresh.generation) != (now.numbering.floor, now.generation):
            self.counter = fresh.numbering.following(greatest) - 1
            for name, row in self.rows.items():
                if is_of_tickets(name):
                    self.rows[name] = replace(row, max_value=max(row.max_value, fresh.numbering.floor - 1))
        self.rows = {name: replace(tag, residue=self.residue()) for name, tag in self.rows.items()}
        return self.row

    def residue(self) -> Residue:
        if self.row is None:
            return ALL
        return Residue(self.row.numbering.offset, 0 if self.row.numbering.ceiling else self.row.numbering.step)

    def fetch_tags(self) -> list[Tag]:
        self.answer()
        return list(self.rows.values())

    def fetch_shard(self) -> Shard | None:
        self.answer()
        return self.row

    def tickets_draw(self, connection: None, kind: str, known: Shard) -> int | None:
        if self.row is None or (self.row.revision, self.row.is_trusted) != (known.revision, True):
            return None
        self.counter = known.numbering.following(self.counter)
        return self.counter

    def ticket(self, kind: str, row: Shard, seen: object) -> int | None:
        """As `Database.ticket`, by what its caller knows, however old that is."""
        if row.tickets == REPLACE:
            drawn = self.run(tickets.draw, kind, row)
            return drawn if drawn is not None and row.numbering.judge(drawn, 0) else None
        self.answer()
        found = self.claim(RESERVED + kind, 1, row.residue)
        if found is None and not self.residue().step:
            raise FleetGrowing("it grows")
        return found[0] if found else None

    def claim(self, name: str, size: int, residue: Residue) -> range | None:
        """A claim by a process that knows the tag under this residue."""
        floor = self.row.numbering.floor if self.row and is_of_tickets(name) else 1
        row = self.rows.setdefault(name, Tag(name, max(self.first_value, floor - 1), residue=self.residue()))
        if row.residue != residue or not residue.step:
            return None
        self.rows[name] = replace(row, max_value=row.max_value + size * residue.step)
        return residue.ids(row.max_value + size * residue.step, size)

"""A server: rows, locks, transactions, and a log of which the newest entries may be forgotten.

A transaction locks what it writes, computes the rows anew from what is committed, and commits a while later. What a
standby, a backup or a disk has not got yet is the tail of the log; a server that begins without it is another run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from allocator.schemes.failover import Move
from simulation.seeds import is_out

SHARD, SEGMENT, NODE, LEASE = "allocator_shard", "allocator_segment", "allocator_node", "allocator_lease"
Key = tuple[str, object]
"""A table, and the key of a row."""
Rows = dict[Key, Any]
Act = Callable[["View"], Any]


RESTORED = "restored"
"""What an operator writes into the shard's row after a restore that nothing else tells of: no server has such a run."""


class Entry(NamedTuple):
    """One committed transaction: the rows it wrote. `crossed`: it gave a row the key of another move.

    `made`: it made a row that has one.
    """

    written: Rows
    crossed: bool
    made: bool = False


class View:
    """What a statement sees: committed rows, which of them others have locked, and where it runs."""

    __slots__ = ("at", "claims", "here", "locked", "rows", "waits_for", "written")

    def __init__(self, server: Server, at: int) -> None:
        self.at = at
        self.rows, self.here, self.locked = server.rows, server.run, server.locks
        self.written: Rows = {}
        self.claims: list[tuple[str, range]] = []
        """The windows that this statement claims, by tag."""
        self.waits_for: Key | None = None

    def get(self, table: str, key: object) -> Any:
        return self.rows.get((table, key))

    def all(self, table: str) -> list[Any]:
        return [row for (name, _), row in self.rows.items() if name == table]

    def lock(self, table: str, key: object) -> bool:
        """Of a row that is to be written; False where it has to be waited for, and the statement begins anew."""
        if (table, key) in self.locked:
            self.waits_for = (table, key)
            return False
        return True

    def put(self, table: str, key: object, row: Any) -> None:
        self.written[table, key] = row


class Server:
    """A server from one start to its end; if it is durable, it is the same run after the next."""

    def __init__(self, name: str, started: int, log: list[Entry], is_durable: bool) -> None:
        self.name = name
        self.run = name if is_durable else f"{name}-{started}"
        self.log = log
        self.rows: Rows = {}
        for entry in log:
            self.rows.update(entry.written)
        self.locks: dict[Key, list[Callable[[], None]]] = {}
        self.is_up = True
        self.is_frozen = False

    def commit_first(self, rows: Rows) -> None:
        """What is there when the world begins, and in every backup."""
        self.log.append(Entry(rows, crossed=True))
        self.rows.update(rows)

    def begin(self, act: Act, again: Callable[[], None], at: int) -> tuple[View, Any] | None:
        """Carry out a statement up to its commit; None where it waits for a lock, and `again` is called after that."""
        view = View(self, at)
        result = act(view)
        if view.waits_for is not None:
            self.locks[view.waits_for].append(again)
            return None
        for key in view.written:
            self.locks.setdefault(key, [])
        return view, result

    def commit(self, view: View) -> None:
        if view.written:
            crossed = any(is_crossing(self.rows.get(key), row) for key, row in view.written.items())
            made = any(key_of(row) and key not in self.rows for key, row in view.written.items())
            self.log.append(Entry(view.written, crossed, made))
            self.rows.update(view.written)
        self.unlock(view)

    def unlock(self, view: View) -> None:
        """At the end of a transaction, whichever it is."""
        for key in view.written:
            for again in self.locks.pop(key, ()):
                again()

    def stop(self) -> None:
        """Everything that was not committed is gone."""
        self.is_up = False
        self.locks.clear()

    def has_crossed(self) -> bool:
        """Every row has the key of the move to this run."""
        moves = [row.move for row in self.rows.values() if hasattr(row, "move")]
        shard = next(move for move in moves if isinstance(move, Move))
        return shard.run == self.run and {key_of(row) for row in self.rows.values()} <= {0, shard.key}

    def kept(self, lost: int, is_disk: bool) -> list[Entry]:
        """The log without its newest entries, but for those that took a row to another run, and what is before them.

        A gap is skipped once for what was forgotten before. To forget that it was skipped, in a second failover at
        once, is for `test_failovers.py` and `controls`. Nor is a tag covered, made by its first use, that the same
        server forgets.
        """
        raised = [n for n, entry in enumerate(self.log) if entry.crossed or (entry.made and is_disk)]
        first = raised[0 if is_out("a gap is not forgotten") else -1] + 1
        return self.log[: max(first, len(self.log) - lost)]


def restored(log: list[Entry]) -> Entry:
    rows: Rows = {}
    for entry in log:
        rows.update(entry.written)
    shards = {key: row for key, row in rows.items() if isinstance(getattr(row, "move", None), Move)}
    moved = {key: replace(row, move=row.move._replace(run=RESTORED)) for key, row in shards.items()}
    return Entry(moved, crossed=True)


def key_of(row: Any) -> int:
    """The key of the move that a row has, 0 for one that has none."""
    move = getattr(row, "move", 0)
    return move.key if isinstance(move, Move) else int(move)


def is_crossing(before: Any, after: Any) -> bool:
    return key_of(before) not in {0, key_of(after)}

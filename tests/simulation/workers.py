"""Pods that lease worker numbers, by plain numbers: the real rule, and no thread, statement or database.

Each pod leases a number, renews it and gives it back. Requests and answers take their time or get lost; pods are
killed, stopped and paused; clocks on the wall step, the server's by up to a length; a server that knows the rows as
they were a while ago takes over. What a pod uses is kept as intervals: of the world's time, and of its clock on the
wall. Neither may overlap with what another pod used under the same number. Every second pod is a snowflake: its values
lie from its first request to a length after its last, both ends kept, and may run ahead of every clock; nobody else
may use one of them.

In worlds of slots `shards make` gives the even numbers to the first database, and a second one with the odd ones is
added; each may fail over. For half a length after a failover the old server answers as well.

Given up, and so left out: a pod whose own clock stood still (a paused virtual machine) and whose clock on the wall was
set back as well, so that neither tells it how late it is; and a step of the server's clock by more than a length where
clocks of pods are wrong too.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from copy import copy
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import ceil
from operator import itemgetter
from typing import Any, NamedTuple
from unittest.mock import patch

from allocator.errors import DatabaseUnavailable, InvalidSetting, NodeIdsExhausted
from allocator.schemes import worker_number_lease as rule
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.shared.retry_pace import Wait
from allocator.schemes.worker_number_lease import Clocks, NumberClaim, NumberLease, NumberRow, Tenure
from simulation import rows as sql
from simulation.seeds import Engine, Violation, holds, is_out

BEGIN = 1_800_000_000_000
LENGTH = 10_000
"""Of a lease, in milliseconds."""
SPACE, BITS = "pods", 3


FAULTS = ("kill", "kill", "stop", "stop", "pause", "step", "step", "server steps", "failover")
LONGEST_STEP = LENGTH
"""Of the server's clock, on which it may step to and fro."""
OLD_ANSWERS = LENGTH // 2
"""For so long the old server answers as well, after a failover."""


class Used(NamedTuple):
    """A pod used its number from one moment to another, and from one millisecond on the wall to another."""

    since: int
    until: int
    wall_since: int
    wall_until: int
    holder: str

    def seconds(self) -> tuple[int, int, str]:
        """The seconds on the wall that it used, if only in part: some generators count seconds."""
        return self.wall_since // 1000, -(-self.wall_until // 1000), self.holder


class Server:
    """`states` are its commits: when, the rows, and the run that wrote the shard's row with the moment of that move."""

    def __init__(self, residue: Residue = ALL, moved_at: int = 0) -> None:
        self.rows: dict[int, NumberRow] = {}
        self.known = (0, moved_at)
        self.states = [(0, self.rows, self.known)]
        self.run = self.offset = 0
        self.residue = residue
        self.old: tuple[int, Server] | None = None
        """Until when the server before answers as well."""

    def put(self, now: int, row: NumberRow) -> None:
        self.rows = {**self.rows, row.number: row}
        self.states.append((now, self.rows, self.known))

    def read(self, now: int) -> tuple[list[NumberRow], int, tuple[int, int]]:
        at = BEGIN + now + self.offset
        if self.known[0] != self.run:
            self.known = (self.run, at)
            self.states.append((now, self.rows, self.known))
        return list(self.rows.values()), at, self.known

    def fail_over(self, now: int, lag: int) -> int:
        """Another server goes on, without what was written in the last `lag` milliseconds; how much it forgot."""
        self.old = now + OLD_ANSWERS, copy(self)
        self.old[1].states, self.old[1].old = [], None
        self.run += 1
        kept = bisect(self.states, now - lag, lo=1, key=itemgetter(0))
        forgotten = len(self.states) - kept
        del self.states[kept:]
        _, self.rows, self.known = self.states[-1]
        return forgotten


class Pod:
    def __init__(self, world: World, name: int) -> None:
        self.world, self.name = world, name
        self.stopped_until = 0
        self.dead = False
        self._boot, self._off = world.random.randrange(10**6), world.skew()
        self._tenure: Tenure | None = None
        self._lease = NumberLease(SPACE, 0, "", LENGTH)
        self._server = world.servers[0]
        self._values: list[int] | None = [] if name % 2 else None
        """Of a snowflake: the first and the last that it used, and the last that it may use."""
        self._mark: tuple[int, int] | None = None
        self._late = False
        """One of its clocks has lost time."""

    def clocks(self) -> Clocks:
        now = self.world.now
        return Clocks((now + self._boot) / 1000, BEGIN + now + self._off)

    # -- what it uses

    @property
    def pauses(self) -> bool:
        """It has a number and does not use it: it was stopped, or its clock on the wall is before the lease."""
        return self._mark is None and self._tenure is not None

    def mark(self, *, goes_on: bool = True) -> None:
        """What it used since the last mark: called when its clocks or its lease change, and while it uses nothing."""
        now, tenure = self.world.now, self._tenure
        if tenure is None:
            return
        if self._mark is not None and self._mark[1] > 0:
            since, left = self._mark
            until = min(now, since + left)
            walls = (BEGIN + since + self._off, BEGIN + until + self._off)
            self.world.used[self._lease.number].append(Used(since, until, *walls, self._lease.holder))
            tenure.used_ms = max(tenure.used_ms, walls[1] - 1)  # an id is used only if the lease holds after it is made
        lost, used_ms = tenure.lost, tenure.used_ms
        left = round(1000 * tenure.left(self.clocks()))
        tenure.lost, tenure.used_ms = lost, used_ms  # it is the world that looked, not the pod
        self._mark = (now, left) if goes_on and left > 0 else None

    def step(self, by: int) -> None:
        self.mark()
        self._off += abs(by) if self._late else by
        self._late |= by < 0
        self.mark()

    def stop(self, milliseconds: int, *, clock_stands: bool = False) -> None:
        """Stopped, as by SIGSTOP; or its machine was paused, which its own clock does not notice."""
        self.mark(goes_on=False)
        self.stopped_until = self.world.now + milliseconds
        if clock_stands and not self._late:
            self._boot -= milliseconds
            self._late = True

    # -- what it does

    def life(self) -> Generator[int, None, None]:
        world, dice = self.world, self.world.random
        latency = world.latency
        for attempt in range(30):
            asked = self.clocks()
            claim = NumberClaim(SPACE, BITS, LENGTH, asked.wall_ms, f"{self.name}.{attempt}")
            yield latency()
            self._server = dice.choice(world.servers)
            there = world.reached(self._server)
            residue, (rows, at, known) = there.residue, there.read(world.now)
            yield latency()
            try:
                rule.check_clock(claim, at)
                rule.check_moved(known[1], claim, at)
                chosen = rule.choose(rows, claim, residue, at, 1 << attempt, dice.getrandbits(16))
            except (DatabaseUnavailable, InvalidSetting, NodeIdsExhausted) as error:
                world.counts[type(error).__name__] += 1
                yield LENGTH // 10 + world.below(LENGTH // 2 - LENGTH // 10)
                continue
            yield world.latency()
            taken = world.take(world.reached(self._server), chosen, claim, known)
            yield world.latency()
            if taken is not None:
                break
        else:
            return
        world.counts["took over"] += not isinstance(chosen, int) and bool(chosen.holder)
        world.counts["leased"] += 1
        self._lease = NumberLease(SPACE, taken, claim.holder, LENGTH)
        if self._values is not None:
            self._values = [asked.wall_ms, asked.wall_ms, asked.wall_ms + LENGTH]
            world.values[taken].append((self._values, claim.holder))
        self._tenure = Tenure(LENGTH, self.clocks() if is_out("a lease counts from the request") else asked)
        self.mark()
        yield from self._hold(self._tenure, world.now + dice.randrange(6 * LENGTH))
        self.mark(goes_on=False)
        self._tenure = None

    def _hold(self, tenure: Tenure, end: int) -> Iterator[int]:
        world = self.world
        while world.now < end:
            step = tenure.want(self.clocks())
            if step is None:
                world.counts["lost by its clocks"] += 1
                return
            if isinstance(step, Wait):
                yield max(1, ceil(1000 * step.seconds))
                continue
            asked = Clocks(step.asked.own, self.value(step.asked.wall_ms))
            yield world.latency()
            is_ours = world.renew(world.reached(self._server), self._lease, asked.wall_ms)
            yield world.latency()
            if world.random.random() < 0.1:
                world.counts["answers lost"] += 1
                continue
            if not is_ours:
                tenure.failed(rule.lost(self._lease))
                world.counts["lost by the database"] += 1
                return
            self.mark()
            tenure.renewed(self.clocks() if is_out("a lease counts from the request") else asked, self.clocks())
            if self._values and tenure.left(self.clocks()) > 0:
                self._values[2] = asked.wall_ms + LENGTH
            self.mark()
        self.mark(goes_on=False)
        self._tenure = None
        if tenure.left(self.clocks()) > 0:
            used_ms = self.value(tenure.used_ms)
            yield world.latency()
            world.release(world.reached(self._server), self._lease, used_ms)

    def value(self, wall_ms: int) -> int:
        """What a snowflake asks with: its last value, which may be ahead of the clock on the wall."""
        if not self._values:
            return wall_ms
        _, last, end = self._values
        ahead = self.world.below(LENGTH // 3) if self.world.random.random() < 0.5 else 0
        self._values[1] = min(end, max(last, wall_ms) + ahead)
        return max(self._values[1], wall_ms)


class World:
    """Runs `pods` of them; `used` says by number what they used."""

    def __init__(self, seed: int, pods: int) -> None:
        """Each second world is one of slots."""
        self.random = random.Random(seed)
        self._any, self._bits = self.random.random, self.random.getrandbits
        self.now = 0
        self.servers = [Server()]
        self.counts: Counter[str] = Counter()
        self.used: dict[int, list[Used]] = defaultdict(list)
        self.values: dict[int, list[tuple[list[int], str]]] = defaultdict(list)
        self._events: list[tuple[int, int, Any, Any]] = []
        """The moment, a number that keeps those of one moment in order, what is called, and with what."""
        self._numbers = count()
        self._alive: list[Pod] = []
        each = LENGTH * 3 // (1 << BITS)
        for number in range(pods):
            self._at(self.random.randrange(1 + each * pods), self._start, number)
        for _ in range(1 + pods // 2):
            self._at(self.random.randrange(1 + each * pods), self._fault, None)
        if seed % 2:
            made = self.random.randrange(1 + each * pods)
            self._at(made, self._make, None)
            self._at(made + self.random.randrange(LENGTH), self._add, None)

    def run(self) -> World:
        events = self._events
        with patch.object(rule, "exhausted", without_words), patch.object(rule, "SECONDS", LENGTH / 1000):
            while events:
                self.now, _, act, argument = heappop(events)
                act(argument)
        return self

    def _at(self, moment: int, act: Any, argument: Any) -> None:
        heappush(self._events, (moment, next(self._numbers), act, argument))

    def _start(self, number: int) -> None:
        pod = Pod(self, number)
        self._alive.append(pod)
        self._go_on((pod, pod.life()))

    def _go_on(self, running: tuple[Pod, Generator[int, None, None]]) -> None:
        pod, life = running
        if pod.dead:
            return
        if pod.stopped_until > self.now:
            self._at(pod.stopped_until, self._go_on, running)
            return
        events = self._events
        while True:
            if pod.pauses:
                pod.mark()
            pause = next(life, None)
            if pause is None:
                self._alive.remove(pod)
                return
            moment = self.now + pause
            if events and events[0][0] <= moment:
                self._at(moment, self._go_on, running)
                return
            self.now = moment  # nothing else happens before

    # -- how long, how far

    def latency(self) -> int:
        """Of a request or an answer: mostly a few milliseconds, now and then longer than a lease."""
        return self.below(5 if self._any() < 0.95 else LENGTH * 2)

    def below(self, end: int) -> int:
        """As `randrange(end)`, in half its time: worlds draw a lot."""
        bits = end.bit_length()
        found = self._bits(bits)
        while found >= end:
            found = self._bits(bits)
        return found

    def skew(self) -> int:
        if is_out("a clock on the wall may be wrong"):
            return 0
        return self.random.choice((0, 0, 0, self.random.randrange(-4 * LENGTH, LENGTH)))

    def _fault(self, _: None) -> None:
        dice = self.random
        what = dice.choice(FAULTS)
        self.counts[what] += 1
        server = dice.choice(self.servers)
        if what == "failover":
            forgotten = server.fail_over(self.now, dice.randrange(LENGTH))
            self.counts["commits forgotten"] += forgotten
        if what in ("failover", "server steps"):
            # To any place within a length: no two clocks of servers differ by more than that.
            server.offset = dice.choice((0, dice.randrange(LONGEST_STEP + 1)))
        elif self._alive:
            pod = dice.choice(self._alive)
            if what == "kill":
                pod.mark(goes_on=False)
                pod.dead = True
                self._alive.remove(pod)
            elif what == "step" and not is_out("a clock on the wall may be wrong"):
                pod.step(dice.choice((-1, 1)) * int(LENGTH * 2 ** dice.uniform(-6, 3)))
            else:
                pod.stop(dice.randrange(3 * LENGTH), clock_stands=what == "pause")

    def _make(self, _: None) -> None:
        self.servers[0].residue = Residue(1, 2)

    def _add(self, _: None) -> None:
        """Its rows begin with a move of now."""
        offset = self.random.choice((0, self.random.randrange(LONGEST_STEP + 1)))
        new = Server(Residue(2, 2), (BEGIN + self.now + offset) * (not is_out("a new slot waits")))
        new.offset = offset
        self.servers.append(new)
        self.counts["slots added"] += 1

    def reached(self, server: Server) -> Server:
        """It, or the one before, which does not know yet."""
        is_old = server.old and self.now < server.old[0] and self._any() < 0.5
        self.counts["asked an old server"] += bool(is_old)
        return server.old[1] if server.old and is_old else server

    # -- the statements, as the memory backend has them

    def at(self, server: Server) -> int:
        return BEGIN + self.now + server.offset

    def owns(self, server: Server, number: int) -> bool:
        return holds(("a lease: residue", number % server.residue.step == server.residue.offset - 1))

    def take(self, server: Server, chosen: NumberRow | int, claim: NumberClaim, known: tuple[int, int]) -> int | None:
        number = chosen if isinstance(chosen, int) else chosen.number
        row = server.rows.get(number)
        if not self.owns(server, number) or not holds(
            ("a lease: known run", server.known == known and server.run == known[0]),
            ("a lease: as it was read", row == (None if isinstance(chosen, int) else chosen)),
        ):
            return None
        server.put(self.now, sql.leased(number if row is None else row, claim, self.at(server)))
        return number

    def renew(self, server: Server, lease: NumberLease, wall_ms: int) -> bool:
        row = server.rows.get(lease.number)
        is_ours = row and self.owns(server, lease.number)
        fresh = sql.renewed(row, lease, wall_ms, self.at(server)) if row and is_ours else None
        if fresh:
            server.put(self.now, fresh)
        return fresh is not None

    def release(self, server: Server, lease: NumberLease, used_ms: int) -> None:
        row = server.rows.get(lease.number)
        if row and (fresh := sql.released(row, lease, used_ms, self.at(server))):
            server.put(self.now, fresh)

    # -- the verdict

    def overlaps(self) -> int:
        """How often a number was held by two at one moment, or used by two in one second or value of their clocks."""
        found = 0
        for uses in self.used.values():
            found += overlaps([(one.since, one.until, one.holder) for one in uses])
            found += overlaps([one.seconds() for one in uses if one.wall_since < one.wall_until])
        spans = ([(since, last + 1, holder) for (since, last, _), holder in uses] for uses in self.values.values())
        return found + sum(map(overlaps, spans))


def without_words(*_: object) -> NodeIdsExhausted:
    """What all numbers are held by is for people, and a fifth of the time of a world."""
    return NodeIdsExhausted()


def overlaps(spans: list[tuple[int, int, str]]) -> int:
    """How many spans begin before that of another holder has ended."""
    found, reach, owner, second = 0, -1, "", -1
    for since, until, holder in sorted(spans):
        # The furthest end of one holder, and the furthest of any other.
        ends = second if holder == owner else reach
        found += since < ends and since < until
        if holder == owner:
            reach = max(reach, until)
        elif until > reach:
            reach, owner, second = until, holder, reach
        else:
            second = max(second, until)
    return found


def play(seed: int, pods: int) -> Counter[str]:
    world = World(seed, pods).run()
    if times := world.overlaps():
        raise Violation(f"held by two, or used at one time, {times} times")
    return world.counts


PODS = Engine("pods", partial(play, pods=1000))
FEW = Engine("pods", partial(play, pods=40))

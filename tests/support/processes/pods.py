"""Pods that run a command under a worker number, more of them than there are numbers; and the faults that befall them.

Each attempt of a pod is `allocator worker run` in a process of its own. One that finds no number, or whose command has
ended, is started again some seconds later, as Kubernetes does.
"""

import os
import random
import signal
import struct
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from support.processes.crew import Crew

BITS = 4
LEASE = 6.0
AGAIN = (2.0, 8.0)
"""Seconds until a pod is started again."""
STOPPED = (0.2 * LEASE, 2.5 * LEASE)
"""How long a process is stopped: mostly longer than its lease."""
FAULTS = ("kill wrapper", "kill command", "stop wrapper", "stop command")

ENTRY = struct.Struct("=dd")
"""Seconds by the clock that counts sleep, and by the wall clock."""
HOLDER = """
import os, struct, sys, time
number = os.environ["WORKER_ID"]
path = f"{sys.argv[1]}/held-{number}-{time.time_ns()}-{os.getpid()}"
file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND)
while True:
    os.write(file, struct.pack("=dd", time.clock_gettime(time.CLOCK_BOOTTIME), time.time()))
    time.sleep(0.01)
"""
"""The command of a pod: it notes a hundred times a second that it has its number."""


def run(notes: Path, number: int, url: str) -> None:
    """The work of a crew."""
    from allocator.cli import main

    options = ["--url", url, "--space", "pods", "--bits", str(BITS), "--seconds", str(LEASE)]
    command = [sys.executable, "-I", "-S", "-c", HOLDER, str(notes.parent)]
    with suppress(SystemExit):
        main(["worker", "run", *options, "--", *command], prog_name="allocator")
    time.sleep(random.uniform(*AGAIN))


class Pods(Crew):
    """faults: what was done to how many. stopped: the processes that are stopped now, and until when."""

    def __init__(self, url: str, folder: Path, *, seed: int, count: int = 64) -> None:
        self.faults, self.stopped = Counter[str](), dict[int, float]()
        super().__init__(run, folder, url, count=count, seed=seed)

    def run(self, seconds: float, every: float) -> None:
        """Keep them running, with a fault each `every` seconds."""
        begin = fault_at = time.monotonic()
        while (now := time.monotonic()) < begin + seconds:
            self.replace_the_ended()
            self.let_go(now)
            if now >= fault_at:
                fault_at += every
                self.strike(now)
            time.sleep(0.05)

    def let_go(self, now: float) -> None:
        for process in [one for one, end in self.stopped.items() if now >= end]:
            send(process, signal.SIGCONT)
            del self.stopped[process]

    def strike(self, now: float) -> None:
        """One that holds a number, and to which nothing is being done."""
        wrappers = [(worker.process.pid or 0, command_of(worker.process.pid)) for worker in self.running]
        holding = [both for both in wrappers if both[1] and not self.stopped.keys() & {*both}]
        if not holding:
            return
        (wrapper, command), what = self.rnd.choice(holding), self.rnd.choice(FAULTS)
        victim = command if what.endswith("command") else wrapper
        self.faults[what] += 1
        if what.startswith("stop"):
            send(victim, signal.SIGSTOP)
            self.stopped[victim] = now + self.rnd.uniform(*STOPPED)
        else:
            send(victim, signal.SIGKILL)

    def close(self) -> None:
        self.let_go(float("inf"))
        super().close()


def send(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def command_of(wrapper: int | None) -> int:
    """The command of a wrapper, once it runs; else 0."""
    with suppress(OSError, ValueError):
        command = int(Path(f"/proc/{wrapper}/task/{wrapper}/children").read_text())
        if b"WORKER_ID" in Path(f"/proc/{command}/cmdline").read_bytes():
            return command
    return 0


# -- what pods wrote down: nobody holds a number while another does, nor in a second that another used


class Verdict(NamedTuple):
    """holders: commands that ran. together: how often one began before another of its number had ended.

    seconds_twice: seconds of the wall clock in which two used one number.
    """

    holders: int
    numbers: int
    together: int
    seconds_twice: int


def judged(folder: Path) -> Verdict:
    spans: dict[str, list[tuple[float, float, set[int]]]] = defaultdict(list)
    for path in folder.glob("held-*"):
        data = path.read_bytes()
        if entries := list(ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size])):
            times, walls = zip(*entries, strict=True)
            spans[path.name.split("-")[1]].append((times[0], max(times), set(map(int, walls))))
    together = seconds_twice = 0
    for of_one in spans.values():
        end, used = 0.0, set[int]()
        for begins, ends, seconds in sorted(of_one, key=lambda span: span[0]):
            together += begins <= end
            seconds_twice += len(used & seconds)
            end, used = max(end, ends), used | seconds
    return Verdict(sum(map(len, spans.values())), len(spans), together, seconds_twice)

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
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import quantiles

from support.closing import Closing
from support.processes.crew import PROCESSES

BITS = 4
LEASE = 6.0
AGAIN = (2.0, 8.0)
"""Seconds until a pod is started again."""
STOPPED = (0.2 * LEASE, 2.5 * LEASE)
"""How long a process is stopped: mostly longer than its lease."""
FAULTS = ("terminate", "kill wrapper", "kill command", "stop wrapper", "stop command")

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


def run(url: str, folder: str) -> None:
    from allocator.cli import main

    with Path(folder, "errors").open("a") as file:
        os.dup2(file.fileno(), 2)
    options = ["--url", url, "--space", "pods", "--bits", str(BITS), "--seconds", str(LEASE)]
    main(["worker", "run", *options, "--", sys.executable, "-I", "-S", "-c", HOLDER, folder], prog_name="allocator")


@dataclass
class Pod:
    starts_at: float
    process: BaseProcess | None = None
    stopped: int = 0
    """The process that is stopped now, and until when."""
    until: float = 0.0


class Pods(Closing):
    """attempts: how many were made. faults: what was done to how many."""

    def __init__(self, url: str, folder: Path, *, seed: int, count: int = 64) -> None:
        self.url, self.folder, self.rnd = url, folder, random.Random(seed)
        self.pods = [Pod(starts_at=self.rnd.uniform(0, 5)) for _ in range(count)]
        self.attempts, self.faults = 0, Counter[str]()

    def run(self, seconds: float, every: float) -> None:
        """Keep them running, with a fault each `every` seconds."""
        begin = time.monotonic()
        fault_at = every
        while (now := time.monotonic() - begin) < seconds:
            for pod in self.pods:
                self.look(pod, now)
            if now >= fault_at:
                fault_at += every
                self.strike(now)
            time.sleep(0.05)

    def look(self, pod: Pod, now: float) -> None:
        if pod.stopped and now >= pod.until:
            send(pod.stopped, signal.SIGCONT)
            pod.stopped = 0
        if pod.process is not None and not pod.process.is_alive():
            pod.process.close()
            pod.process, pod.starts_at = None, now + self.rnd.uniform(*AGAIN)
        if pod.process is None and now >= pod.starts_at:
            pod.process = PROCESSES.Process(target=run, args=(self.url, str(self.folder)), daemon=True)
            pod.process.start()
            self.attempts += 1

    def strike(self, now: float) -> None:
        """One that holds a number, and to which nothing is being done."""
        holding = [pod for pod in self.pods if not pod.stopped and pod.process and command_of(pod.process.pid)]
        if not holding:
            return
        pod, what = self.rnd.choice(holding), self.rnd.choice(FAULTS)
        wrapper = pod.process.pid if pod.process else 0
        victim = command_of(wrapper) if what.endswith("command") else wrapper
        if not victim:
            return
        self.faults[what] += 1
        if what.startswith("stop"):
            send(victim, signal.SIGSTOP)
            pod.stopped, pod.until = victim, now + self.rnd.uniform(*STOPPED)
        else:
            send(victim, signal.SIGTERM if what == "terminate" else signal.SIGKILL)

    def close(self) -> None:
        for pod in self.pods:
            if pod.stopped:
                send(pod.stopped, signal.SIGCONT)
        alive = [pod.process for pod in self.pods if pod.process is not None]
        for process in alive:
            process.kill()
        for process in alive:
            process.join()


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


@dataclass
class Verdict:
    """holders: commands that ran. together: how often one began before another of its number had ended.

    seconds_twice: seconds of the wall clock in which two used one number. pauses: from the end of one to the next.
    """

    holders: int = 0
    numbers: int = 0
    together: int = 0
    seconds_twice: int = 0
    pauses: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        cuts = quantiles(self.pauses, n=20) if len(self.pauses) > 1 else [0.0] * 19
        least, most = min(self.pauses, default=0), max(self.pauses, default=0)
        return (
            f"{self.holders} holders of {self.numbers} numbers, {self.together} together, {self.seconds_twice} seconds "
            f"used twice; from the end of one to the next {least:.1f} / {cuts[9]:.1f} / {cuts[18]:.1f} / {most:.1f} s "
            "(least, median, 95 %, most)"
        )


def judged(folder: Path) -> Verdict:
    spans: dict[str, list[tuple[float, float, set[int]]]] = defaultdict(list)
    for path in folder.glob("held-*"):
        data = path.read_bytes()
        if entries := list(ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size])):
            times, walls = zip(*entries, strict=True)
            spans[path.name.split("-")[1]].append((times[0], max(times), set(map(int, walls))))
    found = Verdict(sum(map(len, spans.values())), len(spans))
    for of_one in spans.values():
        end, used = 0.0, set[int]()
        for begins, ends, seconds in sorted(of_one, key=lambda span: span[0]):
            if end:
                found.pauses.append(begins - end)
            found.together += begins <= end
            found.seconds_twice += len(used & seconds)
            end, used = max(end, ends), used | seconds
    return found

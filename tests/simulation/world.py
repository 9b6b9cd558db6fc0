"""A world: processes before databases, a plan of faults, then everything mended, and all must give ids again."""

import gc
from collections import Counter

from simulation.account import METEOR, SNOWFLAKE, Account
from simulation.faces import ObservedAllocator, faces
from simulation.network import Place
from simulation.plan import FAULTS_END, Plan, act, draw
from simulation.process import Process, probe
from simulation.scheduler import Scheduler
from simulation.seeds import Engine, Violation, fewest, is_out

HEALING = 0.7
"""Seconds of use after everything was mended."""
PATIENCE = 10.0
"""Seconds after that in which every process must have given an id of every tag, or said why it never will. Leases wait
for seven of them after a failover, which may be noted late."""


class World:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.scheduler = Scheduler(plan.seed)
        self.account = Account()
        self.database_off = 0.0
        """By how much the clocks of the servers are off."""
        self.has_lost = False
        """A server has forgotten commits."""
        self.had_two = False
        """Two servers of one place were reached at once: who went to and fro is stopped, rightly."""
        self.has_moved = False
        """Another server run begins."""
        self.is_ending = False
        self.tags = [f"tag{number}" for number in range(len(plan.tags))]
        self.new_tags = {name for name, tag in zip(self.tags, plan.tags, strict=True) if tag.is_new}
        self.limits = dict(zip(self.tags, (tag.limit for tag in plan.tags), strict=True))
        self.places = [Place(self, offset, plan.shards) for offset in range(1, plan.shards + 1)]
        self.processes: list[Process] = []

    def allocator(self) -> ObservedAllocator:
        return ObservedAllocator(
            self.places[0] if self.plan.shards == 1 else None,
            shards=None if self.plan.shards == 1 else self.places,
            timeout=self.plan.timeout,
            step=10,
            max_step=50,
            runway=1.0,
            meteor=METEOR,
            snowflake=SNOWFLAKE,
        )

    # -- what steps and processes ask

    def place(self, number: int) -> Place:
        return self.places[number % len(self.places)]

    def count(self, what: str, times: int = 1) -> None:
        self.account.counts[what] += times

    def may_be_gone(self, tag: str) -> bool:
        """Whether a server may have forgotten that the tag was made: then whoever has seen it is stopped, rightly."""
        guarded = not is_out("claim: own run") and not is_out("a gap is not forgotten")
        return self.has_lost and (tag in self.new_tags or not guarded or self.had_two)

    def start(self) -> None:
        process = Process(self, len(self.processes))
        self.processes.append(process)
        process.start()
        self.count("processes started")

    # -- two phases

    def run(self) -> None:
        gc.collect()
        gc.disable()  # when a tag is forgotten that nobody holds must not hang on what other worlds left in memory
        for _ in range(self.plan.processes):
            self.start()
        for step in self.plan.steps:
            self.scheduler.after(step.moment, act, self, step)
        self.scheduler.run(FAULTS_END)
        self._mend()
        self.scheduler.run(FAULTS_END + HEALING)
        self.is_ending = True
        self._check_progress()

    def _mend(self) -> None:
        for place in self.places:
            place.cut_off.clear()
            place.fates.clear()
            place.server.is_frozen = False
        self.database_off = 0.0
        for process in list(self.processes):
            process.clock.mend()
            process.may_start_threads, process.stalls = True, 0.0
            if process.is_dead:
                self.start()
            elif process.is_paused:
                process.go_on()

    def _check_progress(self) -> None:
        probes = {process: probe(process) for process in self.processes if not process.is_dead}
        # Who leases a worker waits until its clock is past what was in use by clocks that were ahead.
        steps = sum(abs(step.size) for step in self.plan.steps if step.kind == "clock")
        self.scheduler.run(FAULTS_END + HEALING + PATIENCE + steps)
        for process, still in probes.items():
            if still:
                raise Violation(f"{process} gave no id of {', '.join(still)} after everything was mended")
            self.account.check_conserved(process)

    def finish(self) -> None:
        """Let go of everything: a finalizer would keep its queue, and whoever waits there, to the end of Python."""
        self.scheduler.finish()
        for process in self.processes:
            process.ids._terms.background._finalizer.detach()
        gc.enable()


def run(plan: Plan) -> Account:
    """Run a world to its end. Raises `Violation`, or whatever else a thread of it ended with."""
    world = World(plan)
    try:
        world.run()
        return world.account
    finally:
        world.finish()


def play(seed: int) -> Counter[str]:
    return run(draw(seed)).counts


def failure(plan: Plan) -> Exception | None:
    """What a world ends with, None when it ends well."""
    try:
        run(plan)
    except Exception as error:
        return error
    return None


def shrunk(plan: Plan) -> Plan:
    """The smallest that still fails. Every one that is tried is a world of its own, run from the beginning."""
    plan = plan.only(steps=tuple(fewest(plan.kept, lambda kept: failure(plan.only(steps=tuple(kept))) is not None)))
    for name, many in (("tags", len(plan.tags)), ("threads", plan.threads), ("processes", plan.processes)):
        for fewer in range(many - 1, 0, -1):
            if failure(smaller := plan.only(**{name: fewer})):
                plan = smaller
    return plan


def trace(seed: int) -> str:
    """If the smallest plan does not fail, the simulator has a fault."""
    plan = shrunk(draw(seed))
    steps = "".join(f"\n    {step}" for step in plan.steps)
    return f"{failure(plan)!r}\nagain: PYTHONPATH=tests python -m simulation {plan.words}{steps}"


PLANS = Engine("plans", play, faces, trace)

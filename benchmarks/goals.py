"""The promised ratios within one run, and whether they hold, or whether the run was too noisy to tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .rounds import Race, Spread


@dataclass(frozen=True)
class Goal:
    """An upper or lower bound for the ratio of two candidates of one race."""

    what: str
    of: str
    to: str
    bound: float
    least: bool = False

    def is_in(self, race: Race) -> bool:
        return race.judged and self.of in race.candidates and self.to in race.candidates

    def keeps(self, ratio: float) -> bool:
        """Whether a ratio keeps the bound, at the precision of the bound."""
        found = round(ratio, 2)
        return found >= self.bound if self.least else found <= self.bound


@dataclass(frozen=True)
class Verdict:
    goal: Goal
    suite: str
    found: Spread
    control: Spread | None = None

    @property
    def place(self) -> str:
        """The database of a suite that runs on several."""
        kind, _, place = self.suite.partition(", ")
        return place if kind in {"claim", "latency", "insert", "first id"} else ""

    @property
    def noise(self) -> str:
        """Why this run cannot judge the goal; empty where it can."""
        goal, found = self.goal, self.found
        if goal.keeps(found.lower_quartile) != goal.keeps(found.upper_quartile):
            return "half of the rounds lie on both sides of the bound"
        if self.control and distance(self.control.median, 1.0) > distance(found.median, goal.bound):
            return "the same candidate measured twice differs by more than the distance to the bound"
        return ""

    @property
    def held(self) -> bool | None:
        """Whether the ratio keeps the bound; None if the run is too noisy to tell."""
        return None if self.noise else self.goal.keeps(self.found.median)

    @property
    def word(self) -> str:
        return WORDS[self.held]

    @property
    def is_settled(self) -> bool:
        """Whether four fifths of the rounds agree, so that more rounds are not needed."""
        return not self.noise and self.goal.keeps(self.found.low) == self.goal.keeps(self.found.high)


WORDS = {True: "held", False: "missed", None: "too noisy to judge"}


def distance(one: float, other: float) -> float:
    """The factor from the lesser to the greater; without end where there is none."""
    return max(one, other) / min(one, other) if min(one, other) > 0 else float("inf")


def judged(races: Sequence[Race], goals: Sequence[Goal]) -> list[Verdict]:
    """Judge each goal, in order; skip those that were not measured."""
    return [
        Verdict(goal, race.suite, race.spreads(goal.of, goal.to), race.control)
        for goal in goals
        for race in races
        if goal.is_in(race) and race.found
    ]


CALLS = (
    Goal("sequence.next_id()", "sequence.next_id()", "next(range_iterator)", 2.2),
    Goal("ids.next_id(tag)", "ids.next_id(tag)", "next(range_iterator)", 2.9),
    Goal("for id in sequence, per id", "for id in sequence", "next(range_iterator)", 1.5),
    Goal("ids.next_ids(tag, 1000) to list(range)", "ids.next_ids(tag, 1000)", "list(range)", 1.5),
    Goal("8 threads to 1, per id", "8 threads", "1 thread", 1.3),
    Goal("await ids.next_id(tag) to an empty coroutine", "await ids.next_id(tag)", "await empty()", 2.5),
    Goal("Meteor.next_id()", "Meteor.next_id()", "next(range_iterator)", 4.0),
    Goal("ids.meteor()", "ids.meteor()", "next(range_iterator)", 4.0),
    Goal("Snowflake.next_id(), CPU", "Snowflake.next_id()", "next(range_iterator)", 8.0),
    Goal("ids.snowflake(), CPU", "ids.snowflake()", "next(range_iterator)", 8.0),
    Goal("ids.snowflake(), sustained, to the format's limit", "ids.snowflake(), sustained", "4096", 0.97, least=True),
    Goal("uuid.uuid4() to sequence.next_id()", "uuid.uuid4()", "sequence.next_id()", 35.0, least=True),
    Goal("uuid_utils.uuid7() to sequence.next_id()", "uuid_utils.uuid7()", "sequence.next_id()", 2.5, least=True),
    Goal("bson.ObjectId() to sequence.next_id()", "bson.ObjectId()", "sequence.next_id()", 30.0, least=True),
)
CLAIMS = (
    Goal("a claim to the same statement on the bare driver", "claim", "bare driver", 1.35),
    Goal("round trips of a claim", "round trips of a claim", "one", 1.0),
)
LATENCY = (Goal("p99.9 with the claim in advance, to without", "in advance", "when needed", 0.1),)
START = (
    Goal("import allocator to import sqlalchemy", "import allocator", "import sqlalchemy", 0.25),
    Goal(
        "a process with its first id, to one with SQLAlchemy's SELECT 1, CPU",
        "import allocator … first id",
        "import sqlalchemy … SELECT 1",
        1.25,
    ),
    Goal("memory of an idle tag, in KiB", "an idle tag", "1 KiB", 2.0),
)
INSERTS = (
    Goal("10,000 rows with our default to ids by hand", "our default", "by hand", 1.1),
    Goal(
        "10,000 rows numbered by the database one by one, to our default",
        "the database's own, one by one",
        "our default",
        3.0,
        least=True,
    ),
    Goal("10,000 objects with our default to keys by hand", "objects, our default", "objects by hand", 1.1),
)
NUMBERS = (
    Goal("invoices a second to django-sequences", "ours, Django", "django-sequences", 1.0, least=True),
    Goal("invoices a second to a counter by hand", "ours, SQLAlchemy", "by hand", 1.0, least=True),
)
GOALS = (*CALLS, *CLAIMS, *LATENCY, *START, *INSERTS, *NUMBERS)

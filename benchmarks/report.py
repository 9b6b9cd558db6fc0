"""The report of a run: a table and JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from allocator import __version__

from .goals import GOALS, WORDS, Verdict, judged
from .rounds import Race, Spread, spread

Latencies = Mapping[str, Mapping[str, float]]


@dataclass
class Found:
    """The results of a run. `latencies`: percentiles in microseconds, by suite and candidate."""

    command: str
    races: list[Race] = field(default_factory=list)
    latencies: dict[str, Latencies] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    @property
    def verdicts(self) -> list[Verdict]:
        return judged(self.races, GOALS)

    @property
    def where(self) -> str:
        """The machine of the run, as far as ratios depend on it."""
        cores = f"{os.cpu_count()} cores"
        python = f"{platform.python_implementation()} {platform.python_version()}"
        return ", ".join([cores, python, *(f"{name} {version}" for name, version in self.places.items())])

    def race(self, suite: str) -> Race | None:
        return next((race for race in self.races if race.suite == suite), None)


def number(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def ranged(found: Spread) -> str:
    return f"{number(found.low)} to {number(found.high)}"


def columns(rows: Iterable[Sequence[str]]) -> str:
    """Format a table as text: first column left-aligned, others right-aligned."""
    listed = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in listed
    )


def race_rows(race: Race) -> list[list[str]]:
    rows = [[race.suite, race.unit, "spread", "a second", f"to {race.base}", "spread"]]
    for name in race.candidates:
        here, ratio, rate = race.spreads(name), race.spreads(name, race.base), race.a_second(name)
        told = [number(here.median), ranged(here), number(rate) if rate else "", number(ratio.median), ranged(ratio)]
        rows.append([f"  {name}", *told])
    if control := race.control:
        here = spread(race.again)
        rows.append([f"  {race.base}, again", number(here.median), ranged(here), "", number(control.median)])
        rows[-1].append(ranged(control))
    return rows


def latency_rows(latencies: Mapping[str, Latencies]) -> list[list[str]]:
    rows = []
    for suite, ways in latencies.items():
        names = list(next(iter(ways.values())))
        rows.append([f"{suite}, in us", *names])
        rows += [[f"  {way}", *(number(taken[name]) for name in names)] for way, taken in ways.items()]
    return rows


def verdict_rows(verdicts: Iterable[Verdict]) -> list[list[str]]:
    head = ["figure", "found", "spread", "bound", ""]
    return [
        head,
        *([named(one), number(one.found.median), ranged(one.found), bounded(one), one.word] for one in verdicts),
    ]


def bounded(verdict: Verdict) -> str:
    return f"{'≥' if verdict.goal.least else '≤'} {verdict.goal.bound:g}"


def place_rows(verdicts: Iterable[Verdict], places: Sequence[str]) -> list[list[str]]:
    """The figures of several databases: a row for each figure, and a column for each database."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for one in verdicts:
        place, _, detail = one.place.partition(", ")
        cells.setdefault((named(one, detail), bounded(one)), {})[place] = with_verdict(one)
    return [
        ["figure", "bound", *places],
        *([*key, *(found.get(place, "") for place in places)] for key, found in cells.items()),
    ]


def with_verdict(one: Verdict) -> str:
    """The median, with a question mark where the figure is too noisy to judge."""
    return number(one.found.median) + {True: "", False: f", {one.word}", None: "?"}[one.held]


def summary(verdicts: Sequence[Verdict]) -> str:
    """Count the verdicts, and name those that are not held."""
    words = [one.word for one in verdicts]
    counts = ", ".join(f"{words.count(word)} {word}" for word in WORDS.values() if word in words)
    rest = [f"{one.word}: {named(one)}{f' ({one.noise})' if one.noise else ''}" for one in verdicts if not one.held]
    return "\n".join([f"{len(words)} figure{'s' * (len(words) != 1)}: {counts}", *rest])


def named(verdict: Verdict, detail: str | None = None) -> str:
    detail = verdict.place if detail is None else detail
    return f"{verdict.goal.what}{f' ({detail})' if detail else ''}"


def table(found: Found) -> str:
    parts = [columns(race_rows(race)) for race in found.races]
    if found.latencies:
        parts.append(columns(latency_rows(found.latencies)))
    verdicts = found.verdicts
    parts.append(columns(verdict_rows(verdicts)))
    parts.append(f"{found.where}; medians, and where four fifths of the rounds lay")
    return "\n\n".join([*parts, summary(verdicts)] if verdicts else parts)


def as_json(found: Found) -> dict[str, Any]:
    return {
        "allocator": __version__,
        "command": found.command,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "places": found.places,
        "races": [
            {
                "suite": race.suite,
                "unit": race.unit,
                "base": race.base,
                "control": asdict(race.control) if race.control else None,
                "candidates": {
                    name: {
                        **asdict(spread(values)),
                        "a_second": race.a_second(name),
                        "ratio": asdict(race.spreads(name, race.base)),
                        "rounds": len(values),
                    }
                    for name, values in race.found.items()
                },
            }
            for race in found.races
        ],
        "latencies": found.latencies,
        "figures": [
            {
                **asdict(one.goal),
                "suite": one.suite,
                "found": asdict(one.found),
                "held": one.held,
                "verdict": one.word,
                "noise": one.noise,
            }
            for one in found.verdicts
        ],
    }


def write(found: Found, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    told, listed = folder / "bench.txt", folder / "bench.json"
    told.write_text(table(found) + "\n")
    listed.write_text(json.dumps(as_json(found), indent=2, ensure_ascii=False) + "\n")
    return [told, listed]


def markdown_table(rows: Sequence[Sequence[str]], line: str) -> list[str]:
    head, *rest = ("| " + " | ".join(row) + " |" for row in rows)
    return [head, line, *rest]


def bulk_markdown(found: Found) -> str:
    """Format the rates of bulk loads for docs/speed.md; empty if they were not measured."""
    races = [race for race in found.races if race.suite.startswith("bulk, ")]
    rows = [
        [
            race.suite.removeprefix("bulk, "),
            f"{race.base} {number(race.spreads(race.base).median)}",
            "; ".join(f"{name} {number(race.spreads(name, race.base).median)}" for name in others),
        ]
        for race in races
        for others in [[name for name in race.candidates if name != race.base]]
    ]
    head = ["by", "rows a second", "others, as a ratio to that"]
    return "\n".join(markdown_table([head, *rows], "|---|---|---|")) if rows else ""


def markdown(found: Found) -> str:
    """Format the figures for docs/speed.md, without their spreads, which the report has.

    A table of those without a database, and one of the others.
    """
    alone = [one for one in found.verdicts if not one.place]
    placed = [one for one in found.verdicts if one.place]
    lines = []
    if alone:
        rows = [["figure", "found", "bound"], *([named(one), with_verdict(one), bounded(one)] for one in alone)]
        lines += [*markdown_table(rows, "|---|---:|---|"), ""]
    if placed:
        lines += [*markdown_table(place_rows(placed, list(found.places)), "|---" * (2 + len(found.places)) + "|"), ""]
    return "\n".join([*lines, f"`{found.command}`, {found.where}: medians of ratios within one interleaved run."])

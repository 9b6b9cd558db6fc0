"""Runs the suites one after the other, each as one interleaved run."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

import click

from . import bulk, calls, claims, first_id, goals, inserts, latency, plots, report, service, start, waiting
from .places import Place, places
from .report import Found
from .rounds import Race, Stop, run, steps

PROMISED = ("call", "claim", "latency", "insert", "start")
"""The suites of the promised figures, which a run without names measures."""
SUITES = (*PROMISED, "http", "waiting", "bulk")


class Rounds(NamedTuple):
    """Rounds of a quick run, and of a full one.

    A full one ends after the least once each of its verdicts is settled. After `seconds` on a database it ends with as
    few as a quick one, so that all suites take five minutes.
    """

    quick: int
    least: int
    most: int
    seconds: float = inf


ROUNDS = {
    "call": Rounds(25, 40, 100, 45),
    "claim": Rounds(6, 8, 16, 8),
    "latency": Rounds(3, 4, 6, 8),
    "insert": Rounds(3, 4, 6, 12),
    "start": Rounds(3, 8, 12, 8),
    "http": Rounds(3, 5, 5),
    "waiting": Rounds(1, 2, 2),
    "bulk": Rounds(5, 10, 10),
}


class Bench:
    """Has one method per suite."""

    def __init__(self, found: list[Place], quick: bool, command: str, stop: Stop) -> None:
        self.places = found
        self.stop = stop
        self.quick = quick
        self.found = Found(command, places={place.name: place.version for place in found})

    def measure(self, suite: str, races: list[Race], label: str) -> None:
        quick, least, most, seconds = ROUNDS[suite]
        rounds = quick if self.quick else most
        for race in races:
            race.controlled = any(goal.is_in(race) for goal in goals.GOALS)
        judged = any(race.controlled for race in races)
        end = time.monotonic() + seconds

        def enough(done: int) -> bool:
            if done >= quick and time.monotonic() > end:
                return True
            return judged and done >= least and all(one.is_settled for one in goals.judged(races, goals.GOALS))

        self.stop.check()
        with click.progressbar(length=steps(races, rounds), label=f"{label:<24}", file=sys.stderr) as bar:
            for _ in run(races, rounds, enough):
                bar.update(1)
                self.stop.check()
            bar.update((bar.length or 0) - bar.pos)
        self.found.races += races

    def call(self) -> None:
        with calls.races(self.places[0].url, self.places[0].tag("call")) as races:
            self.measure("call", races, "call")

    def claim(self) -> None:
        for place in self.places:
            with claims.races(place, self.quick) as races:
                self.measure("claim", races, f"claim, {place.name}")
                for race in races:
                    timed = {name: one for name, one in race.candidates.items() if isinstance(one, claims.Timed)}
                    if timed:
                        self.found.latencies[race.suite] = {
                            name: latency.percentiles(one.taken) for name, one in timed.items()
                        }

    def latency(self) -> None:
        for place in self.places:
            with latency.races(place, 0.5 if self.quick else 1.0) as (race, paced):
                self.measure("latency", [race], f"latency, {place.name}")
                self.found.latencies[race.suite] = {
                    name: latency.percentiles(one.taken, 1e6) for name, one in paced.items()
                }

    def http(self) -> None:
        with service.races(self.quick) as races:
            self.measure("http", races, "http")

    def insert(self) -> None:
        for place in self.places:
            with inserts.races(place) as races:
                self.measure("insert", races, f"insert, {place.name}")

    def waiting(self) -> None:
        for place in self.places:
            if place.backend != "sqlite":
                with waiting.races(place, self.quick) as races:
                    self.measure("waiting", races, f"waiting, {place.name}")
                    for race in races:
                        ways = {name: one for name, one in race.candidates.items() if isinstance(one, waiting.Way)}
                        self.found.latencies[race.suite] = {
                            name: latency.percentiles(one.taken) for name, one in ways.items() if one.taken
                        }

    def bulk(self) -> None:
        for place in self.places:
            with bulk.races(place, self.quick) as races:
                self.measure("bulk", races, f"bulk, {place.name}")

    def start(self) -> None:
        click.echo("start: the memory of many tags …", err=True)
        with start.races(self.quick) as races:
            self.measure("start", races, "start")
        for place in self.places:
            with first_id.races(place) as (races, ways):
                self.measure("start", races, f"first id, {place.name}")
                self.found.races += first_id.parts_of(place, ways)


def bench(
    suites: Sequence[str],
    urls: Sequence[str],
    *,
    quick: bool,
    servers: bool,
    folder: Path,
    command: str,
) -> tuple[Found, list[Path]]:
    """Measure, and write the results to `folder`. On SIGTERM, clean up and exit with 143."""
    stop = Stop()
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with places(urls, servers) as found:
            one = Bench(found, quick, command, stop)
            for suite in suites or PROMISED:
                stop.check()
                getattr(one, suite)()
    finally:
        signal.signal(signal.SIGTERM, before)
    return one.found, [*report.write(one.found, folder), *plots.draw(one.found, folder)]


def tell(found: Found, files: Sequence[Path], as_json: bool = False) -> None:
    if as_json:
        click.echo(json.dumps(report.as_json(found)))
        return
    click.echo(f"\n{report.table(found)}\n")
    click.echo(f"written: {', '.join(map(str, files))}")
    if not any(file.suffix == ".svg" for file in files):
        click.echo("no plots: Matplotlib is not installed")


def into_page(found: Found, path: Path) -> None:
    """Replace the tables of a page that this run has measured."""
    parts = {"bench": report.markdown(found) if found.verdicts else "", "bulk": report.bulk_markdown(found)}
    words = path.read_text()
    for name, told in parts.items():
        if told:
            words = between_marks(words, name, told, path)
    path.write_text(words)


def between_marks(words: str, name: str, told: str, path: Path) -> str:
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    head, _, rest = words.partition(begin)
    _, mark, tail = rest.partition(end)
    if not mark:
        raise click.ClickException(f"{path} has no place for the table: {begin.strip()}")
    return f"{head}{begin}{told}\n{end}{tail}"

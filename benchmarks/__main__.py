"""`python -m benchmarks`, and `make bench`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import click

from allocator.cli.output import Command

from . import calls, claims, inserts, latency, report, service, start
from .places import Place, places
from .rounds import Race, run

Races = Callable[[Place], AbstractContextManager[list[Race]]]


class Suite(NamedTuple):
    """Races that run together, at most for so many rounds and seconds on each database."""

    races: Races
    rounds: int
    seconds: float
    each_place: bool = True


SUITES = {
    "call": Suite(calls.races, 60, 30, each_place=False),
    "claim": Suite(claims.races, 12, 8),
    "latency": Suite(latency.races, 6, 8),
    "insert": Suite(inserts.races, 6, 10),
    "start": Suite(start.races, 8, 10, each_place=False),
    "first-id": Suite(start.first_id, 8, 8),
    "http": Suite(service.races, 4, 20, each_place=False),
}


def measured(names: tuple[str, ...], found: list[Place], least: float) -> Iterator[Race]:
    """The races of these suites. `least`: the part of their rounds and seconds that is run."""
    for name in names or SUITES:
        suite = SUITES[name]
        for place in found if suite.each_place else found[:1]:
            click.echo(f"{name}, {place.name}" if suite.each_place else name, err=True)
            with suite.races(place) as races:
                run(races, max(1, int(suite.rounds * least)), suite.seconds * least)
            yield from races


@click.command("benchmarks", cls=Command)
@click.argument("suites", nargs=-1, type=click.Choice(list(SUITES)))
@click.option("--url", "urls", multiple=True, help="A database with the tables; repeatable.")
@click.option("--quick", is_flag=True, help="Run a fourth of the rounds, with a wider spread.")
@click.option("--servers", is_flag=True, help="Also measure the servers of the tests.")
@click.option("--publish", is_flag=True, help="Write the plots to docs/figures too.")
def main(suites: tuple[str, ...], urls: tuple[str, ...], quick: bool, servers: bool, publish: bool) -> None:
    """Measure the speed of the allocator compared with alternatives, in about three minutes: reports/bench.

    \b
    SUITES: one or more of these; default all
        call      one call of each kind, and of other installed libraries
        claim     a claim, the bare driver, the database's own counters, blocks of a native sequence
        latency   80,000 ids per second, claimed in advance and on demand
        insert    10,000 rows: our ids, explicit ids, the database's ids
        start     the import, and the memory of many tags
        first-id  from the start of a process to its first id
        http      the service and a bare ASGI application; needs wrk

    The database needs the tables (allocator db upgrade). The run deletes its tags and tables at the end.
    """
    # An exit, unlike the end by a signal, leaves nothing in the database.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with places(urls, servers) as found:
            races = list(measured(suites, found, 0.25 if quick else 1.0))
    finally:
        signal.signal(signal.SIGTERM, before)
    words = " ".join(["make bench", *suites, *(["--quick"] if quick else [])])
    run_of = report.Run(f"`{words}`, {report.machine(found)}", races)
    click.echo(f"{report.table(run_of)}\n")
    click.echo(f"written: {', '.join(map(str, report.write(run_of, Path('reports/bench'))))}")
    if publish:
        report.drawn(run_of, Path("docs/figures"))


if __name__ == "__main__":
    main()

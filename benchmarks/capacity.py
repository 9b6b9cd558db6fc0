"""A model of the load of ten thousand processes with a thousand tags each on the database, and a check of the model.

    python -m benchmarks.capacity                    cold start, steady load, spike and outage
    python -m benchmarks.capacity --url URL          the same with times measured on your database
    python -m benchmarks.capacity --host 16          processes that share a claimer, 16 to a host
    python -m benchmarks.capacity --check --url URL  a small real fleet compared with the model

The model runs the package's own rules (benchmarks/world.py). It simulates a share of the processes, and lengthens each
claim on the server accordingly.

A claimer is a process of its own, or a service on its host that others ask for ids (`allocator serve --unix`). An
`Allocator` on the service's address does not count as one that asks: it claims segments of its own through the service.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click

from allocator.cli.output import Command
from allocator.database.store import Database
from allocator.schemes.segment_refill import Claim
from allocator.schemes.tag import Tag

from . import plots, reality
from .claims import Act, Timed, as_sent, bare, claims, together
from .places import Place, places
from .report import columns, number
from .world import Load, Times, World, popular

PROCESSES, TAGS = 10_000, 1000
IDS_A_SECOND = 1_000_000
"""Sum over all processes; a few tags get most of them."""
SECONDS = 900
SPIKE, OUTAGE = (500, 530), (700, 760)
PHASES = {"cold start": (0, 60), "steady": (420, 500), "spike": SPIKE, "outage": OUTAGE, "after it": (760, 820)}
POSTGRESQL = Times((0.0010, 0.0011, 0.0011, 0.0012, 0.0015, 0.0040), statement=0.0002, row=0.000005, read=0.000001)
"""PostgreSQL 18 on 2 cores, with a disk that commits in a millisecond: by pgbench, 5000 claims a second of one tag, 800
of 200 tags."""


def measured(place: Place, rows: int = 100, connections: int = 8) -> Times:
    """Measure a real database: claims on one connection, on several, and of many rows at once on several."""
    with closing(Database(place.url, timeout=60)) as database, ExitStack() as stack:
        tags = [[place.tag(f"times{one}-{row}") for row in range(rows)] for one in range(connections)]
        acts = [[claims(database, tag) for tag in several] for several in tags]
        alone = Timed(acts[0][0])
        for _ in range(5):
            alone()

        def work(act: Callable[[int], Act]) -> float:
            """Seconds of the server for one of the statements that all connections send at once, on the bare driver."""
            sent = [bare(database, as_sent(database, act(one)), stack) for one in range(connections)]
            at_once = together(sent)
            return statistics.median(at_once() for _ in range(10)) / 1e6

        statement = work(lambda one: acts[one][0])
        whole = work(lambda one: partial(database.claim_segments, {tag: Claim(1, {}) for tag in tags[one]}))
        read = work(lambda one: partial(database.open_segments, [Tag(tag) for tag in tags[one]]))
    return Times(
        [taken / 1e6 for taken in alone.taken], statement, max(1e-7, (whole - statement) / (rows - 1)), read / rows
    )


@dataclass(frozen=True)
class Phase:
    """One phase: claims and statements per second of all processes, and the waits of callers."""

    name: str
    claims: float
    statements: float
    most_statements: int
    waits: int
    median_wait: float
    longest_wait: float
    burnt: int


def phase(world: World, name: str, begin: int, end: int) -> Phase:
    seen, weight = world.seen, world.weight
    waits = sorted(seconds for at, seconds in seen.waits if begin <= at < end)
    return Phase(
        name,
        weight * sum(seen.claims[begin:end]) / (end - begin),
        weight * sum(seen.statements[begin:end]) / (end - begin),
        round(weight * max(seen.statements[begin:end])),
        round(weight * len(waits)),
        statistics.median(waits) if waits else 0.0,
        waits[-1] if waits else 0.0,
        round(weight * sum(seen.burnt[begin:end])),
    )


def claimers_of(host: int) -> int:
    """The claimers of all processes, of which `host` share one."""
    return -(-PROCESSES // host)


def model(share: float, times: Times, seconds: int = SECONDS, host: int = 1) -> World:
    """Simulate all phases of `PHASES`.

    host: the processes that draw through one claimer, which has all their load.
    """
    factors = ((0.0, 1.0), (float(SPIKE[0]), 10.0), (float(SPIKE[1]), 1.0))
    away = (float(OUTAGE[0]), float(OUTAGE[1]))
    claimers = claimers_of(host)
    load = Load(popular(TAGS, IDS_A_SECOND / claimers), factors, away)
    simulated = max(1, round(claimers * share))
    world = World(simulated, load, times, seconds, weight=claimers / simulated)
    with click.progressbar(range(1, seconds + 1), label="simulating", file=sys.stderr) as bar:
        for second in bar:
            world.run(float(second))
    return world


def rows_of(phases: Sequence[Phase]) -> list[list[str]]:
    head = ["", "claims/s", "statements/s", "at most", "waits", "median", "longest", "ids burnt"]
    rows = [
        [
            one.name,
            number(one.claims),
            number(one.statements),
            f"{one.most_statements:,}",
            f"{one.waits:,}",
            f"{1000 * one.median_wait:,.1f} ms",
            f"{1000 * one.longest_wait:,.0f} ms",
            f"{one.burnt:,}",
        ]
        for one in phases
    ]
    return [head, *rows]


@click.command(cls=Command)
@click.option("--url", "urls", multiple=True, help="Database to measure. Default: recorded times of PostgreSQL.")
@click.option(
    "--share",
    type=click.FloatRange(0.0001, 1.0),
    default=0.02,
    show_default=True,
    help="Share of processes to simulate.",
)
@click.option(
    "--host",
    type=click.IntRange(1, PROCESSES),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes of a host that draw through one claimer.",
)
@click.option("--check", is_flag=True, help="Compare with real processes.")
@click.option("--to", "folder", type=click.Path(path_type=Path), default=Path("reports/capacity"), show_default=True)
def main(urls: tuple[str, ...], share: float, host: int, check: bool, folder: Path) -> None:
    """Model the load of ten thousand processes on the database."""
    folder.mkdir(parents=True, exist_ok=True)
    with places(urls, servers=False) as found:
        if check:
            compared = reality.compared(found[0], measured(found[0]))
            click.echo(columns(compared.rows()))
            (folder / "check.json").write_text(json.dumps(asdict(compared), indent=2))
            return
        times = measured(found[0]) if urls else POSTGRESQL
    world = model(share, times, host=host)
    phases = [phase(world, name, begin, end) for name, (begin, end) in PHASES.items()]
    told = columns(rows_of(phases))
    memory = world.weight * world.in_memory
    shared = f" through {claimers_of(host):,} claimers, {host} processes each" if host > 1 else ""
    words = (
        f"{PROCESSES:,} processes{shared}, {TAGS:,} tags each, {IDS_A_SECOND:,} ids a second together, ten times "
        f"as many in the spike; the database is away for {OUTAGE[1] - OUTAGE[0]} s. "
        f"{len(world.pairs) // TAGS:,} claimers were simulated. {memory:,.0f} ids are in memory at the end."
    )
    click.echo(f"{told}\n\n{words}")
    (folder / "capacity.txt").write_text(f"{told}\n\n{words}\n")
    series = {"claims": world.seen.claims, "statements": world.seen.statements}
    scaled = {name: [world.weight * value for value in values[:-1]] for name, values in series.items()}
    listed = {
        "phases": [asdict(one) for one in phases],
        "series": scaled,
        "share": share,
        "host": host,
        "in_memory": memory,
    }
    (folder / "capacity.json").write_text(json.dumps(listed))
    if (plt := plots.pyplot()) is not None:
        curves = {f"{name} a second": values for name, values in scaled.items()}
        plots.lines(plt, range(SECONDS), curves, ("seconds", "of all processes"), folder / "capacity.svg")


if __name__ == "__main__":
    main()

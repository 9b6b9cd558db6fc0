"""The report of a run: a table and the plots."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from . import plots
from .places import Place
from .rounds import Race, Spread

PERCENTILES = (50, 99, 99.9, 99.99)


class Run(NamedTuple):
    """The results of a run, and the command and machine that gave them."""

    words: str
    races: Sequence[Race]


def machine(places: Iterable[Place]) -> str:
    """The machine of the run, as far as ratios depend on it."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    busy = f"load {os.getloadavg()[0]:.0f}"
    return ", ".join([f"{os.cpu_count()} cores", busy, python, *(f"{one.name} {one.version}" for one in places)])


def number(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def ranged(found: Spread) -> str:
    return f"{number(found.low)} to {number(found.high)}"


def markdown(rows: Iterable[Sequence[str]]) -> str:
    head, *rest = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|---" * (head.count("|") - 1) + "|", *rest])


def race_rows(race: Race) -> list[list[str]]:
    rows = [[race.title, race.unit, "spread", f"to {race.base}", "spread"]]
    for name in race.candidates:
        here, ratio = race.spread(name), race.ratio(name, race.base)
        rows.append([name, number(here.median), ranged(here), number(ratio.median), ranged(ratio)])
    return rows


def percentiles(race: Race) -> dict[str, dict[str, float]]:
    """Microseconds of a call, by candidate."""
    ordered = {name: sorted(taken) for name, taken in race.taken.items() if taken}
    return {
        name: {f"p{at:g}": taken[int(len(taken) * at / 100)] * 1e6 for at in PERCENTILES}
        for name, taken in ordered.items()
    }


def figures(races: Iterable[Race]) -> list[list[list[str]]]:
    """The tables of figures: a row for each, and a column for each database, if it needs one."""
    tables: dict[bool, dict[tuple[str, str], dict[str, str]]] = {}
    for race in races:
        for figure, ratio in race.told.items():
            cells = tables.setdefault(bool(race.place), {}).setdefault((figure.what, figure.bound), {})
            cells[race.place or "found"] = f"{number(ratio.median)} ({ranged(ratio)})"
    return [table_of(rows) for _, rows in sorted(tables.items())]


def table_of(rows: Mapping[tuple[str, str], Mapping[str, str]]) -> list[list[str]]:
    places = list(dict.fromkeys(place for cells in rows.values() for place in cells))
    body = [[*key, *(cells.get(place, "") for place in places)] for key, cells in rows.items()]
    return [["figure", "bound", *places], *body]


def table(run: Run) -> str:
    tables = [*map(race_rows, run.races), *figures(run.races)]
    words = f"{run.words}: medians of one interleaved run, and where four fifths of the rounds lay"
    return "\n\n".join([*map(markdown, tables), words])


def write(run: Run, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / "bench.txt"
    told.write_text(table(run) + "\n")
    return [told, *drawn(run, folder)]


def drawn(run: Run, folder: Path) -> list[Path]:
    return plots.draw(run.races, {race.place: tails for race in run.races if (tails := percentiles(race))}, folder)

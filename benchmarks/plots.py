"""Draws the plots as SVG, with Matplotlib if it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .report import Found, Latencies, number
from .waiting import WRITERS, told

OURS, THEIRS = "#2b6cb0", "#a0aec0"
WAITS = {"no numbers": THEIRS, "drawn in the transaction": OURS, "after each commit": OURS, "by a timer": "#2f855a"}
PLOTTED = 50
"""Milliseconds of a transaction."""
OTHERS = ("nextval", "INSERT", "Redis")
PEERS = ("uuid.", "uuid_utils.", "bson.", "ulid", "tsidpy.", "snowflake.", *OTHERS)


def pyplot() -> Any | None:
    """Import Matplotlib; None without it, so that a run still writes its figures."""
    try:
        import matplotlib as mpl
    except ImportError:
        return None
    mpl.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "allocator", "font.size": 9})
    return plt


def draw(found: Found, folder: Path) -> list[Path]:
    plt = pyplot()
    if plt is None:
        return []
    made = []
    cost = cost_of_an_id(found)
    if len(cost) > 1:
        made.append(bars(plt, cost, "one id, in microseconds", folder / "bench-ids.svg"))
    for suite, ways in found.latencies.items():
        kind, _, place = suite.partition(", ")
        if kind == "latency":
            made.append(tails(plt, place, ways, folder / f"bench-latency-{place.lower()}.svg"))
    for place in found.places:
        waited = {writers: found.race(f"waiting, {place}, {told(PLOTTED, writers, 1)}") for writers in WRITERS}
        if all(waited.values()):
            made.append(waits(plt, place, waited, folder / f"bench-waiting-{place.lower()}.svg"))
    return made


def cost_of_an_id(found: Found) -> dict[str, float]:
    """Microseconds per id: our calls, other libraries, and round trips to counters."""
    cost: dict[str, float] = {}
    if call := found.race("call"):
        ours = ["sequence.next_id()", "ids.next_id(tag)", "ids.meteor()", "ids.snowflake()", "ObjectId()"]
        names = [*ours, *(name for name in call.found if name.startswith(PEERS) and name != call.base)]
        cost |= {name: call.spreads(name).median / 1000 for name in names}
    for place in found.places:
        race = found.race(f"claim, {place}")
        for name in race.found if race else ():
            if name.startswith(OTHERS) and "INCRBY" not in name:  # a claim, not an id
                label = name if name.startswith("Redis") else f"{name} ({place})"
                cost.setdefault(label, race.spreads(name).median if race else 0.0)
    return dict(sorted(cost.items(), key=lambda pair: pair[1]))


def bars(plt: Any, values: Mapping[str, float], title: str, path: Path) -> Path:
    names = list(values)[::-1]
    figure, axes = plt.subplots(figsize=(7.2, 0.6 + 0.24 * len(names)))
    colours = [THEIRS if name.startswith(PEERS) else OURS for name in names]
    axes.barh(names, [values[name] for name in names], color=colours, height=0.7)
    for at, name in enumerate(names):
        axes.text(values[name] * 1.1, at, number(values[name]), va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(right=max(values.values()) * 4)
    axes.set_xlabel(title)
    return saved(plt, figure, axes, path)


def tails(plt: Any, place: str, ways: Latencies, path: Path) -> Path:
    figure, axes = plt.subplots(figsize=(4.8, 2.8))
    for (way, taken), colour in zip(ways.items(), (THEIRS, OURS), strict=True):
        axes.plot(list(taken), list(taken.values()), marker="o", color=colour, label=way)
    axes.set_yscale("log")
    axes.set_ylabel("microseconds a call")
    axes.set_title(f"{place}, 80,000 ids a second, claimed …", fontsize=9)
    axes.legend(frameon=False)
    return saved(plt, figure, axes, path)


def waits(plt: Any, place: str, races: Mapping[int, Any], path: Path) -> Path:
    figure, axes = plt.subplots(figsize=(4.8, 2.8))
    for (way, colour), style in zip(WAITS.items(), ("o:", "o-", "o--", "o--"), strict=True):
        rates = [race.spreads(way).median for race in races.values()]
        axes.plot(list(map(str, races)), rates, style, color=colour, label=way)
    axes.set_yscale("log")
    axes.set_xlabel("writers of one scope")
    axes.set_ylabel("commits a second")
    axes.set_title(f"{place}, transactions of {PLOTTED} ms, their number …", fontsize=9)
    axes.legend(frameon=False)
    return saved(plt, figure, axes, path)


def lines(
    plt: Any, x: Sequence[float], curves: Mapping[str, Sequence[float]], words: tuple[str, str], path: Path
) -> Path:
    """Plot curves over one axis, such as time; `words` label the axes."""
    figure, axes = plt.subplots(figsize=(7.2, 2.8))
    for name, values in curves.items():
        axes.plot(x, values, label=name, linewidth=1.2)
    axes.set_xlabel(words[0])
    axes.set_ylabel(words[1])
    axes.legend(frameon=False)
    return saved(plt, figure, axes, path)


def saved(plt: Any, figure: Any, axes: Any, path: Path) -> Path:
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.patch.set_facecolor("white")
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
    return path

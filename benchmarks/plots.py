"""Draws the plots as SVG, with Matplotlib if it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .claims import OURS as WITH_CLAIMS
from .claims import RIVAL
from .rounds import Race

OURS, THEIRS, RIVALS = "#2b6cb0", "#a0aec0", "#2f855a"
CALLS = ("sequence.next_id()", "ids.next_id(tag)", "ids.meteor()", "ids.snowflake()", "ObjectId()")
PEERS = ("uuid.uuid4()", "uuid_utils.uuid7()", "bson.ObjectId()")
COUNTERS = ("nextval", "INSERT", WITH_CLAIMS, RIVAL)

Tails = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Percentiles in microseconds, by database and candidate."""


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


def draw(races: Sequence[Race], tails: Tails, folder: Path) -> list[Path]:
    plt = pyplot()
    if plt is None:
        return []
    made = []
    cost = cost_of_an_id(races)
    if len(cost) > 1:
        made.append(bars(plt, cost, folder / "bench-ids.svg"))
    for place, ways in tails.items():
        made.append(latencies(plt, place, ways, folder / f"bench-latency-{place.lower()}.svg"))
    return made


def cost_of_an_id(races: Sequence[Race]) -> dict[str, float]:
    """Microseconds per id, in ascending order: our calls, the best known of other libraries, and counters."""
    cost: dict[str, float] = {}
    for race in races:
        if race.name == "call":
            cost |= {n: race.spread(n).median / 1000 for n in race.found if n in (*CALLS, *PEERS)}
        if race.name == "claim":
            names = [name for name in race.found if name.startswith(COUNTERS)]
            cost |= {f"{name} ({race.place})": race.spread(name).median for name in names}
    return dict(sorted(cost.items(), key=lambda pair: pair[1]))


def bars(plt: Any, values: Mapping[str, float], path: Path) -> Path:
    names = list(values)[::-1]
    figure, axes = plt.subplots(figsize=(7.2, 0.6 + 0.24 * len(names)))
    axes.barh(names, [values[name] for name in names], color=[colour(name) for name in names], height=0.7)
    for at, name in enumerate(names):
        value = values[name]
        axes.text(value * 1.1, at, f"{value:,.0f}" if value >= 100 else f"{value:.2g}", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(right=max(values.values()) * 4)
    axes.set_xlabel("one id, in microseconds")
    return saved(plt, figure, axes, path)


def colour(name: str) -> str:
    if name.startswith(RIVAL):
        return RIVALS
    return OURS if name.startswith((*CALLS, WITH_CLAIMS)) else THEIRS


def latencies(plt: Any, place: str, ways: Mapping[str, Mapping[str, float]], path: Path) -> Path:
    figure, axes = plt.subplots(figsize=(4.8, 2.8))
    for (way, taken), colour in zip(ways.items(), (THEIRS, OURS, RIVALS), strict=False):
        axes.plot(list(taken), list(taken.values()), marker="o", color=colour, label=way)
    axes.set_yscale("log")
    axes.set_ylabel("microseconds a call")
    axes.set_title(f"{place}, 80,000 ids a second, claimed …", fontsize=9)
    axes.legend(frameon=False)
    return saved(plt, figure, axes, path)


def saved(plt: Any, figure: Any, axes: Any, path: Path) -> Path:
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.patch.set_facecolor("white")
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
    return path

"""A figure of the benchmark is judged right, and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from benchmarks import report
from benchmarks.goals import Goal, judged
from benchmarks.report import Found
from benchmarks.rounds import Race, Spread, run, spread, steps

EVEN = [2.0] * 8
NOISY = [1.0, 1.9, 2.0, 2.0, 2.1, 2.2, 2.3, 4.0]
"""Its quartiles are 2.0 and 2.2."""
NOISE = "too noisy to judge"


def noting(order: list[str], name: str, values: Iterator[float]) -> Callable[[], float]:
    def measure() -> float:
        order.append(name)
        return next(values)

    return measure


def race(again: list[float] | None = None, **found: list[float]) -> Race:
    one = Race("call", "ns", {name: lambda: 0.0 for name in found})
    one.found, one.again = found, again or []
    return one


def test_a_round_runs_every_candidate_in_rotated_order_and_the_base_twice_and_subtracts_the_loop():
    order: list[str] = []
    candidates = {name: noting(order, name, iter([10.0, 20.0, 30.0, 40.0])) for name in "ab"}
    one = Race("call", "ns", candidates, loop=noting(order, "-", iter([1.0, 2.0])), controlled=True)
    assert len(list(run([one], 2))) == steps([one], 2) == 6

    assert "".join(order) == "-aba" + "-baa"
    assert (one.found, one.again) == ({"a": [9.0, 38.0], "b": [9.0, 18.0]}, [19.0, 28.0])
    assert spread(float(number) for number in range(21)) == Spread(10.0, 2.0, 18.0, 5.0, 15.0)


def test_a_figure_is_held_or_missed_or_the_run_is_too_noisy():
    for ratios, again, bound, least, word in [
        (EVEN, 1.0, 2.0, False, "held"),
        (EVEN, 1.0, 1.99, False, "missed"),
        (EVEN, 1.0, 2.0, True, "held"),
        (EVEN, 1.0, 2.01, True, "missed"),
        (NOISY, 1.0, 2.2, False, "held"),
        (NOISY, 1.0, 2.19, False, NOISE),
        (NOISY, 1.0, 1.99, False, "missed"),
        (NOISY, 1.0, 2.1, True, NOISE),
        (EVEN, 1.09, 2.2, False, "held"),
        (EVEN, 1.11, 2.2, False, NOISE),  # the base differs from itself by more than the distance to the bound
        (EVEN, -1.0, 2.2, False, NOISE),  # the loop is subtracted, so a measurement can be less than nothing
    ]:
        one = race(theirs=[1.0] * 8, ours=ratios, again=[again] * 8)
        (verdict,) = judged([one], [Goal("it", "ours", "theirs", bound, least)])
        assert (verdict.word, bool(verdict.noise)) == (word, word == NOISE), (ratios, again, bound, least)

    assert judged([race(ours=[1.0])], [Goal("it", "ours", "theirs", 1.0)]) == []


def test_the_table_and_the_file_say_what_was_missed(tmp_path):
    found = Found("make bench", [race(**{"next(range_iterator)": [10.0, 11.0], "sequence.next_id()": [30.0, 33.0]})])
    report.write(found, tmp_path)
    (figure,) = json.loads((tmp_path / "bench.json").read_text())["figures"]

    assert report.table(found).splitlines()[-2:] == ["1 figure: 1 missed", "missed: sequence.next_id()"]
    assert "missed |" in report.markdown(found)
    assert (figure["what"], figure["held"]) == ("sequence.next_id()", False)

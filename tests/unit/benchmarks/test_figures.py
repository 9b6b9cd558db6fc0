"""A run is interleaved, and its figures are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks import report
from benchmarks.report import Run
from benchmarks.rounds import Figure, Race, Spread, run, spread

HANDLE = Figure("a handle", "ours", "theirs", "≤ 2.2")


def noting(order: list[str], name: str, values: Iterator[float]) -> Callable[[], float]:
    def measure() -> float:
        order.append(name)
        return next(values)

    return measure


def test_a_round_runs_every_candidate_in_rotated_order_and_subtracts_the_loop():
    order: list[str] = []
    candidates = {name: noting(order, name, iter([10.0, 20.0])) for name in "ab"}
    one = Race("call", "ns", candidates, loop=noting(order, "-", iter([1.0, 2.0])))
    run([one], 2, seconds=60)

    assert "".join(order) == "-ab" + "-ba"
    assert one.found == {"a": [9.0, 18.0], "b": [9.0, 18.0]}
    assert spread(float(number) for number in range(21)) == Spread(10.0, 2.0, 18.0)


def test_a_run_out_of_time_still_has_a_few_rounds():
    one = Race("call", "ns", {"a": lambda: 1.0})
    run([one], 100, seconds=0)

    assert len(one.found["a"]) == 3


def test_the_published_tables_have_a_column_for_each_database_and_ratios_within_a_round():
    def race(place: str, ours: list[float]) -> Race:
        found = {"theirs": [1.0, 10.0, 100.0], "ours": ours}
        return Race("call", "ns", dict.fromkeys(found, lambda: 0.0), [HANDLE], place, found=found)

    unmeasured = Figure("nothing", "ours", "absent", "≤ 1")
    races = [race("A", [2.0, 20.0, 300.0]), race("B", [1.0, 10.0, 100.0]), race("", [3.0, 30.0, 300.0])]
    races[0].figures = [HANDLE, unmeasured]

    assert report.figures(races) == [
        [["figure", "bound", "found"], ["a handle", "≤ 2.2", "3.00 (3.00 to 3.00)"]],
        [["figure", "bound", "A", "B"], ["a handle", "≤ 2.2", "2.00 (2.00 to 3.00)", "1.00 (1.00 to 1.00)"]],
    ]


def test_publishing_replaces_the_table_of_the_page_alone(tmp_path):
    page = tmp_path / "speed.md"
    page.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    report.publish(
        Run("make bench", [Race("call", "ns", {}, [HANDLE], found={"ours": [2.0], "theirs": [1.0]})]), tmp_path
    )

    head, *table, tail = page.read_text().splitlines()
    assert (head, "old" in table, "| a handle | ≤ 2.2 | 2.00 (2.00 to 2.00) |" in table, tail) == (
        "before",
        False,
        True,
        "after",
    )

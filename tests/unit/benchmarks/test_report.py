"""The benchmark's own arithmetic: rounds, ratios, verdicts, and how they are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from benchmarks import program, report
from benchmarks.goals import GOALS, Goal, judged
from benchmarks.latency import percentiles
from benchmarks.program import PROMISED, SUITES, Bench
from benchmarks.report import Found
from benchmarks.rounds import Race, Stop, rotated, run, spread, steps


def noting(order: list[str], name: str, values: Iterator[float]) -> Callable[[], float]:
    def measure() -> float:
        order.append(name)
        return next(values)

    return measure


def race(**found: list[float]) -> Race:
    one = Race("call", "ns", {name: lambda: 0.0 for name in found})
    one.found = found
    return one


def test_every_round_runs_every_candidate_once_in_rotated_order_and_subtracts_the_loop():
    order: list[str] = []
    candidates = {name: noting(order, name, iter([10.0, 20.0, 30.0])) for name in "abc"}
    one = Race("call", "ns", candidates, loop=noting(order, "loop", iter([1.0, 2.0, 3.0])))
    assert len(list(run([one], 3))) == steps([one], 3) == 9

    assert "".join(order) == "loopabc" + "loopbca" + "loopcab"
    assert one.found == {name: [9.0, 18.0, 27.0] for name in "abc"}


def test_several_races_share_their_rounds():
    order: list[str] = []
    races = [Race(name, "ns", {name: noting(order, name, iter([1.0, 1.0]))}) for name in "ab"]
    list(run(races, 2))

    assert order == ["a", "b", "b", "a"]
    assert rotated("abcd", 6) == ["c", "d", "a", "b"]


def test_ratios_are_of_one_round():
    one = race(base=[10.0, 100.0, 20.0], other=[20.0, 200.0, 30.0])

    assert one.ratios("other", "base") == [2.0, 2.0, 1.5]
    assert one.spreads("other", "base").median == 2.0


def test_a_race_of_times_says_how_many_there_are_in_a_second():
    one = race(base=[10.0, 10.0])

    assert one.a_second("base") == 1e8
    one.unit = "us, of all together"
    assert one.a_second("base") == 1e5
    one.unit = "requests/s"
    assert one.a_second("base") is None


def test_a_spread_holds_four_fifths():
    found = spread(float(number) for number in range(21))

    assert (found.low, found.median, found.high) == (2.0, 10.0, 18.0)
    assert (found.lower_quartile, found.upper_quartile) == (5.0, 15.0)


def test_a_controlled_race_measures_its_base_twice_in_every_round():
    order: list[str] = []
    candidates = {name: noting(order, name, iter([10.0, 20.0, 30.0, 40.0])) for name in "ab"}
    one = Race("call", "ns", candidates, controlled=True)
    assert len(list(run([one], 2))) == steps([one], 2) == 6

    assert "".join(order) == "aba" + "baa"
    assert (one.found["a"], one.again) == ([10.0, 40.0], [20.0, 30.0])
    assert one.control == spread([2.0, 0.75])


def test_a_run_ends_after_a_round_that_is_enough():
    one = Race("call", "ns", {name: lambda: 1.0 for name in "ab"})
    list(run([one], 9, lambda done: done == 2))

    assert one.found == {name: [1.0, 1.0] for name in "ab"}


@pytest.mark.parametrize(
    ("bound", "least", "held"), [(2.0, False, True), (1.99, False, False), (2.0, True, True), (2.01, True, False)]
)
def test_a_figure_is_held_or_missed(bound, least, held):
    (verdict,) = judged([race(ours=[20.0], theirs=[10.0])], [Goal("it", "ours", "theirs", bound, least)])

    assert verdict.held is held
    assert verdict.word == ("held" if held else "missed")


NOISY = [1.0, 1.9, 2.0, 2.0, 2.1, 2.2, 2.3, 4.0]


@pytest.mark.parametrize(
    ("bound", "least", "word"),
    [
        (2.2, False, "held"),
        (2.19, False, "too noisy to judge"),
        (2.1, False, "too noisy to judge"),
        (2.0, False, "too noisy to judge"),
        (1.99, False, "missed"),
        (2.0, True, "held"),
        (2.1, True, "too noisy to judge"),
        (2.21, True, "missed"),
    ],
)
def test_rounds_on_both_sides_of_the_bound_judge_nothing(bound, least, word):
    """The quartiles of the ratios are 2.0 and 2.2."""
    one = race(ours=NOISY, theirs=[1.0] * len(NOISY))
    (verdict,) = judged([one], [Goal("it", "ours", "theirs", bound, least)])

    assert (verdict.word, bool(verdict.noise)) == (word, word == "too noisy to judge")
    assert verdict.held is {"held": True, "missed": False}.get(word)


@pytest.mark.parametrize(
    ("again", "word"), [(10.0, "held"), (10.9, "held"), (11.1, "too noisy to judge"), (9.0, "too noisy to judge")]
)
def test_a_base_that_differs_from_itself_by_more_than_the_distance_to_the_bound_judges_nothing(again, word):
    one = race(theirs=[10.0] * 8, ours=[20.0] * 8)
    one.again = [again] * 8
    (verdict,) = judged([one], [Goal("it", "ours", "theirs", 2.2)])

    assert verdict.word == word


def test_a_base_that_took_nothing_judges_nothing():
    """The loop is subtracted, so a measurement can be less than nothing."""
    one = race(theirs=[10.0] * 8, ours=[20.0] * 8)
    one.again = [-1.0] * 8
    (verdict,) = judged([one], [Goal("it", "ours", "theirs", 2.2)])

    assert verdict.held is None


@pytest.mark.parametrize(
    ("ratio", "quick", "rounds"), [(1.0, False, 40), (2.2, False, 40), (None, False, 100), (1.0, True, 25)]
)
def test_a_suite_ends_once_its_verdicts_are_settled(ratio, quick, rounds):
    """An eighth of the rounds above the bound is no noise, and too much for a verdict after the fewest rounds."""
    ratios = iter([ratio] * 100 if ratio else [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0] * 13)
    one = Race("call", "ns", {"next(range_iterator)": lambda: 1.0, "sequence.next_id()": lambda: next(ratios)})
    Bench([], quick, "make bench", Stop()).measure("call", [one], "call")

    assert len(one.found["sequence.next_id()"]) == len(one.again) == rounds


def test_a_suite_without_promised_figures_runs_all_its_rounds_and_no_control():
    one = Race("hold", "commits/s", {"0 ms": lambda: 1.0})
    Bench([], False, "make bench", Stop()).measure("hold", [one], "hold")

    assert (len(one.found["0 ms"]), one.again, one.control) == (5, [], None)


def test_what_could_not_be_measured_has_no_verdict():
    assert judged([race(ours=[1.0])], [Goal("it", "ours", "theirs", 1.0)]) == []


def test_the_figures_of_the_plan_are_judged():
    bounds = {goal.of: goal.bound for goal in GOALS}

    assert bounds["sequence.next_id()"] == 2.2
    assert bounds["ids.next_id(tag)"] == 2.9
    assert bounds["claim"] == 1.35
    assert bounds["our default"] == 1.1
    assert bounds["import allocator … first id"] == 1.25
    assert len(bounds) == len(GOALS) == 25


def found_with(verdicts: bool = True) -> Found:
    one = race(**{"next(range_iterator)": [10.0, 11.0], "sequence.next_id()": [30.0, 33.0]})
    return Found("make bench", [one], {"latency, SQLite": {"in advance": {"p50": 0.1}}}, {"SQLite": "3.40"})


def test_the_table_says_what_was_missed():
    told = report.table(found_with())

    assert "sequence.next_id()" in told
    assert [line.split() for line in told.splitlines() if "at most" in line] == [
        ["sequence.next_id()", "3.00", "3.00", "to", "3.00", "at", "most", "2.2", "missed"]
    ]
    assert "latency, SQLite, in us" in told
    assert told.splitlines()[-2:] == ["1 figure: 1 missed", "missed: sequence.next_id()"]


def test_the_table_the_json_and_the_last_words_say_what_was_too_noisy():
    found = found_with()
    found.races[0].again = [5.0, 5.0]
    told = report.table(found)
    (figure,) = report.as_json(found)["figures"]

    assert "at most 2.2 too noisy to judge" in " ".join(told.split())
    assert "  next(range_iterator), again" in told
    last = "the same candidate measured twice differs by more than the distance to the bound"
    assert told.splitlines()[-2:] == [
        "1 figure: 1 too noisy to judge",
        f"too noisy to judge: sequence.next_id() ({last})",
    ]
    assert (figure["held"], figure["verdict"], figure["noise"]) == (None, "too noisy to judge", last)
    assert "| too noisy to judge |" in report.markdown(found)


def test_the_page_has_a_row_for_a_figure_and_a_column_for_a_database():
    found = Found("make bench", places={"SQLite": "3.40", "PostgreSQL": "18"})
    found.races = [race(**{"bare driver": [1.0, 1.0], "claim": [ours, ours]}) for ours in (1.2, 1.4)]
    found.races.append(race(one=[1.0], **{"round trips of a claim": [1.0]}))
    for one, suite in zip(found.races, ("SQLite", "PostgreSQL", "PostgreSQL, on the wire"), strict=True):
        one.suite = f"claim, {suite}"

    assert report.markdown(found).splitlines()[:-2] == [
        "| figure | bound | SQLite | PostgreSQL |",
        "|---|---|---|---|",
        f"| {found.verdicts[0].goal.what} | at most 1.35 | 1.20 (1.20 to 1.20) | 1.40 (1.40 to 1.40), missed |",
        "| round trips of a claim (on the wire) | at most 1 |  | 1.00 (1.00 to 1.00) |",
    ]


def test_the_json_has_every_candidate_and_figure(tmp_path):
    report.write(found_with(), tmp_path)
    told = json.loads((tmp_path / "bench.json").read_text())

    assert told["races"][0]["candidates"]["sequence.next_id()"]["ratio"]["median"] == 3.0
    assert [(one["what"], one["held"]) for one in told["figures"]] == [("sequence.next_id()", False)]


def test_the_page_gets_the_table_between_its_marks(tmp_path):
    page = tmp_path / "speed.md"
    page.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    program.into_page(found_with(), page)

    told = page.read_text()
    assert told.startswith("before\n<!-- bench -->\n| figure |")
    assert "| missed |" in told
    assert told.endswith("<!-- /bench -->\nafter\n")
    assert "old" not in told


def test_the_page_gets_the_bulk_loads_where_they_were_measured(tmp_path):
    page = tmp_path / "speed.md"
    before = "<!-- bench -->\nold\n<!-- /bench -->\n<!-- bulk -->\n<!-- /bulk -->\n"
    page.write_text(before)
    one = race(**{"ids.reserve": [100.0, 200.0], "BIGSERIAL": [50.0, 100.0]})
    one.suite = "bulk, PostgreSQL, COPY"
    program.into_page(Found("make bench", [one]), page)

    told = page.read_text()
    assert told.startswith("<!-- bench -->\nold\n<!-- /bench -->\n<!-- bulk -->\n| by | ids |")
    assert "| PostgreSQL, COPY | BIGSERIAL | 75.0 | 0.50 | 0.50 to 0.50 |\n<!-- /bulk -->" in told


def test_percentiles():
    assert percentiles([float(number) for number in range(10_000)]) == {
        "p50": 5000.0,
        "p99": 9900.0,
        "p99.9": 9990.0,
        "p99.99": 9999.0,
    }


def test_the_command_knows_all_suites():
    assert SUITES == program.SUITES
    assert set(SUITES) == set(program.ROUNDS) > set(PROMISED)
    assert all(0 < one.quick <= one.least <= one.most for one in program.ROUNDS.values())
    assert all(callable(getattr(program.Bench, suite)) for suite in SUITES)

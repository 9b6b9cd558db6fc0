"""`python -m benchmarks` as it is run, with as few rounds as can be."""

import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine, inspect, text

from allocator import Allocator
from benchmarks import __main__ as program
from benchmarks import calls, claims, inserts, latency, start
from benchmarks.rounds import Race, Spread, run, spread


@pytest.fixture
def brief(monkeypatch, tmp_path):
    """In a folder of its own, which gets the report."""
    monkeypatch.chdir(tmp_path)
    for name, suite in program.SUITES.items():
        monkeypatch.setitem(program.SUITES, name, suite._replace(rounds=1))
    monkeypatch.setattr(calls, "SECONDS", 0.0005)
    monkeypatch.setattr(claims, "STATEMENTS", 10)
    monkeypatch.setattr(claims, "CALLS", 2000)
    monkeypatch.setattr(latency, "SECONDS", 0.1)
    monkeypatch.setattr(start, "TAGS", 50)
    monkeypatch.setattr(inserts, "ROWS", 20)
    return tmp_path / "reports" / "bench"


def said(*words: str):
    done = CliRunner().invoke(program.main, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


NIGHTLY = [pytest.param(kind, marks=pytest.mark.nightly) for kind in ("postgres", "mysql", "mariadb")]


@pytest.mark.parametrize("kind", ["sqlite", *NIGHTLY], indirect=True)
def test_a_run_against_ones_own_database_leaves_nothing_there(brief, fresh, kind):
    with Allocator(fresh) as ids:
        assert ids.next_id("mine") == 1
    told = said("call", "claim", "latency", "insert", "--url", fresh).stdout

    rival = {"postgres": claims.RIVAL, "mariadb": claims.RIVAL}.get(kind, "claim")
    for name in ("bare driver", "claim", "our default", "in advance", rival):
        assert f"| {name} |" in told, name
    engine = create_engine(fresh)
    names = inspect(engine)
    assert not [name for name in names.get_table_names() if "bench" in name]
    assert kind != "postgres" or not [name for name in names.get_sequence_names() if "bench" in name]
    with engine.connect() as connection:
        assert [tag for (tag,) in connection.execute(text("SELECT tag FROM allocator_segment"))] == ["mine"]
        for table in ("allocator_node", "allocator_lease", "allocator_number"):
            assert connection.scalar(text(f"SELECT count(*) FROM {table}")) == 0
    engine.dispose()


@pytest.mark.nightly
def test_a_run_writes_the_table_and_the_plots(brief):
    told = said().stdout

    names = {path.name for path in brief.iterdir()}
    assert names == {"bench.txt", "bench-ids.svg", "bench-latency-sqlite.svg"}
    for path in brief.glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")
    assert (brief / "bench.txt").read_text() in told
    for title in (
        "call",
        "start",
        "claim",
        "latency",
        "insert",
        "first id",
        *(["http"] if shutil.which("wrk") else []),
    ):
        assert f"| {title}" in told, title


def test_what_cannot_be_measured_is_one_sentence(brief):
    for url, sentence in (
        ("nonsense", "this is not a database URL"),
        ("sqlite://", "a database in memory is one connection"),
    ):
        done = CliRunner().invoke(program.main, ["start", "--quick", "--url", url])

        assert (done.exit_code, sentence in done.output) == (1, True), done.output


# -- a run is interleaved, and its figures are written


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

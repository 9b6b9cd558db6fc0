"""`python -m benchmarks` as it is run, with as few rounds as can be."""

import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine, inspect, text

from allocator import Allocator
from benchmarks import __main__ as program
from benchmarks import calls, claims, inserts, latency, start


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
    assert [title for title in ("call", "start", "claim", "latency", "insert") if f"| {title}" not in told] == []

"""`python -m benchmarks` as it is run, with as few rounds as can be."""

from __future__ import annotations

import shutil
import subprocess
import sys
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


def run(*words: str):
    done = CliRunner().invoke(program.main, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


NIGHTLY = [pytest.param(kind, marks=pytest.mark.nightly) for kind in ("postgres", "mysql", "mariadb")]


@pytest.mark.parametrize("kind", ["sqlite", *NIGHTLY], indirect=True)
def test_a_run_against_ones_own_database_leaves_nothing_there(brief, fresh, kind):
    with Allocator(fresh) as ids:
        assert ids.next_id("mine") == 1
    told = run("call", "claim", "latency", "insert", "--url", fresh).stdout

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
    told = run().stdout

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


@pytest.mark.nightly
def test_sigterm_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    words = [sys.executable, "-m", "benchmarks", "claim"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        while "claim, SQLite" not in said:
            said = process.stderr.readline()
        process.terminate()
        out, rest = process.communicate()

    assert (process.returncode, rest, out) == (143, "", "")
    assert list(tmp_path.iterdir()) == []

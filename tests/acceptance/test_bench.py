"""`python -m benchmarks` as it is run, with as few rounds as can be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine, inspect, text

from allocator import Allocator
from benchmarks import bulk, calls, claims, inserts, program, service, start, waiting
from benchmarks.__main__ import main


@pytest.fixture
def brief(monkeypatch):
    monkeypatch.setattr(program, "ROUNDS", dict.fromkeys(program.SUITES, program.Rounds(1, 1, 2)))
    monkeypatch.setattr(calls, "SECONDS", 0.0005)
    monkeypatch.setattr(claims, "STATEMENTS", 10)
    monkeypatch.setattr(service, "SECONDS", 0.2)
    monkeypatch.setattr(service, "CALLS", 20_000)
    monkeypatch.setattr(start, "COUNTS", (5, 50))
    monkeypatch.setattr(inserts, "ROWS", 20)
    monkeypatch.setattr(bulk, "QUICK", 200)
    monkeypatch.setattr(bulk, "BATCH", 7)
    monkeypatch.setattr(waiting, "SECONDS", 0.05)
    monkeypatch.setattr(waiting, "QUICK", ((1,), (2,), (1,)))
    monkeypatch.setattr(waiting, "FULL", 2)


def run(*words: str):
    done = CliRunner().invoke(main, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


NIGHTLY = [pytest.param(kind, marks=pytest.mark.nightly) for kind in ("postgres", "mysql")]


@pytest.mark.parametrize("kind", ["sqlite", *NIGHTLY], indirect=True)
def test_a_run_against_ones_own_database_leaves_nothing_there(brief, fresh, tmp_path):
    with Allocator(fresh) as ids:
        assert ids.next_id("mine") == 1
    suites = ["call", "claim", "latency", "insert", "waiting", "bulk"]
    told = json.loads(run(*suites, "--quick", "--url", fresh, "--to", str(tmp_path / "out"), "--json").stdout)

    named = {name for race in told["races"] for name in race["candidates"]}
    ways = set() if "sqlite" in fresh else {"drawn in the transaction", "a counter by hand", "django-sequences"}
    assert {"bare driver", "claim", "our default"} | ways <= named
    engine = create_engine(fresh)
    assert not [name for name in inspect(engine).get_table_names() if "bench" in name]
    with engine.connect() as connection:
        assert [tag for (tag,) in connection.execute(text("SELECT tag FROM allocator_segment"))] == ["mine"]
        for table in ("allocator_node", "allocator_worker", "allocator_number"):
            assert connection.scalar(text(f"SELECT count(*) FROM {table}")) == 0
    engine.dispose()


@pytest.mark.nightly
def test_all_suites_write_the_table_the_json_and_the_plots(brief, tmp_path):
    done = run("--quick", "--all", "--to", str(tmp_path))

    assert "ids.next_id(tag)" in done.stdout
    assert re.search(r"^\d+ figures: \d+ (held|missed|too noisy)", done.stdout, re.MULTILINE)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"bench.txt", "bench.json", "bench-ids.svg", "bench-latency-sqlite.svg"}
    for path in tmp_path.glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")
    told = json.loads((tmp_path / "bench.json").read_text())
    suites = {race["suite"].partition(",")[0] for race in told["races"]}
    assert suites == {"call", "claim", "latency", "http", "insert", "start", "first id", "bulk"}


def test_what_cannot_be_measured_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url, sentence in (
        ("nonsense", "this is not a database URL"),
        ("sqlite://", "a database in memory is one connection"),
    ):
        done = CliRunner().invoke(main, ["start", "--quick", "--url", url])

        assert (done.exit_code, sentence in done.output) == (1, True), done.output


@pytest.mark.nightly
def test_sigterm_while_threads_claim_prints_nothing_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    words = [sys.executable, "-m", "benchmarks", "claim", "--to", str(tmp_path / "out")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.terminate()
        said, rest = process.communicate()

    assert (process.returncode, first.strip(), rest, said) == (143, "claim, SQLite", "", "")
    assert list(tmp_path.iterdir()) == []

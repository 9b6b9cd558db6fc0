"""`python -m benchmarks` as it is run, with as few rounds as can be."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, create_engine, event, func, inspect, select, text

from allocator import Allocator
from allocator.database.store import Database
from benchmarks import bulk, calls, claims, first_id, inserts, numbers, program, service, start
from benchmarks.__main__ import main
from benchmarks.places import place
from benchmarks.rounds import Race, steps
from benchmarks.rounds import run as run_races


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
    monkeypatch.setattr(numbers, "COMMITS", 8)
    monkeypatch.setattr(numbers, "HOLDS", (0, 1))


def run(*words: str):
    done = CliRunner().invoke(main, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql"], indirect=True)
def test_a_run_against_ones_own_database_leaves_nothing_there(brief, fresh, tmp_path, kind):
    with Allocator(fresh) as ids:
        before = ids.next_id("mine")
    words = (
        "call",
        "claim",
        "latency",
        "insert",
        "number",
        "hold",
        "bulk",
        "--quick",
        "--url",
        fresh,
        "--to",
        str(tmp_path / "out"),
        "--json",
    )
    told = json.loads(run(*words).stdout)

    named = {name for race in told["races"] for name in race["candidates"]}
    assert {"bare driver", "claim", "when needed", "in advance", "our default", "objects by hand"} <= named
    assert {"by hand", "ours, SQLAlchemy", "django-sequences", "ours, Django"} <= named
    assert {figure["what"].partition(" ")[0] for figure in told["figures"]} >= {"a", "p99.9", "10,000", "invoices"}
    plots = {path.name for path in (tmp_path / "out").glob("bench-hold-*.svg")}
    assert len(plots) == (kind != "sqlite")
    engine = create_engine(fresh)
    assert not [name for name in inspect(engine).get_table_names() if "bench" in name]
    with engine.connect() as connection:
        assert [tag for (tag,) in connection.execute(text("SELECT tag FROM allocator_segment"))] == ["mine"]
        for table in (
            "allocator_node",
            "allocator_worker",
            "allocator_number",
        ):  # a number that is taken is taken for good
            assert connection.scalar(text(f"SELECT count(*) FROM {table}")) == 0
    engine.dispose()
    assert before == 1


def test_all_suites_write_the_table_the_json_and_the_plots(brief, tmp_path, monkeypatch):
    done = run("--quick", "--all", "--to", str(tmp_path))

    assert "ids.next_id(tag)" in done.stdout
    assert re.search(r"^\d+ figures: \d+ (held|missed|too noisy)", done.stdout, re.MULTILINE)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"bench.txt", "bench.json", "bench-ids.svg", "bench-latency-sqlite.svg"}
    for path in tmp_path.glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")
    told = json.loads((tmp_path / "bench.json").read_text())
    assert {race["suite"].partition(",")[0] for race in told["races"]} == {
        "call",
        "claim",
        "latency",
        "http",
        "insert",
        "number",
        "start",
        "first id",
        "bulk",
    }


@pytest.mark.parametrize("kind", ["sqlite", "mysql"], indirect=True)
def test_the_first_id_of_a_process_is_timed_in_parts(fresh, kind):
    with closing(Database(fresh)) as database:
        database.upgrade_schema()
    with place(fresh, "here") as found, first_id.races(found) as (races, ways):
        assert len(list(run_races(races, 1))) == steps(races, 1) == 3
        parts = first_id.parts_of(found, ways)
        with Allocator(fresh) as ids:
            drawn = ids.tags.get(found.tag("first")).max_value

    assert [list(one.found) for one in parts] == [list(names) for names in first_id.PARTS.values()]
    assert all(times[0] > 0 for one in parts for times in one.found.values())
    assert all(20 < times[0] < 60_000 for times in races[0].found.values())  # SQLAlchemy is imported in each
    # A segment before the run and one for each program, which runs for its bytecode too. The command claims the id that
    # it prints.
    assert drawn == 1000 + 2 * 1000 + 2


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql", "mariadb"], indirect=True)
def test_every_way_of_a_bulk_load_writes_all_its_rows_and_drops_its_table(brief, fresh, kind):
    with closing(Database(fresh)) as database:
        database.upgrade_schema()
    with place(fresh, "here") as found, bulk.rows_of(found) as engine, Allocator(fresh) as ids:
        tables = bulk.Tables(engine, ids, found)
        ways = list(bulk.inserts(tables, bulk.uuids()).items())
        ways += bulk.copies(tables, bulk.uuids()).items() if kind == "postgres" else []
        for _, write in ways:
            for count in (20, 3):
                write(count)
        with engine.connect() as connection:
            counts = [connection.scalar(select(func.count()).select_from(one)) for one in tables.metadata.sorted_tables]
        tables.metadata.drop_all(engine)

    assert {"our default", "ids.reserve", "UUIDv7"} <= {name for name, _ in ways}
    assert counts == [23] * len(ways)
    assert len(ways) == (11 if kind == "postgres" else 4)


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql", "mariadb"], indirect=True)
def test_no_claim_that_is_timed_opens_a_connection(brief, fresh):
    assert opened_while_timed(fresh, quick=False) == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
def test_control_claims_without_warm_up_open_connections_while_they_are_timed(brief, fresh, monkeypatch):
    monkeypatch.setattr(claims, "warm_up", lambda *_: None)

    assert opened_while_timed(fresh, quick=True) > 0


def opened_while_timed(url: str, quick: bool) -> int:
    opened: list[object] = []

    def note(*args: object) -> None:
        opened.append(args)

    with closing(Database(url)) as database:
        database.upgrade_schema()
    with place(url, "here") as found, claims.races(found, quick) as races:
        event.listen(Engine, "do_connect", note)
        try:
            assert len(list(run_races(races, 2))) == steps(races, 2)
        finally:
            event.remove(Engine, "do_connect", note)
    return len(opened)


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_without_a_schema_it_says_what_to_do(tmp_path, empty, kind):
    done = CliRunner().invoke(main, ["claim", "--quick", "--url", empty, "--to", str(tmp_path)])

    assert done.exit_code == 1
    assert "allocator db upgrade" in done.output


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--url", "nonsense"], 1, "this is not a database URL"),
        (["--url", "sqlite://"], 1, "a database in memory is one connection"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(words, code, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["start", "--quick", *words])

    assert (done.exit_code, sentence in done.output) == (code, True), done.output


def test_sigterm_ends_a_run_quietly_after_the_measurement_under_way(tmp_path, monkeypatch):
    """In the midst of one its threads hold locks on the database that is to be cleaned up."""
    whole = []

    def measured() -> float:
        os.kill(os.getpid(), signal.SIGTERM)
        whole.append(True)
        return 1.0

    @contextmanager
    def races(*_: object) -> Iterator[list[Race]]:
        yield [Race("claim", "us", {"one": measured, "another": measured})]

    monkeypatch.setattr(claims, "races", races)
    before = signal.getsignal(signal.SIGTERM)
    done = CliRunner().invoke(main, ["claim", "--quick", "--to", str(tmp_path)])

    assert (done.exit_code, whole, done.stdout) == (143, [True], "")
    assert done.stderr.strip() == "claim, SQLite"
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_while_threads_claim_prints_nothing_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    words = [sys.executable, "-m", "benchmarks", "claim", "--to", str(tmp_path / "out")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        first = process.stderr.readline()
        process.terminate()
        rest = process.stderr.read()
        said = process.stdout.read()

    assert (process.returncode, first.strip(), rest, said) == (143, "claim, SQLite", "", "")
    assert list(tmp_path.iterdir()) == []

"""`docs/existing-tables.md` while others write: the column's own counter and a tag share it, and no id comes twice."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from support.distinct import distinct
from support.documents.pages import ROOT, Block, blocks
from support.documents.reader import Reading
from support.servers.administrator import execute, values

from allocator import Allocator
from allocator.cli import main

PATIENCE = 120.0
"""Seconds until a writer that does not come is given up."""


class Writer(threading.Thread):
    """Inserts an order and a line of it in each transaction, until it is told to stop or fails."""

    def __init__(self, url: str, name: str, tag: str, progress: threading.Condition) -> None:
        super().__init__(name=name, daemon=True)
        self.url, self.tag, self.progress = url, tag, progress
        self.ids: list[int] = []
        self.error: Exception | None = None
        self.longest = 0.0
        self._stopped = threading.Event()

    def run(self) -> None:
        engine = create_engine(self.url)
        ids = Allocator(self.url) if self.tag else None
        try:
            while not self._stopped.is_set():
                began = time.monotonic()
                new = insert_order(engine, ids.next_id(self.tag) if ids else None)
                self.longest = max(self.longest, time.monotonic() - began)
                self.ids.append(new)
                with self.progress:
                    self.progress.notify_all()
        except Exception as error:
            self.error = error
            with self.progress:
                self.progress.notify_all()
        finally:
            if ids:
                ids.close()
            engine.dispose()

    def stop(self) -> None:
        self._stopped.set()


def insert_order(engine: Engine, new: int | None = None) -> int:
    with engine.begin() as connection:
        made = new if new is not None else insert_raw(connection)
        if new is not None:
            connection.execute(text("INSERT INTO orders (id, what) VALUES (:id, 'new')"), {"id": new})
        connection.execute(text("INSERT INTO line (order_id) VALUES (:id)"), {"id": made})
        return made


def insert_raw(connection: Connection) -> int:
    """As the old writers do."""
    if connection.dialect.name == "postgresql":
        return int(connection.scalar(text("INSERT INTO orders (what) VALUES ('old') RETURNING id")) or 0)
    done: Any = connection.execute(text("INSERT INTO orders (what) VALUES ('old')"))
    return int(done.lastrowid)


class Writers:
    """Old and new ones. A test waits for what they have written, never for a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.all: list[Writer] = []
        self._progress = threading.Condition()

    def add(self, count: int, tag: str = "") -> list[Writer]:
        first = len(self.all)
        names = [f"{tag or 'old'}-{number}" for number in range(first, first + count)]
        made = [Writer(self.url, name, tag, self._progress) for name in names]
        self.all += made
        for one in made:
            one.start()
        return made

    def wait_for(self, more: int, writers: list[Writer] | None = None) -> None:
        """Until each has written so many rows more."""
        of = self.all if writers is None else writers
        least = {one.name: len(one.ids) + more for one in of}
        with self._progress:
            self._progress.wait_for(
                lambda: all(len(one.ids) >= least[one.name] or one.error for one in of), timeout=PATIENCE
            )
        for one in of:
            if one.error:
                raise one.error
            assert len(one.ids) >= least[one.name], one.name

    def stop(self, writers: list[Writer] | None = None) -> None:
        of = self.all if writers is None else writers
        for one in of:
            one.stop()
        for one in of:
            one.join(PATIENCE)
        assert [one.error for one in of if one.error] == []

    def ids(self) -> list[int]:
        return [number for one in self.all for number in one.ids]


@contextmanager
def writing(url: str) -> Iterator[Writers]:
    writers = Writers(url)
    try:
        yield writers
    finally:
        for one in writers.all:
            one.stop()
        for one in writers.all:
            one.join(PATIENCE)


PAGE = ROOT / "docs" / "existing-tables.md"
SHOP = "://user:password@host/shop"
URLS = {"postgres": f"postgresql+psycopg{SHOP}", "mysql": f"mysql+pymysql{SHOP}", "mariadb": f"mariadb+pymysql{SHOP}"}
BESIDE = "tags create order --beside-column orders.id"
PLENTY = 10
"""Rows of each writer, in each state."""
BUSY = re.compile("lock timeout|Lock wait timeout")
TRIES = 60
PARTS = ["tables", "Plan", "Start", "Change the writers one by one", "End", "Back"]


def parts(kind: str) -> dict[str, list[Block]]:
    """The blocks of a database by the bold words before them. The page says MySQL where it means MariaDB too.

    Others write meanwhile, so that any numbers are printed.
    """
    heading = "## PostgreSQL" if kind == "postgres" else "## MySQL and MariaDB"
    lines = PAGE.read_text().splitlines()
    first = lines.index(heading)
    last = next(at for at in range(first + 1, len(lines)) if lines[at].startswith("## "))
    found: dict[str, list[Block]] = {name: [] for name in PARTS}
    for block in blocks(PAGE):
        if first < block.line <= last:
            titles = re.findall(r"^\*\*([^*.]+)", "\n".join(lines[first : block.line]), re.MULTILINE)
            text = block.text.replace(URLS["mysql"], URLS[kind]) if kind == "mariadb" else block.text
            if block.language == "console":
                text = "".join(f"{line}\n...\n" for line in text.splitlines() if line.startswith("$ "))
            else:
                text = re.sub(r"; +-- .*$", ";", text, flags=re.MULTILINE)
            found[titles[-1] if titles else "tables"].append(replace(block, text=text))
    return found


def with_its_statement(url: str, steps: list[Block]) -> list[Block]:
    """The steps with the statement that the command prints: the writers have moved the counter meanwhile."""
    result = CliRunner().invoke(main, [*BESIDE.split(), "--json", "--url", url])
    (finding,) = json.loads(result.stdout)["findings"]
    statement = re.compile("^ALTER .*;", re.MULTILINE)
    return [replace(one, text=statement.sub(f"{finding['mend']};", one.text)) for one in steps]


def carry_out(reading: Reading, steps: list[Block]) -> None:
    for block in steps:
        for one in range(1, TRIES + 1):
            try:
                reading.read(block)
                break
            except OperationalError as error:
                if one == TRIES or not BUSY.search(str(error)):
                    raise


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Reading]:
    with closing(Reading(tmp_path)) as made:
        yield made


def check(url: str, writers: Writers) -> None:
    """Each written id is a row, once; the page has inserted four more."""
    written = writers.ids()
    assert distinct(written)
    rows = values(url, "SELECT id FROM orders")
    assert set(written) <= set(rows)
    assert len(rows) == len(written) + 4


@pytest.mark.parametrize("kind", URLS)
def test_the_steps_of_the_page_while_others_write(kind, reading):
    steps = parts(kind)
    assert {name for name, found in steps.items() if not found} == set()
    carry_out(reading, steps["tables"])
    url = reading.stage.real(URLS[kind])
    with writing(url) as writers:
        old = writers.add(3)
        writers.wait_for(PLENTY)
        carry_out(reading, steps["Plan"])
        carry_out(reading, with_its_statement(url, steps["Start"]))
        new = writers.add(3, "order")
        writers.wait_for(PLENTY)
        carry_out(reading, steps["Change the writers one by one"])
        writers.wait_for(PLENTY)
        writers.stop(old)
        carry_out(reading, steps["End"])
        writers.wait_for(PLENTY, new)
        with pytest.raises(DBAPIError):
            execute(url, "INSERT INTO orders (what) VALUES ('old')")
        carry_out(reading, steps["Back"])
        again = writers.add(3)
        writers.wait_for(PLENTY, [*new, *again])
        writers.stop()

    check(url, writers)


@pytest.mark.parametrize("kind", URLS)
def test_the_way_back_before_the_end_while_others_write(kind, reading):
    steps = parts(kind)
    in_a_table = re.compile("^ALTER TABLE.*\n", re.MULTILINE)
    before_the_end = [replace(one, text=in_a_table.sub("", one.text)) for one in steps["Back"]]
    carry_out(reading, steps["tables"])
    url = reading.stage.real(URLS[kind])
    with writing(url) as writers:
        writers.add(3)
        writers.wait_for(PLENTY)
        carry_out(reading, steps["Plan"])
        carry_out(reading, with_its_statement(url, steps["Start"]))
        new = writers.add(3, "order")
        writers.wait_for(PLENTY)
        carry_out(reading, steps["Change the writers one by one"])
        if kind == "postgres":
            carry_out(reading, before_the_end)
        writers.wait_for(PLENTY)
        writers.stop(new)
        writers.wait_for(PLENTY, writers.all[:3])
        writers.stop()

    check(url, writers)


@pytest.mark.parametrize("kind", ["postgres"])
def test_control_a_tag_that_starts_where_the_counter_is_repeats_its_ids(kind, reading):
    """Without the statement that holds the counter; the check names the counter."""
    steps = parts(kind)
    upgrade = [replace(one, text=one.text.partition("$ allocator tags")[0]) for one in steps["Plan"]]
    carry_out(reading, [*steps["tables"], *upgrade])
    url = reading.stage.real(URLS[kind])
    reading.read(Block(PAGE, 0, "console", "$ allocator tags create order --start-after-column orders.id\n...\n"))
    execute(url, "INSERT INTO orders (what) VALUES ('old')")
    with writing(url) as writers:
        (new,) = writers.add(1, "order")
        new.join(PATIENCE)

    assert isinstance(new.error, IntegrityError)
    reading.read(Block(PAGE, 0, "console", f"$ allocator {BESIDE}\ndanger  second-generator (...\n...\n"))

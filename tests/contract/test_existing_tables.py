"""`docs/existing-tables.md` while others write: the column's own counter and a tag share it, and no id comes twice."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import BigInteger, Column, Engine, MetaData, String, Table, insert
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from support.closing import Closing
from support.distinct import distinct
from support.documents.pages import ROOT, Block, blocks
from support.documents.reader import Reading
from support.kit import run
from support.processes.patience import until
from support.servers.administrator import execute, opened, values

from allocator import Allocator

PATIENCE = 120.0
"""Seconds until a writer that does not come is given up."""


ORDERS = Table("orders", MetaData(), Column("id", BigInteger, primary_key=True), Column("what", String(20)))
LINES = Table("line", MetaData(), Column("order_id", BigInteger))


def insert_order(engine: Engine, **given: object) -> int:
    with engine.begin() as connection:
        (number,) = connection.execute(insert(ORDERS).values(what="new", **given)).inserted_primary_key
        connection.execute(insert(LINES).values(order_id=number))
        return int(number)


class Writer:
    """Inserts an order and a line of it in each transaction, until it is told to stop or fails. An old one leaves the
    id to the column."""

    def __init__(self, pool: ThreadPoolExecutor, url: str, tag: str) -> None:
        self.ids: list[int] = []
        self.stopped = threading.Event()
        self.writing = pool.submit(self.write, url, tag)

    def write(self, url: str, tag: str) -> None:
        with opened(url) as engine, Allocator(url) as ids:
            while not self.stopped.is_set():
                self.ids.append(insert_order(engine, **({"id": ids.next_id(tag)} if tag else {})))


class Writers(Closing):
    """Old and new ones. A test waits for what they have written, never for a time."""

    def __init__(self, url: str) -> None:
        self.url, self.pool = url, ThreadPoolExecutor(12)
        self.all: list[Writer] = []

    def add(self, count: int, tag: str = "") -> list[Writer]:
        made = [Writer(self.pool, self.url, tag) for _ in range(count)]
        self.all += made
        return made

    def wait_for(self, more: int, writers: list[Writer] | None = None) -> None:
        """Until each has written so many rows more."""
        least = [(one, len(one.ids) + more) for one in writers or self.all]

        def have_ended() -> list[BaseException | None]:
            return [one.writing.exception() for one, _ in least if one.writing.done()]

        assert until(lambda: all(len(one.ids) >= count for one, count in least), PATIENCE, hopeless=have_ended), (
            have_ended()
        )

    def stop(self, writers: list[Writer] | None = None) -> None:
        for one in writers or self.all:
            one.stopped.set()
        for one in writers or self.all:
            one.writing.result(PATIENCE)

    def close(self) -> None:
        for one in self.all:
            one.stopped.set()
        self.pool.shutdown()


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
    (finding,) = run(url, *BESIDE.split(), "--json").json["findings"]
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
    with Reading(tmp_path) as made:
        yield made


@contextmanager
def changed(kind: str, reading: Reading, steps: dict[str, list[Block]]) -> Iterator[tuple[Writers, list[Writer]]]:
    """While others write, up to the step that changes them; and those that use the tag.

    Each written id is a row, once; the page has inserted four more.
    """
    carry_out(reading, steps["tables"])
    url = reading.stage.real(URLS[kind])
    with Writers(url) as writers:
        writers.add(3)
        writers.wait_for(PLENTY)
        carry_out(reading, steps["Plan"])
        carry_out(reading, with_its_statement(url, steps["Start"]))
        new = writers.add(3, "order")
        writers.wait_for(PLENTY)
        carry_out(reading, steps["Change the writers one by one"])
        yield writers, new
        writers.stop()
    written = [number for one in writers.all for number in one.ids]
    assert distinct(written)
    rows = values(url, "SELECT id FROM orders")
    assert set(written) <= set(rows)
    assert len(rows) == len(written) + 4


@pytest.mark.parametrize("kind", URLS)
def test_the_steps_of_the_page_while_others_write(kind, reading):
    steps = parts(kind)
    assert {name for name, found in steps.items() if not found} == set()
    with changed(kind, reading, steps) as (writers, new):
        writers.wait_for(PLENTY)
        writers.stop(writers.all[:3])
        carry_out(reading, steps["End"])
        writers.wait_for(PLENTY, new)
        with pytest.raises(DBAPIError):
            execute(reading.stage.real(URLS[kind]), "INSERT INTO orders (what) VALUES ('old')")
        carry_out(reading, steps["Back"])
        again = writers.add(3)
        writers.wait_for(PLENTY, [*new, *again])


@pytest.mark.parametrize("kind", URLS)
def test_the_way_back_before_the_end_while_others_write(kind, reading):
    steps = parts(kind)
    in_a_table = re.compile("^ALTER TABLE.*\n", re.MULTILINE)
    before_the_end = [replace(one, text=in_a_table.sub("", one.text)) for one in steps["Back"]]
    with changed(kind, reading, steps) as (writers, new):
        if kind == "postgres":
            carry_out(reading, before_the_end)
        writers.wait_for(PLENTY)
        writers.stop(new)
        writers.wait_for(PLENTY, writers.all[:3])


@pytest.mark.parametrize("kind", ["postgres"])
def test_control_a_tag_that_starts_where_the_counter_is_repeats_its_ids(kind, reading):
    """Without the statement that holds the counter; the check names the counter."""
    steps = parts(kind)
    upgrade = [replace(one, text=one.text.partition("$ allocator tags")[0]) for one in steps["Plan"]]
    carry_out(reading, [*steps["tables"], *upgrade])
    url = reading.stage.real(URLS[kind])
    reading.read(Block(PAGE, 0, "console", "$ allocator tags create order --start-after-column orders.id\n...\n"))
    execute(url, "INSERT INTO orders (what) VALUES ('old')")
    with Writers(url) as writers:
        (new,) = writers.add(1, "order")
        assert isinstance(new.writing.exception(PATIENCE), IntegrityError)
    reading.read(Block(PAGE, 0, "console", f"$ allocator {BESIDE}\ndanger  second-generator (...\n...\n"))

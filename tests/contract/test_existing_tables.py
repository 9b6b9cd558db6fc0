"""`docs/existing-tables.md` while others write: the column's own counter and a tag share it, and no id comes twice."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
from sqlalchemy import BigInteger, Column, Engine, MetaData, String, Table, insert
from sqlalchemy.exc import DBAPIError, OperationalError
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

    def __init__(self, pool: ThreadPoolExecutor, url: str, tag: str = "") -> None:
        self.ids: list[int] = []
        self.stopped = threading.Event()
        self.writing = pool.submit(self.write, url, tag)

    def write(self, url: str, tag: str) -> None:
        with opened(url) as engine, Allocator(url) as ids:
            while not self.stopped.is_set():
                self.ids.append(insert_order(engine, **({"id": ids.next_id(tag)} if tag else {})))


def wait_for(writers: list[Writer]) -> None:
    """Until each has written plenty more, never for a time."""
    least = [(one, len(one.ids) + PLENTY) for one in writers]

    def have_ended() -> list[BaseException | None]:
        return [one.writing.exception() for one in writers if one.writing.done()]

    written = until(lambda: all(len(one.ids) >= count for one, count in least), PATIENCE, hopeless=have_ended)
    assert written, have_ended()


def stop(writers: list[Writer]) -> None:
    for one in writers:
        one.stopped.set()
    for one in writers:
        one.writing.result(PATIENCE)


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


@pytest.mark.parametrize("kind", URLS)
def test_the_steps_of_the_page_while_others_write(kind, tmp_path):
    """Each written id is a row, once; the page has inserted four more."""
    steps = parts(kind)
    assert {name for name, found in steps.items() if not found} == set()
    with Reading(tmp_path) as reading, ThreadPoolExecutor(12) as pool, ExitStack() as at_the_end:
        carry_out(reading, steps["tables"])
        url = reading.stage.real(URLS[kind])
        writers: list[Writer] = []

        def add(tag: str = "") -> list[Writer]:
            made = [Writer(pool, url, tag) for _ in range(3)]
            writers.extend(made)
            for one in made:
                at_the_end.callback(one.stopped.set)
            wait_for(writers if tag else made)
            return made

        old = add()
        carry_out(reading, steps["Plan"])
        carry_out(reading, with_its_statement(url, steps["Start"]))
        new = add("order")
        carry_out(reading, steps["Change the writers one by one"])
        wait_for(writers)
        stop(old)
        carry_out(reading, steps["End"])
        wait_for(new)
        with pytest.raises(DBAPIError):
            execute(url, "INSERT INTO orders (what) VALUES ('old')")
        carry_out(reading, steps["Back"])
        stop([*add(), *new])
        rows = values(url, "SELECT id FROM orders")
    written = [number for one in writers for number in one.ids]

    assert distinct(written)
    assert set(written) <= set(rows)
    assert len(rows) == len(written) + 4

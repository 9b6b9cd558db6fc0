"""Files of SQLite in use: locks that a process loses by reading its file, and files with two names."""

import errno
import fcntl
import os
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, select
from support.distinct import Duplicate, distinct
from support.faults.ill_databases import as_nobody
from support.faults.meanwhile import meanwhile
from support.kit import python
from support.processes.children import in_child

from allocator import Allocator
from allocator.database import sqlite
from allocator.database import store as runner
from allocator.database.store import Database
from allocator.errors import DatabaseRefused, DatabaseUnavailable, InvalidDatabase
from allocator.integrations.sqlalchemy import KeyDefault

HOLDER = """
import os, sys
from pathlib import Path
from allocator.database import sqlite
from allocator.database.dialect import transaction
from allocator.database.store import Database

if sys.argv[2] == "control":
    sqlite.fcntl = None
database = Database(f"sqlite:///{sys.argv[1]}")

def claim(connection, dialect):
    with transaction(connection, dialect):
        connection.exec_driver_sql("SELECT max_value FROM allocator_segment").all()
        Path(sys.argv[1]).read_bytes()  # as a backup does
        print("reading", flush=True)
        sys.stdin.readline()
        connection.exec_driver_sql("UPDATE allocator_segment SET max_value = max_value + 1")
        [(end,)] = connection.exec_driver_sql("SELECT max_value FROM allocator_segment").all()
    return end

print(database.run(claim), flush=True)
"""
"""A process that reads the file in the middle of a claim, and ends the claim when it is told to."""

DRAWER = """
import sys
from pathlib import Path
from allocator import Allocator

with Allocator(f"sqlite:///{sys.argv[1]}") as ids:
    for _ in sys.stdin:
        print(*ids.reserve("order", 1), flush=True)
        Path(sys.argv[1]).read_bytes()
"""
"""A process that draws an id for each line, reads the file after it, and keeps it open."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ids.db"
    with Allocator(f"sqlite:///{path}") as ids:
        ids.tags.create("order")
    return path


def drawn_while_another_claims(file: Path, mode: str) -> list[int]:
    """Draw in the middle of a claim of another process that has read its file."""
    command = [sys.executable, "-c", HOLDER, str(file), mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == "reading\n"
        drawn: list[int] = []
        with suppress(DatabaseUnavailable), Allocator(f"sqlite:///{file}", timeout=1) as ids:
            drawn += ids.reserve("order", 1)
        holder.stdin.write("\n")
        holder.stdin.flush()
        return [*drawn, int(holder.stdout.readline())]


def test_a_process_that_reads_its_file_in_the_middle_of_a_claim_is_not_overtaken(file):
    drawn = drawn_while_another_claims(file, "")
    with Allocator(f"sqlite:///{file}") as ids:
        drawn += ids.reserve("order", 5)

    assert distinct(drawn) == 6


def test_control_without_the_lock_two_processes_claim_one_id(file, monkeypatch):
    monkeypatch.setattr(sqlite, "fcntl", None)
    with pytest.raises(Duplicate):
        distinct(drawn_while_another_claims(file, "control"))


def test_a_log_that_another_process_deletes_takes_no_claim_with_it(file):
    """A process that reads a file in WAL mode loses the lock that keeps the log there."""
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    command = [sys.executable, "-c", DRAWER, str(file)]
    drawn: list[int] = []
    with ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        first, second, third = (stack.enter_context(subprocess.Popen(command, text=True, **pipes)) for _ in range(3))

        def draw(process: subprocess.Popen[str]) -> None:
            print(file=process.stdin, flush=True)
            drawn.append(int(process.stdout.readline()))

        draw(first), draw(second)
        second.communicate()  # it closes the file, and the log with it
        draw(third), draw(first), draw(third), draw(first)

    assert distinct(drawn) == 6


def test_what_another_program_undoes_after_the_commit_is_not_served(file, monkeypatch):
    """As SQLite does with a journal whose writer has lost its locks, and so looks dead."""
    undoing = "UPDATE allocator_segment SET max_value = 1"

    def undo(*_: object) -> None:
        with closing(sqlite3.connect(file)) as other, other:
            other.execute(undoing)

    with Allocator(f"sqlite:///{file}") as ids:
        for draw in (lambda: ids.reserve("order", 1)[0], lambda: ids.ticket("invoice")):
            drawn = [draw()]
            meanwhile(monkeypatch, sqlite, "kept", undo)
            with pytest.raises(DatabaseUnavailable, match="no id was issued; another program undid it"):
                drawn.append(draw())
            drawn.append(draw())
            assert distinct(drawn) == 2
        undoing = "DELETE FROM allocator_segment"
        meanwhile(monkeypatch, sqlite, "kept", undo)
        with pytest.raises(DatabaseUnavailable, match="holds None right after"):
            draw()


@pytest.fixture
def checked_anew(monkeypatch) -> None:
    """Names and mounts of a file are looked at once a process."""
    monkeypatch.setattr(sqlite, "checked", set())


def test_a_file_with_two_names_is_refused_by_each_of_them(file, checked_anew):
    other = file.with_name("other.db")
    os.link(file, other)
    for path in (file, other):
        with Allocator(f"sqlite:///{path}") as ids, pytest.raises(DatabaseRefused, match="has 2 hard links"):
            ids.next_id("order")
    other.unlink()
    other.symlink_to(file)  # SQLite follows it
    with Allocator(f"sqlite:///{file}") as ids, Allocator(f"sqlite:///{other}") as linked:
        assert distinct([ids.next_id("order"), linked.next_id("order")]) == 2


def test_a_file_that_is_mounted_alone_is_refused_and_one_in_its_folder_looked_at_once(file, monkeypatch, checked_anew):
    mounts = [f"/dev/vda {path} ext4 rw 0 0" for path in (file, file.parent)]
    monkeypatch.setattr(sqlite, "MOUNTS", SimpleNamespace(read_text=lambda: f"/dev/vda / ext4 rw 0 0\n{mounts.pop(0)}"))
    with Allocator(f"sqlite:///{file}") as ids, pytest.raises(DatabaseRefused, match="mount its folder instead"):
        ids.next_id("order")
    for _ in range(2):
        with Allocator(f"sqlite:///{file}") as ids:
            ids.reserve("order", 1), ids.reserve("order", 1)


def is_locked(file: Path) -> bool:
    with Path(f"{file}-lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_transaction_of_others_is_waited_for_without_the_lock(file, monkeypatch):
    patient = {"timeout": 60, "check_same_thread": False}
    fresh = file.with_name("fresh.db")
    for path, given in (
        (file, f"sqlite:///{file}"),
        (file, create_engine(f"sqlite:///{file}", connect_args=patient)),
        (fresh, f"sqlite:///{fresh}"),  # makes its tables
    ):
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        held = []

        def pause(seconds, other=other, held=held, path=path):
            held.append(is_locked(path))
            other.rollback()

        monkeypatch.setattr(runner, "sleep", pause)
        with Allocator(given, timeout=30) as ids:
            ids.reserve("order", 1)
        other.close()
        assert held == [False]


def test_a_connection_that_an_exception_left_open_is_closed_by_the_next_statement(file, monkeypatch):
    """But in the parent alone: in a forked child that would end the parent's transaction."""
    database, kept = Database(f"sqlite:///{file}", timeout=0.5), []

    def interrupted(connection, dialect):
        kept.append(connection.connection.dbapi_connection)  # as the traceback of the exception does
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        monkeypatch.setattr(dialect_of := database.engine.dialect, "do_close", lambda _: None)
        monkeypatch.setattr(dialect_of, "do_rollback", lambda _: None)
        raise MemoryError

    with pytest.raises(MemoryError):
        database.run(interrupted)
    monkeypatch.undo()

    assert in_child(lambda: (sqlite.left, kept[0].in_transaction)) == "([], True)"
    assert database.register_node() == 1


def test_an_engine_that_opens_another_file_than_its_url_says_is_refused(file, tmp_path):
    """The lock would be beside the file of the URL."""
    places = (f"sqlite:///{tmp_path}/other.db", file), ("sqlite://", file), (f"sqlite:///{file}", ":memory:")
    engines = (
        create_engine(url, creator=lambda opened=opened: sqlite3.connect(opened, check_same_thread=False))
        for url, opened in places
    )
    for place in (*engines, f"sqlite:///file:{file}?uri=true"):
        with closing(Database(place)) as database, pytest.raises(InvalidDatabase, match="is opened instead; give the"):
            database.ping()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has autocommit since Python 3.12")
@pytest.mark.parametrize("autocommit", [False, True])
def test_an_engine_may_have_any_autocommit(file, autocommit):
    engine = create_engine(f"sqlite:///{file}", connect_args={"autocommit": autocommit})
    order = Table("order", MetaData(), Column("id", Integer, default=KeyDefault(Allocator(engine), "order").of_row))
    with engine.begin() as connection:
        order.create(connection)
    with engine.begin() as connection:
        connection.execute(order.insert(), [{}])
        assert connection.scalar(select(order.c.id)) == 1
    engine.dispose()


AT_EXIT = """
import atexit, sys
from sqlalchemy import create_engine
from allocator import Allocator
ids = Allocator(create_engine(f"sqlite:///{sys.argv[1]}"))
atexit.register(lambda: print(*ids.reserve("order", 1)))
"""


def test_a_function_that_runs_at_exit_draws_by_a_given_engine(file):
    """There no executor takes work any more."""
    assert python(AT_EXIT, str(file)) == (0, "1\n", "")


def test_a_file_that_cannot_be_locked_or_is_gone_is_refused_while_that_lasts(file, monkeypatch):
    """As on NFS without its daemon for locks: SQLite's own may be dropped."""

    def refused(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with closing(Database(f"sqlite:///{file}")) as database:
        for module, name, said in (
            (sqlite.fcntl, "flock", "cannot be locked: No locks available; put it on a file system that has flock"),
            (sqlite.os, "open", "cannot be opened: No locks available; check"),
        ):
            with monkeypatch.context() as patched:
                patched.setattr(module, name, refused)
                with pytest.raises((DatabaseRefused, DatabaseUnavailable), match=said):
                    database.ping()
        database.ping()
        away = file.parent.rename(file.parent.with_name("away"))
        for call in (database.ping, lambda: database.claim_segment("order", 10, {})):
            with pytest.raises(DatabaseUnavailable, match="there is no file .*; check the path, or put it back"):
                call()
        away.rename(file.parent)
        assert database.claim_segment("order", 10, {}) == range(1, 11)


def test_a_file_that_is_made_is_told_once(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///ids.db", "sqlite:///ids.db", "sqlite://"):
        with Allocator(url) as ids:
            ids.next_id("order"), ids.ticket("order"), ids.meteor()
    with suppress(DatabaseRefused), Allocator("sqlite:///nowhere/ids.db") as ids:
        ids.next_id("order")
    (told,) = [record for record in caplog.records if "made" in record.getMessage()]

    assert (told.name, told.levelname) == ("allocator", "WARNING")
    assert told.getMessage() == (
        f"made a new SQLite database at {tmp_path}/ids.db: its ids begin at 1; if there was one before, stop and put "
        "it back"
    )


SPOILED = {
    "a file that may not be written": (lambda file: file.chmod(0o444), "this user may write both"),
    "a folder that may not be written": (lambda file: file.parent.chmod(0o555), "this user may write both"),
    "a folder that may not be entered": (lambda file: file.parent.chmod(0o000), "this user may write both"),
    "a file that was cut off": (lambda file: os.truncate(file, file.stat().st_size // 2), "damaged, .* mark-restored$"),
    "pages of noise": (lambda file: file.write_bytes(file.read_bytes()[:4096] + bytes(40_000)), "is damaged, "),
    "a text": (lambda file: file.write_text("hello" * 1000), "or no SQLite database: .*; restore a backup"),
}


@pytest.mark.parametrize(("spoil", "said"), SPOILED.values(), ids=SPOILED)
def test_a_file_that_no_retry_can_use_is_refused(open_folder, spoil, said):
    file = open_folder / "ids.db"
    with Allocator(f"sqlite:///{file}") as ids:
        ids.next_id("order"), ids.ticket("order")
    file.chmod(0o666), file.parent.chmod(0o777)
    spoil(file)
    for draw in (Allocator.next_id, Allocator.ticket):
        with as_nobody(), Allocator(f"sqlite:///{file}") as ids, pytest.raises(DatabaseRefused, match=said):
            draw(ids, "order")

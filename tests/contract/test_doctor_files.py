"""What the doctor finds about a file of SQLite and where it lies."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from support.faults.ill_databases import Patient, named
from support.faults.read_only import as_nobody
from support.servers.administrator import execute

from allocator import doctor
from allocator.database.sqlite.doctor_rules import loses_commits
from allocator.doctor import DANGER, NOTE, OUTAGE, examine, is_healthy


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ids.db"


@pytest.fixture
def patient(file: Path) -> Patient:
    return Patient(f"sqlite:///{file}")


def test_nothing_is_said_of_a_sound_file(patient):
    assert patient.healthy == set()


def test_a_file_on_a_network_file_system(patient, file, monkeypatch, tmp_path_factory):
    mounts = tmp_path_factory.mktemp("proc") / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/ids {file.parent} nfs4 rw 0 0\n")
    monkeypatch.setattr(doctor, "MOUNTS", mounts)
    found = patient.found()["network-file-system"]

    assert found.severity == DANGER
    assert f"{file} is on a network file system (nfs4)" in found.found


def test_a_file_with_two_names(patient, file):
    os.link(file, file.with_name("other.db"))
    found = patient.found()["refused"]

    assert found.severity == OUTAGE
    assert "has 2 hard links" in found.found


def test_the_wal_mode_and_a_version_that_loses_commits_in_it(patient):
    execute(patient.url, "PRAGMA journal_mode = WAL")
    found = patient.found()

    assert found["sqlite-wal"].severity == NOTE
    assert ("not-durable" in found) == loses_commits(sqlite3.sqlite_version_info)
    execute(patient.url, "PRAGMA journal_mode = DELETE")
    assert set(patient.found()) == set()


def test_a_file_that_another_program_has_locked(patient, file):
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    found = patient.found(timeout=0.2)["file-locked"]
    holder.execute("ROLLBACK")
    holder.close()

    assert found.severity == OUTAGE
    assert "database is locked" in found.found


@pytest.mark.parametrize("barred", ["file", "folder"])
def test_what_may_not_be_written(open_folder, barred):
    file = open_folder / "ids.db"
    patient = Patient(f"sqlite:///{file}")
    file.chmod(0o666 if barred == "folder" else 0o444)
    open_folder.chmod(0o777 if barred == "file" else 0o555)
    with as_nobody():
        found = patient.found()["file-not-writable"]

    assert found.severity == OUTAGE
    assert found.found.startswith(f"the current user cannot write {file if barred == 'file' else open_folder}")


def test_a_file_that_is_not_there_is_not_made(file):
    found = examine(f"sqlite:///{file}")

    assert [(one.name, one.severity) for one in found] == [("file-missing", NOTE)]
    assert not file.exists()
    assert named(examine(f"sqlite:///{file.parent}/nowhere/ids.db"))["file-not-writable"].severity == OUTAGE


def test_a_database_in_memory():
    found = named(examine("sqlite://"))

    assert found["database-in-memory"].severity == DANGER
    assert not is_healthy(found.values())


@pytest.mark.parametrize(
    ("name", "words", "old", "new"),
    [
        ("numbering-lost", "allocator_node lacks AUTOINCREMENT", "PRIMARY KEY AUTOINCREMENT", "PRIMARY KEY"),
        ("column-type", "allocator_node.process is VARCHAR", "process BIGINT", "process VARCHAR(9)"),
    ],
)
def test_a_table_that_was_made_anew(patient, file, name, words, old, new):
    connection = sqlite3.connect(file)
    made = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'allocator_node'").fetchone()[0]
    made = made.replace("INTEGER NOT NULL, \n", "INTEGER PRIMARY KEY, \n") if "AUTOINCREMENT" not in made else made
    assert old in made
    connection.executescript(f"DROP TABLE allocator_node; {made.replace(old, new)}")
    connection.close()
    found = patient.found()[name]

    assert name not in patient.healthy
    assert (found.severity, words in found.found) == (DANGER, True), found


def test_tags_that_are_compared_loosely(patient, file):
    connection = sqlite3.connect(file)
    made = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'allocator_segment'").fetchone()[0]
    loose = made.replace("tag VARCHAR(64) NOT NULL", "tag VARCHAR(64) COLLATE NOCASE NOT NULL")
    connection.executescript(f"DROP TABLE allocator_segment; {loose}")
    connection.close()
    found = patient.found()["tag-collation"]

    assert "tag-collation" not in patient.healthy
    assert "allocator_segment.tag has NOCASE" in found.found


def test_a_counter_that_was_set_back(patient):
    execute(patient.url, "INSERT INTO allocator_ticket VALUES (50, 'invoice')")
    assert "numbering-behind" not in patient.found()
    execute(patient.url, "UPDATE sqlite_sequence SET seq = 10 WHERE name = 'allocator_ticket'")
    found = patient.found()["numbering-behind"]

    assert found.severity == DANGER
    assert "is at 10, and 50 is in use" in found.found


UNCHECKED = {"'over', 200, 1, 10, 100": OUTAGE, "'real', 1.5, 1, 10, 100": DANGER, "'steps', 1, 20, 10, 100": OUTAGE}


def test_rows_that_no_check_has_seen(patient):
    columns = "tag, max_value, step, max_step, id_limit"
    for row, severity in UNCHECKED.items():
        insert = f"INSERT INTO allocator_segment ({columns}) VALUES ({row})"
        execute(patient.url, "PRAGMA ignore_check_constraints = ON", "DELETE FROM allocator_segment", insert)
        found = patient.found()["tag-changed-by-hand"]
        assert found.severity == severity, row
        assert row[1:5] in found.found

    assert "tag-changed-by-hand" not in patient.healthy

"""`allocator doctor` as a user types it."""

import json

import pytest
from click.testing import CliRunner, Result
from support.servers.administrator import execute

from allocator.cli import main

DANGEROUS = "UPDATE allocator_segment SET shard_step = 3"


def doctor(*words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *words])


@pytest.fixture
def sound(tmp_path, new_database) -> str:
    url = f"sqlite:///{tmp_path}/ids.db"
    assert CliRunner().invoke(main, ["next", "order", "--url", url]).exit_code == 0
    return url


def test_nothing_is_found_and_the_exit_code_is_0(sound):
    done = doctor("--url", sound)

    assert (done.exit_code, done.output) == (0, "no findings\n")
    assert json.loads(doctor("--url", sound, "--json").output) == {"findings": []}


def test_notes_alone_are_0(sound):
    execute(sound, "PRAGMA journal_mode = WAL", "UPDATE allocator_segment SET failover_gap = 0")
    execute(sound, "PRAGMA journal_mode = DELETE")
    done = doctor("--url", sound)

    assert done.exit_code == 0
    assert done.output.startswith("note    failover-gap-zero (sqlite")


def test_a_danger_is_1_with_what_was_found_and_how_to_mend_it(sound):
    execute(sound, DANGEROUS)
    done = doctor("--url", sound)
    listed = json.loads(doctor("--url", sound, "--json").output)["findings"]

    assert done.exit_code == 1
    assert "danger  tag-of-another-lane (sqlite" in done.output
    assert "'order' has offset 1 and step 3" in done.output
    assert "fix: stop all processes that use these tags" in done.output
    assert [set(one) for one in listed] == [{"name", "severity", "found", "mend", "database"}]
    assert listed[0]["severity"] == "danger"


def test_an_outage_is_1():
    done = doctor("--url", "postgresql+psycopg://nobody@127.0.0.1:1/none")

    assert done.exit_code == 1
    assert done.output.startswith("outage  unreachable")


def test_shards_are_given_together(tmp_path):
    first, second = (f"sqlite:///{tmp_path}/{name}.db" for name in ("first", "second"))
    CliRunner().invoke(main, ["next", "order", "--url", first, "--url", second])
    execute(second, DANGEROUS)
    listed = json.loads(doctor("--url", first, "--url", second, "--json").output)["findings"]

    assert [(one["name"], one["database"].rpartition("/")[2]) for one in listed if one["severity"] == "danger"] == [
        ("tag-of-another-lane", "second.db")
    ]


def test_a_service_is_no_database():
    for address in ("http://127.0.0.1:1", "unix:///run/allocator/ids.sock"):
        done = doctor("--url", address)

        assert done.exit_code == 1, address
        assert "is a service; this needs the URL of the database itself" in done.output

"""`allocator doctor` as a user types it."""

import pytest
from support.kit import Said, run
from support.servers.administrator import execute

DANGEROUS = "UPDATE allocator_segment SET shard_step = 3"


def doctor(url: str, *words: str) -> Said:
    return run(url, "doctor", *words)


@pytest.fixture
def sound(tmp_path) -> str:
    url = f"sqlite:///{tmp_path}/ids.db"
    assert run(url, "next", "order").code == 0
    return url


def test_nothing_is_found_and_the_exit_code_is_0(sound):
    done = doctor(sound)

    assert (done.code, done.out) == (0, "no findings\n")
    assert doctor(sound, "--json").json == {"findings": []}


def test_notes_alone_are_0(sound):
    execute(sound, "PRAGMA journal_mode = WAL", "UPDATE allocator_segment SET failover_gap = 0")
    execute(sound, "PRAGMA journal_mode = DELETE")
    done = doctor(sound)

    assert done.code == 0
    assert done.out.startswith("note    failover-gap-zero (sqlite")


def test_a_danger_is_1_with_what_was_found_and_how_to_mend_it(sound):
    execute(sound, DANGEROUS)
    done = doctor(sound)
    listed = doctor(sound, "--json").json["findings"]

    assert done.code == 1
    assert "danger  tag-of-another-lane (sqlite" in done.out
    assert "'order' has offset 1 and step 3" in done.out
    assert "fix: stop all processes that use these tags" in done.out
    assert [set(one) for one in listed] == [{"name", "severity", "found", "mend", "database"}]
    assert listed[0]["severity"] == "danger"


def test_an_outage_is_1():
    done = doctor("postgresql+psycopg://nobody@127.0.0.1:1/none")

    assert done.code == 1
    assert done.out.startswith("outage  unreachable")

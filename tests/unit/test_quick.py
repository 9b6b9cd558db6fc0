"""What each change proves: by plain lists of tests, and by plain commits."""

from __future__ import annotations

import pytest
from support.quick import Case, left_out, turn

PLACES, FACES = ("sqlite", "postgres", "mysql", "mariadb"), ("sync", "asyncio")


def test_stories_run_on_three_databases_and_statements_on_four():
    cases = [
        Case(name, (place,), frozenset(marks)) for name, *marks in (["story"], ["s", "statements"]) for place in PLACES
    ]

    assert left_out(cases, PLACES, FACES, ["mysql"]) == {3}
    assert left_out(cases, PLACES, FACES, ["mariadb"]) == {2}
    assert left_out(cases, PLACES, FACES, ["mysql", "mariadb"]) == set()


def test_every_database_and_every_face_is_met_and_not_every_pair():
    cases = [Case(name, (face, place, "x")) for name in "abcd" for place in PLACES for face in FACES]
    kept = [case for at, case in enumerate(cases) if at not in left_out(cases, PLACES, FACES, ["mysql", "mariadb"])]

    assert len(kept) == len(cases) / 2
    for name in "abcd":
        assert {value for case in kept if case.name == name for value in case.values} == {*PLACES, *FACES, "x"}


def test_a_test_of_the_night_is_left_out_and_one_database_alone_meets_both_faces():
    cases = [Case("n", (), frozenset(["nightly"])), *(Case("one", ("sqlite", face)) for face in FACES)]

    assert left_out(cases, PLACES, FACES, ["mysql"]) == {0}


def test_every_place_and_every_face_of_a_turn_is_met_by_each_test():
    places = (*PLACES, "mixed")
    for kept in (places, ("sqlite", "mixed"), ("postgres", "mariadb"), ("mysql", "mariadb", "sqlite")):
        for faces in (FACES, FACES[:1]):
            cases = [Case("test", (place, face), frozenset(["statements"])) for place in kept for face in faces]
            chosen = [case for at, case in enumerate(cases) if at not in left_out(cases, places, FACES, ["mariadb"])]
            assert {value for case in chosen for value in case.values} == {*kept, *faces}
    stories = [Case("test", (place, face)) for place in places for face in FACES]
    for one, other in (("mysql", "mariadb"), ("mariadb", "mysql")):
        met = {
            v
            for at, case in enumerate(stories)
            if at not in left_out(stories, places, FACES, [one])
            for v in case.values
        }
        assert met == {*places, *FACES} - {other}


def test_mysql_and_mariadb_take_turns():
    assert [turn(head, ["allocator/cli/next.py"]) for head in ("0", "a4", "af", "f")] == [
        ("mysql",),
        ("mysql",),
        ("mariadb",),
        ("mariadb",),
    ]
    assert turn("", []) == ("mysql", "mariadb")
    for path in ("allocator/database/store.py", "allocator/doctor/questions.py", "migrations/env.py"):
        assert turn("0", ["README.md", path]) == ("mysql", "mariadb")
        assert turn("0", [path], forced="mariadb") == ("mariadb",)
    assert turn("0", [], forced="both") == ("mysql", "mariadb")
    with pytest.raises(ValueError, match="must be mysql, mariadb or both, got 'oracle'"):
        turn("0", [], forced="oracle")

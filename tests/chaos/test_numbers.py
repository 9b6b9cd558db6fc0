"""Numbers without gaps while the clients that draw them roll back and are killed: small; see `tests/endurance`."""

from __future__ import annotations

from sqlalchemy import create_engine, text
from support.processes import number_writers


def test_no_gap_and_no_duplicate_when_clients_roll_back_and_are_killed(url):
    ended = list(number_writers.run(url, processes=4, scopes=3, lives=6, transactions=40))
    found = number_writers.check(url)

    assert any(ended)
    assert found.wrong == 0
    assert found.rows >= 6 * 40


def test_control_the_check_finds_a_gap_and_a_duplicate(url):
    list(number_writers.run(url, processes=1, scopes=1, lives=1, transactions=3))
    engine = create_engine(url)
    for change in ("UPDATE numbered SET n = 1 WHERE n = 2", "DELETE FROM numbered WHERE n = 1"):
        with engine.begin() as connection:
            connection.execute(text(change))
        assert number_writers.check(url).wrong >= 1
    engine.dispose()

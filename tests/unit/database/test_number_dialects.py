"""What is said to a database where a number may not be waited for: setting, statement, the setting as it was."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

from allocator.database.address import dialect_of
from allocator.database.caller import Answer
from allocator.database.django.transaction import DjangoCaller
from allocator.database.verbs.gapless_number_rows import number_dialect
from allocator.errors import InvalidDatabase

ROW = {"name": "case", "scope": "a", "period": ""}
MYSQL_WAIT = "SET @allocator_wait = @@innodb_lock_wait_timeout, innodb_lock_wait_timeout = {}"
MYSQL_AGAIN = "SET innodb_lock_wait_timeout = @allocator_wait"


class Told:
    """A caller that notes the beginning of each statement; those with the word `fails` in them fail."""

    def __init__(self, name: str, *, is_mariadb: bool = False, fails: str = "") -> None:
        self.numbers = number_dialect(dialect_of(name), is_mariadb=is_mariadb)
        self.where, self.fails = "here", fails
        self.said: list[str] = []

    def fetch(self, statement: str, parameters: object) -> list[list[int]]:
        self.said.append(statement.partition(" (name")[0])
        if self.fails and self.fails in statement:
            raise OperationalError(statement, {}, Exception("locked"))
        return [[1234]]

    def run(self, statement: str, parameters: object) -> Answer:
        self.fetch(statement, parameters)
        return Answer(rowcount=1, lastrowid=0)


def test_the_time_to_wait_is_set_for_one_statement():
    for fails in ["", "INSERT"]:
        for name, wait, before, after in [
            ("sqlite", 0.2, ["PRAGMA busy_timeout", "PRAGMA busy_timeout = 200"], ["PRAGMA busy_timeout = 1234"]),
            ("sqlite", 0, ["PRAGMA busy_timeout", "PRAGMA busy_timeout = 0"], ["PRAGMA busy_timeout = 1234"]),
            ("mysql", 1.5, [MYSQL_WAIT.format(2)], [MYSQL_AGAIN]),
        ]:
            caller = Told(name, fails=fails)
            try:
                caller.numbers.draw(caller, ROW, 1, 1, wait)
            except OperationalError:
                assert fails, (fails, name)

            assert caller.said == [*before, "INSERT INTO allocator_number", *after], (fails, name)


def test_a_connection_that_is_lost_after_the_number_is_an_error():
    """Else the caller's next statement would be the first to fail, and not say why."""
    caller = Told("mysql", fails=MYSQL_AGAIN)
    with pytest.raises(OperationalError):
        caller.numbers.draw(caller, ROW, 1, 1, 1)


def test_mysql_does_not_wait_a_second_for_now_or_never():
    caller = Told("mysql")
    caller.numbers.draw(caller, ROW, 1, 1, 0)

    assert caller.said[0] == MYSQL_WAIT.format(1)
    assert caller.said[1].endswith("FOR UPDATE NOWAIT")


def test_a_timeout_whose_extent_the_server_does_not_tell_counts_as_one_of_the_transaction():
    caller = Told("mysql", fails="SELECT")

    assert caller.numbers.rolls_back_at_timeout(caller)


def test_in_django_nothing_but_the_rollback_is_left():
    said: list[bool] = []
    DjangoCaller(SimpleNamespace(in_atomic_block=True, vendor="sqlite", set_rollback=said.append)).refuse_more()

    assert said == [True]


def test_mariadb_says_it_in_the_statement():
    caller = Told("mariadb", is_mariadb=True)
    caller.numbers.draw(caller, ROW, 1, 1, 0)
    caller.numbers.draw(caller, ROW, 1, 1, None)

    insert = "INSERT INTO allocator_number"
    assert caller.said == [f"SET STATEMENT innodb_lock_wait_timeout = 0 FOR {insert}", insert]


def test_postgresql_keeps_the_transaction_alive_by_a_savepoint():
    for fails, ending in [("", []), ("INSERT", ["ROLLBACK TO SAVEPOINT allocator_number"])]:
        caller = Told("postgresql", fails=fails)
        try:
            caller.numbers.draw(caller, ROW, 1, 1, 0.5)
        except OperationalError:
            assert fails, fails

        begun, drawn, *ended = caller.said
        assert begun == "SAVEPOINT allocator_number", fails
        assert "set_config('lock_timeout', :wait, true)" in drawn, fails
        assert ended == [*ending, "RELEASE SAVEPOINT allocator_number"], fails


def test_django_outside_of_atomic():
    with pytest.raises(InvalidDatabase, match="draw numbers inside transaction.atomic"):
        DjangoCaller(SimpleNamespace(in_atomic_block=False, alias="default", vendor="sqlite"))

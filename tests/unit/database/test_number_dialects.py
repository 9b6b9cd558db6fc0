"""Numbers drawn in a transaction that the server has rolled back, or in none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

from allocator.database.address import dialect_of
from allocator.database.django.transaction import DjangoCaller
from allocator.database.verbs.gapless_number_rows import number_dialect, translated
from allocator.errors import InvalidDatabase


def test_a_timeout_whose_extent_the_server_does_not_tell_counts_as_one_of_the_transaction():
    def fail(statement: str, parameters: object) -> None:
        raise OperationalError(statement, parameters, Exception("lost"))

    numbers = number_dialect(dialect_of("mysql"), is_mariadb=False)

    assert numbers.rolls_back_at_timeout(SimpleNamespace(fetch=fail))


class Alarm(Exception):
    """Of a signal handler."""


def test_an_exception_of_the_callers_leaves_nothing_but_the_rollback_where_nobody_could_look():
    """The server may have rolled back at that moment: the number would be committed, and given again."""

    def alarm(*_: object) -> None:
        raise Alarm

    def time_out() -> None:
        raise OperationalError("", None, Exception(1205, "Lock wait timeout exceeded"))

    for kind, act, refused in (("mysql", alarm, [True]), ("mysql", time_out, [True]), ("postgresql", alarm, [])):
        said: list[bool] = []
        numbers = number_dialect(dialect_of(kind), is_mariadb=False)
        caller = SimpleNamespace(numbers=numbers, fetch=alarm, refuse_more=lambda said=said: said.append(True))
        with pytest.raises(Alarm):
            translated(caller, {"name": "case", "scope": "", "period": ""}, act)

        assert said == refused, (kind, act)


def test_in_django_nothing_but_the_rollback_is_left():
    said: list[bool] = []
    DjangoCaller(SimpleNamespace(in_atomic_block=True, vendor="sqlite", set_rollback=said.append)).refuse_more()

    assert said == [True]


def test_django_outside_of_atomic():
    with pytest.raises(InvalidDatabase, match="draw numbers inside transaction.atomic"):
        DjangoCaller(SimpleNamespace(in_atomic_block=False, alias="default", vendor="sqlite"))

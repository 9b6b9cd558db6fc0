"""Errors that a newcomer meets: what each one recommends is pasted, and works."""

import re
from datetime import date

import pytest
from sqlalchemy import make_url
from support.kit import ON_MYSQL, SQLITE, on, run
from support.servers.administrator import execute, opened, values

from allocator import Allocator, Numbers
from allocator.errors import DatabaseRefused, InvalidDatabase

CIPHER = "SHOW STATUS LIKE 'Ssl_cipher'"


@ON_MYSQL
def test_tls_by_an_argument_that_the_driver_takes(fresh):
    with pytest.raises(InvalidDatabase, match="has the argument ssl") as refused:
        Allocator(f"{fresh}?ssl=true")
    recommended = re.search(r"\?\w+=\w+", str(refused.value))[0]
    with Allocator(fresh + recommended) as ids:
        assert ids.next_id("order") == 1
    assert values(fresh + recommended, CIPHER)


@SQLITE
def test_a_limit_by_what_is_recommended(fresh):
    run(fresh, *["tags", "create", "few", "--limit", "2", "--step", "1"])
    run(fresh, "next", "few", "-n", "2")
    told = run(fresh, "next", "few").err
    mend, above = re.search(r"with: allocator (.*) N, for N above (\d+)", told).groups()
    run(fresh, *mend.split(), f"{int(above) + 1}")
    assert run(fresh, "next", "few").out == "3\n"


def test_numbers_that_a_restore_may_have_lost_are_told(fresh, caplog):
    """A standby that was promoted, or a backup, lacks them together with their rows: no audit finds them."""
    with opened(fresh) as engine, engine.begin() as connection:
        Numbers("bill", format="B{year}-{n}", reset="year").next(connection, "a", date(2026, 3, 9))
    with Allocator(fresh, failover_gap=1000) as ids:
        ids.reserve("order", 1)
    assert "numbers-after-move" not in run(fresh, "doctor").out
    told = run(fresh, "db", "mark-restored").out
    listed = re.search(r"allocator (numbers list)", told)[1].split()
    assert run(fresh, *listed, "--json").json[0]["newest"] == "1"
    with Allocator(fresh) as ids:
        ids.reserve("order", 1)
    assert "or a MariaDB in a new container without a fixed hostname" in caplog.text
    words = re.search(r"allocator (numbers set) NAME N", told)[1].split()
    assert "the database moved to another server, or was restored, and numbers" in run(fresh, "doctor").out
    assert "is 6\n" in run(fresh, *words, "bill", "5", "--scope", "a", "--period", "2026").out


@on("postgres", "mysql")
def test_a_user_without_rights_gets_them_by_what_the_doctor_prints(kind, fresh):
    """One right is missing at a time, and there are fourteen."""
    user, database = "newcomer", make_url(fresh).database
    login = {
        "postgres": ("CREATE ROLE newcomer LOGIN PASSWORD 'word'", f"GRANT CONNECT ON DATABASE {database} TO newcomer"),
        "mysql": ("CREATE USER newcomer IDENTIFIED BY 'word'", f"GRANT CREATE ON {database}.* TO newcomer"),
    }
    gone = {"postgres": ("DROP OWNED BY newcomer", "DROP ROLE newcomer"), "mysql": ("DROP USER newcomer",)}
    execute(fresh, *login[kind])
    url = make_url(fresh).set(username=user, password="word").render_as_string(hide_password=False)
    with Allocator(url) as ids, pytest.raises(DatabaseRefused, match="the user lacks a right") as refused:
        ids.next_id("order")
    command = str(refused.value).rpartition(": allocator ")[2]
    printed = run(url, *command.split(), "--json").out
    execute(fresh, *re.findall(r"GRANT [^;]*", printed.replace("\\n", "\n")))
    with Allocator(url) as ids:
        assert ids.next_id("order") == 1
    execute(fresh, *gone[kind])

"""Errors that a newcomer meets: what each one recommends is pasted, and works."""

import re
from datetime import date

import pytest
from sqlalchemy import make_url
from support.kit import ON_MYSQL, on, run
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


@ON_MYSQL
def test_a_schema_of_the_server_is_no_place_for_tables(fresh):
    refusal = "there is no such database, or the user has no right to it"
    url = make_url(fresh).set(database="information_schema")
    with Allocator(url, timeout=2) as ids, pytest.raises(DatabaseRefused, match=refusal):
        ids.next_id("order")


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


def test_urls_with_commas_between_them_are_a_list(tmp_path):
    urls = [f"sqlite:///{tmp_path}/{slot}.db?shard=7f3a91c2.{slot}" for slot in (1, 2)]
    with pytest.raises(InvalidDatabase, match="several URLs have commas between them") as refused:
        Allocator(",".join(urls))
    assert "Allocator(shards=[…, …])" in str(refused.value)
    Allocator(shards=urls).close()


def test_a_file_and_a_limit_and_a_count_by_what_is_recommended(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    url = re.search(r"sqlite:///\S+", run("sqlite://ids.db", "next", "order").err)[0]
    assert run(url, "next", "order", "--count", "2").out == "1\n2\n"
    assert run(url, "serve", url).err.endswith("a URL is given by --url: main serve --url URL\n")

    run(url, *["tags", "create", "few", "--limit", "2", "--step", "1"])
    run(url, "next", "few", "-n", "2")
    told = run(url, "next", "few").err
    mend, above = re.search(r"with: allocator (.*) N, for N above (\d+)", told).groups()
    run(url, *mend.split(), f"{int(above) + 1}")
    assert run(url, "next", "few").out == "3\n"


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

"""A row of allocator_shard is data: whoever writes it learns nobody's password."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from time import monotonic

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine, make_url
from support.faults.password_thief import Thief, thief
from support.servers.administrator import execute, values
from support.servers.available import KINDS
from support.servers.databases import with_schema

from allocator import Allocator
from allocator.cli import main
from allocator.database.address import address_of, of_url, place_of
from allocator.database.store import Database, sibling
from allocator.errors import InvalidDatabase, InvalidSetting


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Files have no passwords."""
    return str(request.param)


@pytest.fixture
def thieving(kind: str) -> Iterator[Thief]:
    with thief(kind) as made:
        yield made


def plant(url: str, place: str) -> None:
    """Let the row of a database that was used alone say that there is another shard."""
    with Allocator(url) as ids:
        ids.ticket("job")
    (members,) = values(url, "SELECT members FROM allocator_shard")
    ours = json.loads(str(members))
    theirs = {"key": "0" * 32, "offset": 2, "url": place, "epoch": 0}
    execute(url, f"UPDATE allocator_shard SET members = '{json.dumps([*ours, theirs])}', shard_step = 2")


def elsewhere(url: str, port: int) -> str:
    """The same machine, by a name that the URL of the tests' server does not have."""
    target = make_url(url)
    host = "localhost" if target.host == "127.0.0.1" else "127.0.0.1"
    return target.set(host=host, port=port, username=None, password=None).render_as_string()


def test_a_planted_row_takes_an_operator_nowhere(kind, empty, thieving):
    url = with_schema(empty)
    place = elsewhere(url, thieving.port)
    plant(url, place)
    for words in ("tags list", "shards list", "shards grow"):
        done = CliRunner().invoke(main, [*words.split(), "--url", url])

        assert (thieving.visits, thieving.heard) == (0, []), words
        assert done.exit_code == 1, words
        assert "a host that this process was not given, and gets no password; give that URL too" in done.stderr
        assert str(make_url(place).host) in done.stderr


def test_nor_an_application(kind, empty, thieving, caplog):
    url = with_schema(empty)
    plant(url, elsewhere(url, thieving.port))

    with Allocator(shards=[url]) as ids:
        assert ids.next_id("order") == 1
        with pytest.raises(InvalidDatabase, match="give that URL too"):
            ids.tags.list()

    assert (thieving.visits, thieving.heard) == (0, [])
    assert "a host that this process was not given" in caplog.text


def test_a_host_that_is_named_gets_no_password_in_clear(kind, empty, thieving):
    url = with_schema(empty)
    place = elsewhere(url, thieving.port)
    plant(url, place)

    hosts = {"ALLOCATOR_SHARD_HOSTS": str(make_url(place).host)}
    done = CliRunner().invoke(main, ["tags", "list", "--url", url], env=hosts)

    assert thieving.visits
    assert thieving.heard == []
    assert done.exit_code == 1


def test_control_a_url_that_is_given_gets_its_password(kind, empty, thieving):
    url = with_schema(empty)
    fake = make_url(elsewhere(url, thieving.port)).set(username="someone", password="open-sesame")
    with closing(Database(fake, 2.0)) as database, pytest.raises(Exception, match="."):
        database.check_schema()

    assert b"open-sesame\0" in thieving.heard


def test_a_fleet_on_several_hosts_is_found_from_one_url_where_they_are_named(kind, shards_on_two_hosts):
    one, two = shards_on_two_hosts
    host = str(make_url(two).host)
    with Allocator(shards=[one, two]) as ids:
        ids.ticket("job")
    with Allocator(one, shard_hosts=host.replace(host[-1], "?")) as ids:
        end, drawn = monotonic() + 20, set()
        while len(drawn) < 2 and monotonic() < end:
            drawn.add(ids.ticket("job") % 2)
        assert ids.tags.list() == []
    with Allocator(one) as ids, pytest.raises(InvalidDatabase, match=f"{host}.*a host that this process was not given"):
        ids.tags.list()
    done = CliRunner().invoke(main, ["shards", "list", "--url", one], env={"ALLOCATOR_SHARD_HOSTS": host})

    assert drawn == {0, 1}
    assert done.output.count("serving") == 2, done.output


@pytest.fixture
def shards_on_two_hosts(kind: str, new_database) -> tuple[str, str]:
    one, two = with_schema(new_database(kind)), with_schema(new_database(kind))
    host = "localhost" if make_url(two).host == "127.0.0.1" else "127.0.0.1"
    return one, make_url(two).set(host=host).render_as_string(hide_password=False)


HOST = "postgresql://u:p@db-1.internal/ids"
REACHED = (
    (HOST, "postgresql://db-1.internal:5433/other"),
    (HOST, "postgresql://DB-1.internal/ids"),
    (HOST, "postgresql://db-7.pool/ids"),
    (HOST, "postgresql://db-1.internal/ids?host=evil.example"),
    ("postgresql://u:p@/ids?host=a.internal:5433&host=b.internal", "postgresql://b.internal/ids"),
    ("postgresql://u:p@/ids?host=a.internal:5433", "postgresql:///ids"),
    ("sqlite:///one.db", "sqlite:////srv/two.db"),
)
NOT_REACHED = (
    (HOST, "postgresql://db-2.internal/ids"),
    (HOST, "postgresql://evil.example,db-7.pool/ids"),
    (HOST, "mysql+pymysql://evil.example/ids"),
    (HOST, "sqlite:////etc/shadow"),
    (HOST, "no url"),
    (HOST, "oracle://db-1.internal/ids"),
    ("postgresql://u:p@/ids?host=a.internal:5433", "postgresql://c.internal/ids"),
    ("sqlite:///one.db", "postgresql:///ids"),
)


def test_hosts():
    for given, named in REACHED:
        with closing(Database(given, shard_hosts=("*.pool",))) as known, closing(sibling([known], named)) as found:
            assert "evil.example" not in found.address.url.render_as_string(hide_password=False), named
            assert found.shard_hosts == ("*.pool",)
    for given, named in NOT_REACHED:
        with closing(Database(given, shard_hosts=("*.pool",))) as known, pytest.raises(InvalidDatabase):
            pytest.fail(f"{named} is reached: {sibling([known], named)}")


def test_a_row_says_where_a_shard_is_and_never_how_to_get_in():
    place = place_of("mysql+pymysql://thief:secret@db/ids?unix_socket=/tmp/thief.sock")

    assert place.render_as_string(hide_password=False) == "mysql://db/ids"


def test_a_shard_gets_the_password_of_the_url_that_names_its_host():
    one, two = "postgresql://u:first@one.internal/ids", "postgresql://u:second@two.internal/ids"
    with (
        closing(Database(one)) as first,
        closing(Database(two)) as second,
        closing(sibling([first, second], "postgresql://two.internal/more")) as found,
    ):
        assert found.address.url.password == "second"


def test_an_older_libpq_is_not_asked_for_what_it_does_not_know(monkeypatch):
    address = of_url("postgresql://u:p@db/ids")
    assert address.dialect.cautious_args(address.url) == {"require_auth": "scram-sha-256"}
    monkeypatch.setattr("allocator.database.postgresql.dialect.libpq_version", lambda: 150010)
    assert address.dialect.cautious_args(address.url) == {}


def test_what_is_no_host_is_refused():
    for given in ("db one", "", [""], 7, ["a", 7], "a,,b", "[a]"):
        with pytest.raises(InvalidSetting, match="shard_hosts must be host names"):
            Allocator("sqlite://", shard_hosts=given)  # type: ignore[arg-type]


def test_a_service_is_not_told_of_hosts():
    with pytest.raises(InvalidSetting, match="shard_hosts cannot be set for a service"):
        Allocator("https://ids.example", shard_hosts="db-*.internal")


def test_a_password_with_an_at_sign_is_not_printed():
    for scheme in ("postgresql+psycopg", "mysql+pymysql"):
        for rest in ("word@host/name", "wo/rd@host/name", "wo?rd@host/name", "word:1@host/name", "@host/name"):
            with pytest.raises(InvalidDatabase, match="%40") as refused:
                address_of(f"{scheme}://user:first@{rest}")

            said = str(refused.value).replace("password", "")
            assert (rest, [part for part in ("first", "word", "rd") if part in said]) == (rest, [])


def test_nor_by_an_engine():
    with pytest.raises(InvalidDatabase, match=r"user:… .* %40") as refused:
        address_of(create_engine("postgresql+psycopg://user:first@word@host/name"))

    assert "word@" not in str(refused.value)


def test_an_at_sign_elsewhere_is_no_password():
    for given in ("postgresql+psycopg://user:a%40b@host/name?application_name=me@here", "sqlite:///a@b.db"):
        assert address_of(given).shown

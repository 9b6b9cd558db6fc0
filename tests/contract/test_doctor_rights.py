"""The rights of docs/operating.md are enough, and no more; and what the doctor says of a user."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError
from support.applications.faces import PATIENT
from support.distinct import distinct
from support.documents.pages import SERVICE, TOKENS, granted
from support.faults.ill_databases import changed, named
from support.kit import ON_POSTGRES, run
from support.servers.administrator import administrator, execute
from support.servers.available import KINDS
from support.servers.databases import one_of_each, with_schema

from allocator import Allocator
from allocator.database.store import Database
from allocator.doctor import DANGER, OUTAGE, Finding, examine, is_healthy
from allocator.errors import AllocatorError, DatabaseRefused
from allocator.schemes.failover import FLOOR, TICKETS_SKIPPED

TABLES = ("segment", "shard", "node", "lease", "token", "schema_version")
PASSWORD = "Secret-1"


class User:
    """A user of one database, at first without any rights but to log in; `admin` is the URL of who made it."""

    def __init__(self, kind: str, admin: str, name: str) -> None:
        self.kind, self.admin, self.name = kind, admin, f"{name}_{os.getpid()}"
        self.told = self.name if kind == "postgres" else f"'{self.name}'@'%'"
        self.healthy: set[str] = set()
        """What is found while nothing is changed."""
        self.url = make_url(admin).set(username=self.name, password=PASSWORD).render_as_string(hide_password=False)

    @contextmanager
    def there(self) -> Iterator[User]:
        gone: str | tuple[str, str] = f"DROP USER {self.told}"
        made = f"CREATE USER {self.told} IDENTIFIED BY '{PASSWORD}'"
        if self.kind == "postgres":
            made, gone = f"CREATE ROLE {self.name} LOGIN PASSWORD '{PASSWORD}'", (f"DROP OWNED BY {self.told}", gone)
        with changed(self.admin, made, gone):
            yield self

    def allow(self, example: str) -> None:
        """Grant what the page grants to the user of its example."""
        execute(self.admin, *granted(self.kind, example, self.name, str(make_url(self.admin).database)))


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], User]]:
    """A user on each kind with the rights of the page, in a database of their own."""
    with ExitStack() as stack:

        def user(url: str) -> User:
            kind = url.partition("+")[0].replace("postgresql", "postgres")
            made = stack.enter_context(User(kind, with_schema(url), "service").there())
            made.allow(SERVICE)
            made.healthy = set(named(examine(made.url)))
            return made

        with one_of_each("rights", tmp_path_factory.mktemp("rights"), user) as get:
            yield get
            stack.close()


@pytest.fixture
def service(kind: str, services: Callable[[str], User]) -> User:
    return services(kind)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Files have no users."""
    return str(request.param)


def test_the_rights_of_the_page_are_enough_for_all_that_is_called(service):
    with Allocator(service.url) as ids:
        assert [ids.next_id("order"), *ids.next_ids("order", 3)] == [1, 2, 3, 4]
        assert len(ids.reserve("order", 10)) == 10
        tickets = [ids.ticket("job") for _ in range(3)]
        assert distinct(tickets)
        assert sorted(tickets) == tickets
        assert ids.meteor() > 0
        assert ids.snowflake() > 0
        with ids.worker("pods") as worker:
            assert worker.number == 0
        ids.tags.create("cart", step=10)
        ids.tags.set("cart", step=20, start_after=500)
        assert ids.next_id("cart") == 501
        assert [tag.name for tag in ids.tags.list()] == ["cart", "order"]


MOVED = "UPDATE allocator_shard SET server_run = 'elsewhere-1'"


def test_the_rights_of_the_page_are_enough_on_another_run_of_a_server(service):
    """Where a gap, nodes and tickets are skipped."""
    with Allocator(service.url) as ids:
        before = [ids.next_id("moved"), ids.meteor(), ids.ticket("job")]
    execute(service.admin, MOVED)
    with Allocator(service.url, timeout=PATIENT) as ids:
        after = [ids.next_id("moved"), ids.meteor(), ids.ticket("job")]
        ids.tags.create("waits", failover_gap="refuse", start_after=0)
        ids.tags.repair("waits", above=5000)
        assert ids.next_id("waits") == 5001
    execute(service.admin, "DELETE FROM allocator_segment WHERE tag = 'waits'")  # no other test finds it waiting

    assert after[0] > before[0] + FLOOR
    assert after[2] > before[2] + TICKETS_SKIPPED
    assert all(later > earlier for earlier, later in zip(before, after, strict=True))


def test_the_rights_of_the_page_delete_nothing_and_change_no_table(kind, service):
    """REPLACE cannot do without a DELETE on its own table."""
    tables = TABLES if kind != "postgres" else (*TABLES, "ticket")
    forbidden = [f"DELETE FROM allocator_{name}" for name in tables]
    forbidden += [f"{verb} TABLE allocator_segment" for verb in ("TRUNCATE", "DROP")]
    forbidden += ["UPDATE allocator_shard SET taken_under = move", "INSERT INTO allocator_shard (id) VALUES (1)"]
    forbidden += ["UPDATE allocator_node SET process = 1", "UPDATE allocator_token SET revoked_at = NULL"]
    for statement in forbidden:
        with pytest.raises(DBAPIError, match=r"(?i)denied|must be owner"):
            execute(service.url, statement)


def test_tokens_are_made_by_another_user_than_the_service(kind, service):
    create = ("create", "billing", "--tags", "order")
    assert run(service.url, "tokens", *create).code == 1
    with User(kind, service.admin, "clerk").there() as clerk:
        clerk.allow(TOKENS)
        for words in (create, ["list"], ["revoke", "1"]):
            done = run(clerk.url, "tokens", *words)
            assert done.code == 0, done
        with Allocator(clerk.url) as ids, pytest.raises(AllocatorError, match=r"(?i)denied"):
            ids.next_id("order")


def test_a_user_with_the_least_rights_is_healthy_and_what_it_may_not_see_is_said(kind, service):
    found = examine(service.url)

    assert is_healthy(found), found
    assert {one.name for one in found} <= {"not-looked-at"}
    if kind != "postgres":
        assert any(one.found.startswith("cannot check whether this server follows another: ") for one in found)


LOST = {
    "postgres": ["USAGE ON SEQUENCE allocator_node_id_seq"],
    "mysql": ["DELETE ON allocator_ticket"],
    "mariadb": ["DELETE ON allocator_ticket"],
}
"""Rights that only these need."""


def test_without_one_right_all_grants_of_the_page_are_printed_and_give_it(kind, service):
    page = {one for one in pairs(granted(kind, SERVICE, service.name)) if one[1] != "allocator_schema_version"}
    for words in ("UPDATE ON allocator_lease", "INSERT ON allocator_node", "SELECT ON allocator_token", *LOST[kind]):
        with changed(service.admin, f"REVOKE {words} FROM {service.told}", f"GRANT {words} TO {service.told}"):
            found = named(examine(service.url))["right-missing"]
            execute(service.admin, *found.mend.rstrip(";").split("; "))
            mended = set(named(examine(service.url)))

        assert (found.severity, f"lacks the right {words.split(' ')[0]} on " in found.found) == (OUTAGE, True), words
        assert mended == service.healthy, words
        if not words.startswith("USAGE"):
            assert pairs(found.mend.split(";")) == page - {("USAGE", "SCHEMA public")}

    assert "right-missing" not in service.healthy


def pairs(grants: list[str]) -> set[tuple[str, str]]:
    """Each right and its place."""
    found = [re.match("GRANT (.*) ON (.*) TO ", one.strip()) for one in grants]
    between = r", (?![^(]*\))"
    return {(verb, place) for one in found if one for verb in re.split(between, one[1]) for place in one[2].split(", ")}


@ON_POSTGRES
def test_a_schema_that_a_user_may_not_use_is_not_said_to_lack_the_tables(service):
    taken = (f"REVOKE USAGE ON SCHEMA public FROM PUBLIC, {service.name}", "GRANT USAGE ON SCHEMA public TO PUBLIC")
    with changed(service.admin, *taken):
        with (
            Allocator(service.url) as ids,
            pytest.raises(DatabaseRefused, match="may use no schema of its"),
        ):
            ids.next_id("case")
        (found,) = examine(service.url)

    assert (found.name, found.severity, "GRANT USAGE" in found.mend) == ("refused", OUTAGE, True)


def test_a_single_database_without_a_row_says_who_writes_it(service):
    lost = "DELETE FROM allocator_shard"
    with Allocator(service.admin) as ids:
        ids.ticket("case")
    database = Database(service.admin)
    used = [f"DELETE FROM allocator_{name}" for name in ("ticket", "segment", "node", "lease")]
    with (
        changed(service.admin, (lost, *used), lost),
        Allocator(service.url) as ids,
        pytest.raises(AllocatorError, match="may not write allocator_shard.*upgrade"),
    ):
        ids.ticket("case")
    database.upgrade_schema()
    database.close()


STRANGERS = "others-may-write"


@ON_POSTGRES
def test_a_public_role_that_gets_rights_on_new_tables_is_found_and_closed_by_what_is_printed(empty):
    """As Supabase's `anon`, whose key everybody has."""
    anon = f"anon_{os.getpid()}"
    drop = (f"DROP OWNED BY {anon}", f"DROP ROLE {anon}")
    inherits = f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO {anon}"
    back, steal = f"SET ROLE {anon}", "UPDATE allocator_segment SET max_value = 0"
    with changed(empty, (f"CREATE ROLE {anon}", f"GRANT USAGE ON SCHEMA public TO {anon}", inherits), drop):
        with_schema(empty)
        with Allocator(empty) as ids:
            first = ids.reserve("order", 5)[0]
        with administrator(empty) as connection:
            for statement in (back, steal):
                connection.exec_driver_sql(statement)
        with Allocator(empty) as ids:
            assert ids.reserve("order", 5)[0] == first  # what the rights are a danger of
        execute(empty, "GRANT INSERT ON allocator_token TO PUBLIC")
        found = named(examine(empty))[STRANGERS]
        execute(empty, *printed(found))
        healed = named(examine(empty))
        with administrator(empty) as connection, pytest.raises(DBAPIError, match="denied"):
            for statement in (back, steal):
                connection.exec_driver_sql(statement)

    assert found.severity == DANGER
    assert f"{anon} may write allocator_lease" in found.found
    assert "PUBLIC may write allocator_token" in found.found
    assert STRANGERS not in healed


OPEN = [
    ("GRANT INSERT ON allocator_token TO PUBLIC", "PUBLIC may write allocator_token"),
    ("GRANT UPDATE (max_value) ON allocator_segment TO {other}", "{other} may write allocator_segment"),
    ("GRANT DELETE ON allocator_lease TO {other}", "{other} may write allocator_lease"),
    ("GRANT UPDATE ON allocator_node_id_seq TO {other}", "{other} may write allocator_node_id_seq"),
    ("GRANT INSERT ON allocator_node TO {other} WITH GRANT OPTION", "{other} may write allocator_node"),
]
CLOSED = [
    ("GRANT SELECT ON allocator_segment TO PUBLIC",),
    ("GRANT INSERT, UPDATE (revoked_at) ON allocator_token TO {other}",),
    ("GRANT INSERT, UPDATE ON allocator_number, allocator_number_void TO {other}",),
    ("GRANT {other} TO {service}", "GRANT UPDATE ON allocator_segment TO {other}"),
    ("GRANT UPDATE ON allocator_schema_version TO {other}",),
]


@ON_POSTGRES
def test_who_else_may_write_what_ids_come_from(service):
    """Looked at by the user that draws."""
    for statements, expected in (*(([one], words) for one, words in OPEN), *((one, "") for one in CLOSED)):
        with User("postgres", service.admin, "other").there() as other:
            names = {"other": other.told, "service": service.told}
            execute(service.admin, *(one.format_map(names) for one in statements))
            found = named(examine(service.url)).get(STRANGERS)
            assert (found.found if found else "").partition(":")[0] == expected.format_map(names), statements
            execute(service.admin, *(printed(found) if found else ()))
            assert STRANGERS not in named(examine(service.url)), statements


def printed(found: Finding) -> list[str]:
    """The statements that close it."""
    return re.findall("REVOKE .*?(?=;)", found.mend)


@ON_POSTGRES
def test_row_security_without_a_policy_keeps_others_out(service):
    table, drop = "allocator_segment", "DROP POLICY IF EXISTS theirs ON allocator_segment"
    with User("postgres", service.admin, "other").there() as other:
        execute(service.admin, f"GRANT UPDATE ON {table} TO {other.told}")
        secured = tuple(f"ALTER TABLE {table} {word} ROW LEVEL SECURITY" for word in ("ENABLE", "DISABLE"))
        with changed(service.admin, secured[0], (drop, secured[1])):
            for policy, is_open in (("UPDATE TO PUBLIC", True), ("SELECT TO PUBLIC", False)):
                execute(service.admin, f"CREATE POLICY theirs ON {table} FOR {policy} USING (true)")
                assert (STRANGERS in named(examine(service.url))) == is_open, policy
                execute(service.admin, drop)
            assert STRANGERS not in named(examine(service.url))
            execute(service.admin, f"ALTER ROLE {other.told} BYPASSRLS")
            assert STRANGERS in named(examine(service.url))

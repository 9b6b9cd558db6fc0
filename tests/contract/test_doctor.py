"""What `allocator doctor` finds on real databases: each thing is made, seen, and was not there before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import create_engine
from support.faults.ill_databases import Patient, changed, named
from support.servers.administrator import execute, values
from support.servers.available import KINDS, server
from support.servers.databases import one_of_each
from support.servers.throwaway import free_port

from allocator import Allocator, AsyncAllocator, MeteorSettings
from allocator.database.doctor_queries.questions import ANOTHER, Question, answers
from allocator.database.schema.tables import REVISIONS
from allocator.database.store import Database
from allocator.doctor import DANGER, NOTE, OUTAGE, Finding, Severity, examine
from allocator.errors import InvalidDatabase, InvalidSetting
from allocator.schemes.formats.bit_layout import Layout
from allocator.testing import MemoryAllocator


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Patient]]:
    """One database of each kind for all these tests, each of which leaves it as it was."""
    with one_of_each("doctor", tmp_path_factory.mktemp("doctor"), Patient) as get:
        yield get


@pytest.fixture
def patient(kind: str, patients: Callable[[str], Patient]) -> Patient:
    return patients(kind)


ON_SERVERS = pytest.mark.parametrize("kind", KINDS, indirect=True)
ON_MYSQL = pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
ON_POSTGRES = pytest.mark.parametrize("kind", ["postgres"], indirect=True)
ON_SQLITE = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


# -- nothing is wrong


def test_a_plain_database_has_no_danger_and_no_outage(patient):
    assert examine(patient.url) == []


def test_looking_changes_nothing(kind, patient):
    with Allocator(patient.url) as ids:
        ids.tags.create("untouched", start_after=7)
        before = content(patient.url)
        examine(ids)

    assert content(patient.url) == before
    execute(patient.url, "DELETE FROM allocator_segment")


def content(url: str) -> list[object]:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = [
            connection.exec_driver_sql(f"SELECT * FROM allocator_{name}").all()
            for name in ("segment", "ticket", "shard", "node", "worker", "failover", "schema_version")
        ]
    engine.dispose()
    return found


# -- what the rows say


TAG = "INSERT INTO allocator_segment (tag, max_value, step, max_step, id_limit, failover_gap, server_run) VALUES"
ROWS = (
    f"{TAG} ('ends', 95, 1, 10, 100, 1000000000, ''), ('astray', 5, 1, 10, 9000000000000000000, 10, '')",
    "UPDATE allocator_segment SET shard_offset = 2, shard_step = 3 WHERE tag = 'astray'",
    f"{TAG} ('bare', 5, 1, 10, 9000000000000000000, 0, ''), ('waiting', 5, 1, 10, 100000, -1, 'elsewhere')",
    "INSERT INTO allocator_worker VALUES (1, '1/41/5/5/12', 1288834974657, 'a', 1, 'host', 1)",
    "INSERT INTO allocator_worker VALUES (2, '1/40/5/6/12', 5, 'b', 1, 'host', 1)",
)
NODE = {"postgres": "INSERT INTO allocator_node OVERRIDING SYSTEM VALUE VALUES (900000, 'host', 1, '1', now())"}
PLAIN_NODE = "INSERT INTO allocator_node VALUES (900000, 'host', 1, '1', '2026-11-01')"
EMPTY = tuple(f"DELETE FROM allocator_{name}" for name in ("segment", "worker", "node"))


OF_ROWS = {
    "tag-near-limit": (OUTAGE, "'ends' has 5 of 100 ids left"),
    "tag-of-another-lane": (DANGER, "'astray' has offset 2 and step 3, but this database is no shard"),
    "failover-gap-zero": (NOTE, "bare skip no ids after a failover"),
    "failover-gap-near-limit": (OUTAGE, "'ends' has 5 ids left"),
    "server-replaced": (OUTAGE, "waiting issue no ids: the database server changed"),
    "nodes-run-out": (OUTAGE, "900000 of 1048575 node numbers"),
    "worker-formats-differ": (OUTAGE, "layout 1/40/5/6/12, epoch 5, layout 1/41/5/5/12"),
}


def wrong(found: dict[str, Finding], expected: dict[str, tuple[Severity, str]]) -> dict[str, Finding | None]:
    """What is not found with its severity and its words, by name."""
    return {
        name: found.get(name)
        for name, (severity, words) in expected.items()
        if name not in found or found[name].severity is not severity or words not in found[name].found
    }


@pytest.mark.statements
def test_rows_that_will_stop_ids_or_repeat_them(kind, patient):
    with changed(patient.url, (*ROWS, NODE.get(kind, PLAIN_NODE)), EMPTY):
        found = patient.found()

    assert OF_ROWS.keys() & patient.healthy == set()
    assert wrong(found, OF_ROWS) == {}
    assert all(found[name].mend for name in OF_ROWS)


@ON_SQLITE
def test_workers_that_run_out_and_timestamps_that_end(patient):
    until = int((time.time() + 600) * 1000)
    soon = int((time.time() + 86_400) * 1000) - 2**41
    rows = ", ".join(f"({number}, '1/41/5/5/12', {soon}, 'a', {until}, 'host', 1)" for number in range(820))
    with changed(patient.url, f"INSERT INTO allocator_worker VALUES {rows}", "DELETE FROM allocator_worker"):
        found = patient.found()

    assert "820 of 1024 workers" in found["workers-run-out"].found
    assert f"ends on {time.strftime('%Y', time.gmtime(time.time() + 86_400))}" in found["snowflake-runs-out"].found
    assert not {"workers-run-out", "snowflake-runs-out"} & patient.healthy


@ON_SQLITE
def test_the_formats_of_an_allocator_are_looked_at(patient):
    short = MeteorSettings(
        epoch=int(time.time()) - 1000, layout=Layout(sign=1, second=25, node=24, sequence=11, random=3)
    )
    with Allocator(patient.url, meteor=short) as ids:
        found = named(examine(ids))

    assert found["meteor-runs-out"].severity == OUTAGE
    assert "meteor-runs-out" not in patient.healthy


@ON_SERVERS
def test_a_clock_that_differs_from_the_databases(patient):
    said = {10: (NOTE, "10 s ahead of"), -10: (NOTE, "10 s behind"), 3600: (OUTAGE, "3600 s ahead of")}
    found = {by: patient.found(clock=lambda by=by: time.time() + by)["clocks-differ"] for by in said}

    assert {by: one.severity for by, one in found.items()} == {by: severity for by, (severity, _) in said.items()}
    assert [one.found for by, one in found.items() if f"is {said[by][1]} the database's" not in one.found] == []
    assert "clocks-differ" not in patient.healthy


def test_tables_that_are_ahead_or_missing(kind, patient, new_database):
    ahead = patient.shows(
        "schema-out-of-date",
        "UPDATE allocator_schema_version SET version_num = '9999'",
        f"UPDATE allocator_schema_version SET version_num = '{REVISIONS[-1]}'",
    )
    assert "is at revision 9999" in ahead.found
    if kind != "sqlite":
        none = named(examine(new_database(kind)))["schema-out-of-date"]
        assert none.severity == OUTAGE
        assert none.mend == "run: allocator db upgrade"


def test_a_database_that_does_not_answer_is_an_outage():
    found = examine([f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/ids"])

    assert [(one.name, one.severity) for one in found] == [("unreachable", OUTAGE)]


# -- the tables


COLUMN = {
    "postgres": (
        "ALTER TABLE allocator_segment ALTER max_value TYPE integer",
        "ALTER TABLE allocator_segment ALTER max_value TYPE bigint",
    ),
    "mysql": (
        "ALTER TABLE allocator_segment MODIFY max_value INT NOT NULL",
        "ALTER TABLE allocator_segment MODIFY max_value BIGINT NOT NULL",
    ),
}
KEY = {
    "postgres": (
        "ALTER TABLE allocator_ticket DROP CONSTRAINT allocator_ticket_type_key",
        "ALTER TABLE allocator_ticket ADD UNIQUE (type)",
    ),
    "mysql": ("ALTER TABLE allocator_ticket DROP INDEX type", "ALTER TABLE allocator_ticket ADD UNIQUE (type)"),
}
TRIGGER = {
    "postgres": (
        "CREATE RULE twice AS ON UPDATE TO allocator_segment DO ALSO NOTIFY twice",
        "DROP RULE twice ON allocator_segment",
    ),
    "mysql": (
        "CREATE TRIGGER twice BEFORE UPDATE ON allocator_segment FOR EACH ROW SET NEW.step = 5",
        "DROP TRIGGER twice",
    ),
    "sqlite": ("CREATE TRIGGER twice AFTER UPDATE ON allocator_segment BEGIN SELECT 1; END", "DROP TRIGGER twice"),
}
CHECK = {
    "postgres": (
        "ALTER TABLE allocator_segment DROP CONSTRAINT allocator_segment_step",
        "ALTER TABLE allocator_segment ADD CONSTRAINT allocator_segment_step CHECK (step >= 1 AND step <= max_step)",
    ),
}
CHECK["mysql"] = CHECK["postgres"]
ICU = "CREATE COLLATION IF NOT EXISTS loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
RETYPED = "ALTER TABLE allocator_segment MODIFY tag VARCHAR(64)"
COLLATION = {
    "postgres": (
        (ICU, "ALTER TABLE allocator_segment ALTER tag TYPE varchar(64) COLLATE loose"),
        ('ALTER TABLE allocator_segment ALTER tag TYPE varchar(64) COLLATE "C"', "DROP COLLATION loose"),
    ),
    "mysql": (
        f"{RETYPED} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL",
        f"{RETYPED} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL",
    ),
}
UNNUMBERED = {
    "postgres": (
        "ALTER TABLE allocator_node ALTER id DROP IDENTITY",
        "ALTER TABLE allocator_node ALTER id ADD GENERATED ALWAYS AS IDENTITY",
    ),
    "mysql": (
        "ALTER TABLE allocator_node MODIFY id BIGINT NOT NULL",
        "ALTER TABLE allocator_node MODIFY id BIGINT NOT NULL AUTO_INCREMENT",
    ),
}


def has_icu(url: str) -> bool:
    """PostgreSQL may be built without: then all its collations tell any two texts apart."""
    return values(url, "SELECT count(*) FROM pg_collation WHERE collname = 'und-x-icu'") != [0]


def of(table: dict, kind: str) -> tuple:
    return table["mysql" if kind == "mariadb" else kind]


ALTERED = {
    "column-type": (DANGER, "allocator_segment.max_value is INT", COLUMN),
    "key-missing": (DANGER, "allocator_ticket must have a unique key on (type)", KEY),
    "trigger": (DANGER, "twice on allocator_segment", TRIGGER),
    "check-missing": (NOTE, "allocator_segment lacks the check allocator_segment_step", CHECK),
    "tag-collation": (DANGER, "allocator_segment.tag has ", COLLATION),
    "numbering-lost": (OUTAGE, "the column id of allocator_node", UNNUMBERED),
}


@pytest.mark.statements
@ON_SERVERS
def test_tables_that_were_altered(kind, patient):
    possible = set(ALTERED) - ({"tag-collation"} if kind == "postgres" and not has_icu(patient.url) else set())
    found = {name: patient.shows(name, *of(ALTERED[name][2], kind)) for name in possible}

    assert wrong(found, {name: ALTERED[name][:2] for name in possible}) == {}


@pytest.mark.statements
@ON_SERVERS
def test_tables_that_lost_their_numbering_are_mended_by_what_is_said(kind, patient):
    lose, _ = of(UNNUMBERED, kind)
    for name in ("allocator_node", "allocator_ticket"):
        execute(patient.url, lose.replace("allocator_node", name))
    for statement in patient.found()["numbering-lost"].mend.split("; ")[:2]:
        execute(patient.url, statement)

    assert "numbering-lost" not in patient.found()


@ON_MYSQL
def test_an_engine_without_transactions(patient):
    found = patient.shows(
        "engine-without-transactions",
        "ALTER TABLE allocator_worker ENGINE = MyISAM",
        "ALTER TABLE allocator_worker ENGINE = InnoDB",
    )

    assert found.severity == DANGER
    assert found.mend == "ALTER TABLE allocator_worker ENGINE = InnoDB"


OF_POSTGRES = {
    "numbering-cycles": (
        DANGER,
        "allocator_ticket_id_seq has CYCLE",
        "ALTER TABLE allocator_ticket ALTER id SET CYCLE",
        "ALTER TABLE allocator_ticket ALTER id SET NO CYCLE",
    ),
    "numbering-cached": (
        OUTAGE,
        "allocator_ticket_id_seq has CACHE 50",
        "ALTER TABLE allocator_ticket ALTER id SET CACHE 50",
        "ALTER TABLE allocator_ticket ALTER id SET CACHE 1",
    ),
    "numbering-behind": (
        DANGER,
        "the next number of allocator_ticket is 1, and 50 is in use",
        "INSERT INTO allocator_ticket VALUES (50, 'invoice')",
        "DELETE FROM allocator_ticket",
    ),
    "tables-twice": (
        DANGER,
        "allocator_lease in public, second; allocator_segment in public, second. ",
        (
            "CREATE SCHEMA second",
            "CREATE TABLE second.allocator_segment (LIKE allocator_segment)",
            "CREATE TABLE second.allocator_lease (LIKE allocator_lease)",
            "ALTER DATABASE {name} SET search_path = public, second",
        ),
        ("ALTER DATABASE {name} RESET search_path", "DROP SCHEMA second CASCADE"),
    ),
    "server-read-only": (
        OUTAGE,
        "transaction_read_only is on",
        "ALTER DATABASE {name} SET default_transaction_read_only = on",
        "ALTER DATABASE {name} RESET default_transaction_read_only",
    ),
}


@ON_POSTGRES
def test_postgresql(patient):
    database = patient.url.rpartition("/")[2]

    def filled(statements: str | tuple[str, ...]) -> tuple[str, ...]:
        several = (statements,) if isinstance(statements, str) else statements
        return tuple(one.format(name=database) for one in several)

    found = {}
    for name, (_, _, make, undo) in OF_POSTGRES.items():
        admin = server("postgres").url if "ALTER DATABASE" in make else None
        found[name] = patient.shows(name, filled(make), filled(undo), admin=admin)

    assert wrong(found, {name: row[:2] for name, row in OF_POSTGRES.items()}) == {}


@ON_POSTGRES
def test_what_a_crash_loses_is_one_finding_whose_statements_mend_it(patient):
    database = patient.url.rpartition("/")[2]
    make = ("ALTER TABLE allocator_segment SET UNLOGGED", f"ALTER DATABASE {database} SET synchronous_commit = off")
    role = f"ALTER ROLE CURRENT_USER IN DATABASE {database} RESET synchronous_commit"
    undo = (f"ALTER DATABASE {database} RESET synchronous_commit", role)
    with changed(server("postgres").url, (), undo):
        found = patient.shows("not-durable", make, ())
        execute(patient.url, *found.mend.split("; "))
        mended = patient.found()

    assert found.severity == DANGER
    assert "allocator_segment is unlogged" in found.found
    assert "synchronous_commit is off for " in found.found
    assert "restart" not in found.found
    assert set(mended) == patient.healthy


# -- what may be given


@ON_SQLITE
def test_an_allocator_of_either_face_an_engine_and_a_list_are_examined_alike(patient):
    async def through_asyncio() -> list[Finding]:
        async with AsyncAllocator(patient.url) as ids:
            return examine(ids)

    engine = create_engine(patient.url)
    with Allocator(patient.url) as ids:
        answers = [examine(one) for one in (patient.url, [patient.url], ids, engine)]
    engine.dispose()

    assert all(answer == answers[0] for answer in [*answers, asyncio.run(through_asyncio())])


def test_what_is_no_database_is_refused():
    with Allocator("http://127.0.0.1:1") as ids, pytest.raises(InvalidSetting, match="is a service"):
        examine(ids)
    with MemoryAllocator() as ids, pytest.raises(InvalidSetting, match="this allocator has no database, only memory"):
        examine(ids)
    with pytest.raises(InvalidDatabase):
        examine("not a url")


def test_an_answer_that_hangs_on_one_that_was_refused_does_not_blame_the_url(tmp_path):
    """As where a role may not read a setting: what follows from it is not known, and how to see it is said."""
    database = Database(f"sqlite:///{tmp_path}/ids.db")
    questions = [
        Question("the role", lambda connection, facts: {"role": "watcher"}),
        Question("the connections", lambda connection, facts: {"room": facts["max_connections"]}, "GRANT x TO {role}"),
        Question("the clock", lambda connection, facts: {"ahead": facts["now"]}, "GRANT x TO {account}"),
    ]
    connections, clock = answers(database, questions, {}, True)
    database.close()

    assert (connections.found, connections.mend) == (
        "cannot check the connections: max_connections could not be read",
        "GRANT x TO watcher",
    )
    assert clock.mend == ANOTHER

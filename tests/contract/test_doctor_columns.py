"""`allocator doctor --columns`: the integer keys of a host's own tables, on every database."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from sqlalchemy import make_url
from support.servers import key_traps
from support.servers.administrator import execute, values

from allocator.cli import main
from allocator.database.address import address_of
from allocator.database.columns.integer_keys import read_keys

INT, BIGINT = 2**31 - 1, 2**63 - 1
TABLES = 200


def columns(url: str, *args: str, code: int | None = None) -> list[dict[str, object]]:
    result = CliRunner().invoke(main, ["doctor", "--columns", "--json", "--url", url, *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    if code is not None:
        assert result.exit_code == code, result.output
    (found,) = json.loads(result.stdout)["databases"].values()
    return found


def seen(url: str) -> dict[str, tuple[int, int | None]]:
    """Limit and greatest value by column, without the schema."""
    return {one.name.split(".", 1)[1]: (one.limit, one.greatest) for one in read_keys(address_of(url))}


@pytest.mark.statements
def test_keys_are_listed_with_what_they_hold(rows):
    execute(
        rows,
        "CREATE TABLE few (id INTEGER PRIMARY KEY, n INTEGER)",
        "CREATE TABLE none_yet (id BIGINT PRIMARY KEY)",
        "CREATE TABLE texts (id VARCHAR(10) PRIMARY KEY, n INTEGER)",
        "CREATE TABLE pairs (tenant INTEGER, line INTEGER, PRIMARY KEY (tenant, line))",
        "CREATE TABLE keyless (id INTEGER)",
        "INSERT INTO few VALUES (7, 100), (41, 1000)",
        "INSERT INTO pairs VALUES (3, 1), (3, 900)",
    )
    int_limit = BIGINT if rows.startswith("sqlite") else INT

    assert seen(rows) == {"few.id": (int_limit, 41), "none_yet.id": (BIGINT, 0), "pairs.tenant": (int_limit, 3)}


@pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"], indirect=True)
def test_every_trap_in_a_schema_of_200_tables_is_found_none_is_invented_and_nothing_is_scanned(fresh, kind):
    key_traps.make(fresh, TABLES)
    _, read_of_empty = key_traps.rows_read(fresh, lambda: columns(fresh, code=1))
    key_traps.fill(fresh, TABLES, 20)
    listed, read = key_traps.rows_read(fresh, lambda: columns(fresh, code=1))
    found = {one["column"]: one for one in listed}

    wrong = {name: (one["limit"], one["greatest"]) for name, one in found.items() if one["needs_attention"]}
    assert wrong == key_traps.expected(fresh)
    assert len(found) >= TABLES
    assert read - read_of_empty <= TABLES
    if kind == "postgres":
        assert values(fresh, key_traps.SCANS) == [0]
    _, counted = key_traps.rows_read(fresh, lambda: values(fresh, "SELECT sum(tenant) FROM well_1"))
    assert counted >= 20, "the server counts them"
    by_sequence = {name for name, one in found.items() if one["by_sequence"]}
    narrow = {name: one["references"] for name, one in found.items() if one["references"]}
    if kind == "postgres":
        assert by_sequence == {"public.wide_key_of_a_narrow_sequence.id", "public.sequence_with_an_end.id"}
        assert narrow.pop("other.items.order_id") == "other.orders.id"
        assert narrow == {f"public.{name}.wide_id": "public.wide.id" for name in key_traps.NARROW_OF_POSTGRESQL}
    else:
        assert (by_sequence, narrow) == (set(), {})


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_mysql_has_widths_and_signs(fresh):
    kinds = {
        "TINYINT": 127,
        "SMALLINT UNSIGNED": 65535,
        "MEDIUMINT": 2**23 - 1,
        "INT": INT,
        "INT UNSIGNED": 2**32 - 1,
        "BIGINT": BIGINT,
        "BIGINT UNSIGNED": BIGINT,
    }
    statements = [
        f"CREATE TABLE t{n} (id {kind} AUTO_INCREMENT PRIMARY KEY, other INT, KEY (other))"
        for n, kind in enumerate(kinds)
    ]
    execute(fresh, *statements, "INSERT INTO t0 (id) VALUES (100)", "ALTER TABLE t3 AUTO_INCREMENT = 2000000000")
    found = seen(fresh)

    assert {name: limit for name, (limit, _) in found.items()} == {
        f"t{n}.id": one for n, one in enumerate(kinds.values())
    }
    assert found["t0.id"][1] == 100
    assert found["t3.id"][1] == 1_999_999_999
    assert found["t6.id"][1] == 0
    assert [one["column"].split(".")[1] for one in columns(fresh, code=1)][:2] == ["t3", "t0"]
    told = CliRunner().invoke(main, ["doctor", "--columns", "--url", fresh]).stdout
    assert "ending within 365 days, or behind: 1; what to do: docs/operating.md" in told


SERIAL = "CREATE TABLE {t} (id BIGSERIAL PRIMARY KEY, what TEXT)"
OWN = (
    "CREATE SEQUENCE {t}_s %s",
    "CREATE TABLE {t} (id BIGINT PRIMARY KEY DEFAULT nextval('{t}_s'), what TEXT)",
)
COUNTED = "CREATE TABLE {t} (id BIGINT AUTO_INCREMENT PRIMARY KEY, what TEXT)"
KEPT = "CREATE TABLE {t} (id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT)"
COUNTERS: dict[str, dict[str, tuple[list[str], int]]] = {
    # kind: {table: (statements, the first id after the mend; 0 if the counter is not behind)}
    "postgres": {
        "imported": ([SERIAL, "INSERT INTO {t} VALUES (100)"], 101),
        "restored": (
            [
                "CREATE TABLE {t} (id INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what TEXT)",
                "INSERT INTO {t} (what) VALUES ('tea'), ('oil')",
                "INSERT INTO {t} OVERRIDING SYSTEM VALUE VALUES (50)",
            ],
            51,
        ),
        "elsewhere": (
            [
                "CREATE SCHEMA other",
                'CREATE SEQUENCE other."It\'s"',
                "CREATE TABLE {t} (id BIGINT PRIMARY KEY DEFAULT nextval('other.\"It''s\"'), what TEXT)",
                "INSERT INTO {t} VALUES (9)",
            ],
            10,
        ),
        "of_odd_ids": ([OWN[0] % "INCREMENT 2", OWN[1], "INSERT INTO {t} VALUES (7), (12)"], 9),
        "within_its_range": ([OWN[0] % "MAXVALUE 1000", OWN[1], "INSERT INTO {t} VALUES (500), (5000)"], 501),
        "beside_even_ids": ([OWN[0] % "INCREMENT 2", OWN[1], "INSERT INTO {t} VALUES (2), (12)"], 0),
        "below_others": ([OWN[0] % "MINVALUE 901 MAXVALUE 1000", OWN[1], "INSERT INTO {t} VALUES (5000)"], 0),
        "restarted": ([SERIAL, "INSERT INTO {t} VALUES (100)", "ALTER SEQUENCE {t}_id_seq RESTART 101"], 0),
        "unused": ([SERIAL, "INSERT INTO {t} VALUES (100)", "ALTER TABLE {t} ALTER id DROP DEFAULT"], 0),
    },
    "mysql": {
        "read_long_ago": (
            [
                COUNTED,
                "INSERT INTO {t} (id) VALUES (1)",
                "SELECT auto_increment FROM information_schema.tables WHERE table_schema = DATABASE()",
                "INSERT INTO {t} (id) VALUES (100)",
            ],
            0,
        ),
    },
    "mariadb": {
        "followed": (
            [
                "CREATE TABLE parent (id BIGINT PRIMARY KEY)",
                COUNTED,
                "ALTER TABLE {t} ADD FOREIGN KEY (id) REFERENCES parent (id) ON UPDATE CASCADE",
                "INSERT INTO parent VALUES (1), (101)",
                "INSERT INTO {t} (id) VALUES (1)",
                "UPDATE parent SET id = 100 WHERE id = 1",
            ],
            101,
        ),
        "used": ([COUNTED, "INSERT INTO {t} (id) VALUES (100)"], 0),
    },
    "sqlite": {
        "changed": ([KEPT, "INSERT INTO {t} (id) VALUES (1)", "UPDATE {t} SET id = 100"], 101),
        "it's": ([KEPT, "INSERT INTO {t} (id) VALUES (100)", "DELETE FROM sqlite_sequence"], 101),
        "used": ([KEPT, "INSERT INTO {t} (id) VALUES (100)"], 0),
        "plain": (["CREATE TABLE {t} (id INTEGER PRIMARY KEY, what TEXT)", "INSERT INTO {t} (id) VALUES (100)"], 0),
    },
}


@pytest.mark.statements
def test_a_counter_behind_its_rows_is_found_and_mended(rows, kind):
    quoted = {one: f'"{one}"' if "'" in one else one for one in COUNTERS[kind]}
    execute(rows, *(line.format(t=quoted[one]) for one, (lines, _) in COUNTERS[kind].items() for line in lines))
    after = {one: first for one, (_, first) in COUNTERS[kind].items() if first}

    found = {str(one["column"]).split(".")[1]: one["mend"] for one in columns(rows, code=bool(after)) if one["mend"]}
    assert set(found) == set(after)
    told = CliRunner().invoke(main, ["doctor", "--columns", "--url", rows]).stdout
    assert all(f"fix:\n{mend};" in told for mend in found.values())
    execute(rows, *map(str, found.values()))
    columns(rows, code=0)
    for one, first in after.items():
        execute(rows, f"DELETE FROM {quoted[one]}", f"INSERT INTO {quoted[one]} (what) VALUES ('new')")
        assert values(rows, f"SELECT id FROM {quoted[one]}") == [first], one


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_one_schema_of_several(fresh):
    execute(
        fresh,
        "CREATE SCHEMA mine",
        "CREATE TABLE mine.a (id INT PRIMARY KEY)",
        "CREATE TABLE public.b (id INT PRIMARY KEY)",
        "INSERT INTO public.b VALUES (5)",
    )

    assert [one["column"] for one in columns(fresh, "--schema", "mine", code=0)] == ["mine.a.id"]
    odd = CliRunner().invoke(main, ["doctor", "--columns", "--schema", "mien", "--url", fresh])
    assert odd.exit_code == 1
    assert "no table of a schema 'mien' has an integer key in" in odd.stderr


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_what_this_user_may_not_read_is_no_good_news(fresh):
    reader = "reader_of_columns"
    execute(
        fresh,
        "CREATE TABLE hidden (id INT PRIMARY KEY)",
        "CREATE TABLE counted (id BIGSERIAL PRIMARY KEY)",
        f"DO $$ BEGIN CREATE ROLE {reader} LOGIN PASSWORD 'x'; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    )
    url = make_url(fresh).set(username=reader, password="x").render_as_string(hide_password=False)

    execute(fresh, f"GRANT SELECT ON counted TO {reader}")
    found = next(one for one in columns(url, code=1) if one["column"] == "public.hidden.id")
    assert (found["column"], found["greatest"], found["needs_attention"]) == ("public.hidden.id", None, True)
    told = CliRunner().invoke(main, ["doctor", "--columns", "--url", url]).stdout
    assert "not read, since this user lacks SELECT: 1" in told
    assert "sequences not read, since this user lacks SELECT: 1" in told


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_the_rate_comes_from_an_earlier_look_or_a_date(rows, tmp_path):
    execute(rows, "CREATE TABLE orders (id INTEGER PRIMARY KEY)", "INSERT INTO orders VALUES (1000)")
    result = CliRunner().invoke(main, ["doctor", "--columns", "--json", "--url", rows])
    told = json.loads(result.stdout)
    told["at"] = "2026-01-01T00:00:00+00:00"
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps(told))
    execute(rows, "INSERT INTO orders VALUES (3000)")

    for since in (str(earlier), "2026-01-01"):
        (found,) = columns(rows, "--since", since, code=0)
        assert found["per_day"] > 0
    text = CliRunner().invoke(main, ["doctor", "--columns", "--since", "2026-01-01", "--url", rows]).stdout
    assert "orders.id" in text
    assert "3000" in text


ODD_SINCE = {
    "yesterday": "--since must be a date, as in 2024-01-31, or a file; there is no file 'yesterday'",
    "9999-01-01": "--since must be a date in the past, got 9999-01-01",
    "odd.json": "does not hold the output of: allocator doctor --url sqlite+pysqlite:///rows.db --columns --json",
}


def test_an_odd_since_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.json").write_text('{"at": 5}')
    execute("sqlite:///rows.db", "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    for since, words in ODD_SINCE.items():
        result = CliRunner().invoke(main, ["doctor", "--columns", "--since", since, "--url", "sqlite:///rows.db"])
        assert result.exit_code == 1, since
        assert words in result.stderr


def test_since_without_columns_is_refused():
    result = CliRunner().invoke(main, ["doctor", "--since", "2026-01-01", "--url", "sqlite://"])

    assert result.exit_code == 2
    assert "--schema and --since are for --columns" in result.stderr

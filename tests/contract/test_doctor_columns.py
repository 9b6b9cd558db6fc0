"""`allocator doctor --columns`: the integer keys of a host's own tables, on every database."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from sqlalchemy import make_url
from support.servers.administrator import execute, values

from allocator.cli import main
from allocator.database.address import address_of
from allocator.database.questions.integer_keys import read_keys

INT, SMALLINT = 2**31 - 1, 2**15 - 1
BIGINT = 2**63 - 1


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


TRAPS_OF_POSTGRESQL = {
    # name: (statements, limit, greatest)
    "int_nearly_full": (
        ["CREATE TABLE {t} (id INT PRIMARY KEY)", "INSERT INTO {t} VALUES (2000000000)"],
        INT,
        2 * 10**9,
    ),
    "small_key": (["CREATE TABLE {t} (id SMALLINT PRIMARY KEY)", "INSERT INTO {t} VALUES (32000)"], SMALLINT, 32000),
    "serial_key": (
        ["CREATE TABLE {t} (id SERIAL PRIMARY KEY)", "SELECT setval('{t}_id_seq', 2000000001)"],
        INT,
        2_000_000_001,
    ),
    "identity_key": (
        [
            "CREATE TABLE {t} (id INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY)",
            "SELECT setval('{t}_id_seq', 2000000002)",
        ],
        INT,
        2_000_000_002,
    ),
    "wide_key_of_a_narrow_sequence": (
        [
            "CREATE TABLE {t} (id SERIAL PRIMARY KEY)",
            "ALTER TABLE {t} ALTER id TYPE BIGINT",
            "SELECT setval('{t}_id_seq', 2000000003)",
        ],
        INT,
        2_000_000_003,
    ),
    "sequence_with_an_end": (
        [
            "CREATE SEQUENCE {t}_own MAXVALUE 1000",
            "CREATE TABLE {t} (id BIGINT PRIMARY KEY DEFAULT nextval('{t}_own'))",
            "SELECT setval('{t}_own', 900)",
        ],
        1000,
        900,
    ),
    "rows_were_deleted": (
        [
            "CREATE TABLE {t} (id SERIAL PRIMARY KEY)",
            "SELECT setval('{t}_id_seq', 1900000000)",
            "INSERT INTO {t} VALUES (1)",
        ],
        INT,
        1_900_000_000,
    ),
    "domain_key": (
        [
            "CREATE DOMAIN {t}_d AS INT",
            "CREATE TABLE {t} (id {t}_d PRIMARY KEY)",
            "INSERT INTO {t} VALUES (1800000000)",
        ],
        INT,
        1_800_000_000,
    ),
    "domain_of_a_domain": (
        [
            "CREATE DOMAIN {t}_d AS SMALLINT",
            "CREATE DOMAIN {t}_e AS {t}_d",
            "CREATE TABLE {t} (id {t}_e PRIMARY KEY)",
            "INSERT INTO {t} VALUES (32001)",
        ],
        SMALLINT,
        32001,
    ),
    "partitioned": (
        [
            "CREATE TABLE {t} (id INT PRIMARY KEY) PARTITION BY RANGE (id)",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (1) TO (1000)",
            "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (1000) TO (2147483647)",
            "INSERT INTO {t} VALUES (5), (1850000000)",
        ],
        INT,
        1_850_000_000,
    ),
    "Mixed Case": (
        ['CREATE TABLE "{t}" (id INT PRIMARY KEY)', 'INSERT INTO "{t}" VALUES (1950000000)'],
        INT,
        195 * 10**7,
    ),
    "unlogged": (
        ["CREATE UNLOGGED TABLE {t} (id INT PRIMARY KEY)", "INSERT INTO {t} VALUES (1750000001)"],
        INT,
        1750000001,
    ),
    "composite": (
        ["CREATE TABLE {t} (id INT, line INT, PRIMARY KEY (id, line))", "INSERT INTO {t} VALUES (1750000002, 1)"],
        INT,
        1_750_000_002,
    ),
    "deferred": (
        ["CREATE TABLE {t} (id INT PRIMARY KEY DEFERRABLE)", "INSERT INTO {t} VALUES (1750000003)"],
        INT,
        1_750_000_003,
    ),
    "inherited": (
        ["CREATE TABLE {t} (id INT PRIMARY KEY)", "INSERT INTO {t} VALUES (1750000004)"],
        INT,
        1_750_000_004,
    ),
}
NARROW_OF_POSTGRESQL = {
    "narrow_int": "INT",
    "narrow_small": "SMALLINT",
    "narrow_twice": "INT",
}


def traps(url: str, tables: int) -> None:
    """A schema of so many tables; most of them are well."""
    statements = [line.format(t=name) for name, (lines, _, _) in TRAPS_OF_POSTGRESQL.items() for line in lines]
    statements += ["CREATE TABLE wide (id BIGSERIAL PRIMARY KEY)", "INSERT INTO wide VALUES (30000)"]
    for name, kind in NARROW_OF_POSTGRESQL.items():
        statements.append(f"CREATE TABLE {name} (id BIGSERIAL PRIMARY KEY, wide_id {kind} REFERENCES wide (id))")
    statements += [
        "CREATE SCHEMA other",
        "CREATE TABLE other.orders (id INT PRIMARY KEY)",
        "INSERT INTO other.orders VALUES (1750000005)",
        "CREATE TABLE other.items (id BIGINT PRIMARY KEY, order_id SMALLINT REFERENCES other.orders (id))",
    ]
    well = tables - len(TRAPS_OF_POSTGRESQL) - len(NARROW_OF_POSTGRESQL) - 3
    statements += [f"CREATE TABLE well_{n} (id BIGSERIAL PRIMARY KEY, tenant INT NOT NULL)" for n in range(well)]
    statements += [f"INSERT INTO well_{n} (tenant) SELECT g FROM generate_series(1, 20) g" for n in range(well)]
    execute(url, *statements, "SELECT pg_stat_force_next_flush()")  # else it may come after a reset


def scans_of(url: str) -> int:
    """How many scans of whole tables the server has counted."""
    (scans,) = values(
        url, "SELECT COALESCE(sum(seq_scan), 0) FROM pg_stat_user_tables WHERE relname NOT LIKE 'allocator%'"
    )
    return int(scans)


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_every_trap_in_a_schema_of_200_tables_is_found_none_is_invented_and_nothing_is_scanned(fresh):
    traps(fresh, 200)
    execute(fresh, "SELECT pg_stat_reset()")
    found = {one["column"]: one for one in columns(fresh, code=1)}

    wrong = {name: one for name, one in found.items() if one["needs_attention"]}
    expected = {
        f"public.{name}.id": (str(limit), str(greatest)) for name, (_, limit, greatest) in TRAPS_OF_POSTGRESQL.items()
    }
    expected["other.orders.id"] = (str(INT), "1750000005")
    expected["other.items.order_id"] = (str(SMALLINT), "1750000005")
    expected["public.narrow_small.wide_id"] = (str(SMALLINT), "30000")
    assert {name: (one["limit"], one["greatest"]) for name, one in wrong.items()} == expected
    by_sequence = {name for name, one in found.items() if one["by_sequence"]}
    assert by_sequence == {"public.wide_key_of_a_narrow_sequence.id", "public.sequence_with_an_end.id"}
    narrow = {name: one["references"] for name, one in found.items() if one["references"]}
    assert narrow == {
        "other.items.order_id": "other.orders.id",
        **{f"public.{name}.wide_id": "public.wide.id" for name in NARROW_OF_POSTGRESQL},
    }
    assert scans_of(fresh) == 0
    execute(fresh, "SELECT count(*) FROM wide", "SELECT pg_stat_force_next_flush()")
    assert scans_of(fresh) > 0, "the server counts them"


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
        f"DO $$ BEGIN CREATE ROLE {reader} LOGIN PASSWORD 'x'; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    )
    url = make_url(fresh).set(username=reader, password="x").render_as_string(hide_password=False)

    (found,) = columns(url, code=1)
    assert (found["column"], found["greatest"], found["needs_attention"]) == ("public.hidden.id", None, True)
    told = CliRunner().invoke(main, ["doctor", "--columns", "--url", url]).stdout
    assert "not read, since this user lacks SELECT: 1" in told


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
    assert "3,000" in text


@pytest.mark.parametrize(
    ("since", "words"),
    [
        ("yesterday", "--since must be a date, as in 2024-01-31, or a file; there is no file 'yesterday'"),
        ("9999-01-01", "--since must be a date in the past, got 9999-01-01"),
        ("odd.json", "does not hold the output of: allocator doctor --columns --json"),
    ],
)
def test_an_odd_since_is_refused(tmp_path, monkeypatch, since, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.json").write_text('{"at": 5}')
    execute("sqlite:///rows.db", "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    result = CliRunner().invoke(main, ["doctor", "--columns", "--since", since, "--url", "sqlite:///rows.db"])

    assert result.exit_code == 1
    assert words in result.stderr


def test_since_without_columns_is_refused():
    result = CliRunner().invoke(main, ["doctor", "--since", "2026-01-01", "--url", "sqlite://"])

    assert result.exit_code == 2
    assert "--schema and --since are for --columns" in result.stderr

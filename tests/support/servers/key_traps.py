"""A schema of many tables, some of whose integer keys come near their end in one way or another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import event, make_url
from sqlalchemy.pool import Pool

from support.servers.administrator import execute, values

T = TypeVar("T")
INT, SMALLINT = 2**31 - 1, 2**15 - 1
BIGINT = 2**63 - 1

Trap = tuple[list[str], int, int]
"""Statements with {t} for the table, the limit of its key `id`, and its greatest value."""

TRAPS_OF_POSTGRESQL: dict[str, Trap] = {
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
NARROW_OF_POSTGRESQL = {"narrow_int": "INT", "narrow_small": "SMALLINT", "narrow_twice": "INT"}
"""Columns that reference `wide`; only the second comes near its end."""


def keyed(kind: str, limit: int, greatest: int, more: str = "", key: str = "id") -> Trap:
    made = f"CREATE TABLE {{t}} (id {kind}, line INT NOT NULL DEFAULT 0, PRIMARY KEY ({key})) {more}"
    return [made, f"INSERT INTO {{t}} (id) VALUES ({greatest})"], limit, greatest


COUNTED = "CREATE TABLE {t} (id INT AUTO_INCREMENT PRIMARY KEY)"
TRAPS_OF_MYSQL: dict[str, Trap] = {
    "tiny": keyed("TINYINT", 127, 120),
    "small_key": keyed("SMALLINT", SMALLINT, 32000),
    "medium": keyed("MEDIUMINT", 2**23 - 1, 8_000_000),
    "int_nearly_full": keyed("INT", INT, 2 * 10**9),
    "int_full": keyed("INT", INT, INT),
    "big": keyed("BIGINT", BIGINT, 9 * 10**18),
    "tiny_unsigned": keyed("TINYINT UNSIGNED", 255, 250),
    "small_unsigned": keyed("SMALLINT UNSIGNED", 2**16 - 1, 65000),
    "medium_unsigned": keyed("MEDIUMINT UNSIGNED", 2**24 - 1, 16_000_000),
    "int_unsigned": keyed("INT UNSIGNED", 2**32 - 1, 4 * 10**9),
    "big_unsigned": keyed("BIGINT UNSIGNED", BIGINT, 10**19),
    "filled_with_zeros": keyed("INT(10) ZEROFILL", 2**32 - 1, 4 * 10**9),
    "counter_alone": ([COUNTED, "ALTER TABLE {t} AUTO_INCREMENT = 2000000001"], INT, 2 * 10**9),
    "rows_were_deleted": ([COUNTED, "INSERT INTO {t} VALUES (1900000000)", "DELETE FROM {t}"], INT, 19 * 10**8),
    "composite": keyed("INT", INT, 1_750_000_002, key="id, line"),
    "downwards": keyed("INT", INT, 1_750_000_003, key="id DESC"),
    "partitioned": keyed("INT", INT, 1_850_000_000, "PARTITION BY HASH (id) PARTITIONS 4"),
    "other_engine": keyed("INT", INT, 1_750_000_004, "ENGINE = MyISAM"),
    "history_is_kept": keyed("INT", INT, 1_750_000_005, "/*M! WITH SYSTEM VERSIONING */"),  # of MariaDB alone
    "`Mixed Case`": keyed("INT", INT, 1_950_000_000),
    "`with-hyphen`": keyed("INT", INT, 1_950_000_001),
}
"""InnoDB refuses a foreign key that is narrower than what it references."""


def make(url: str, tables: int) -> None:
    """A schema of so many tables; most of them are well and empty."""
    execute(url, *(postgres if "postgresql" in url else mysql)(tables))


def postgres(tables: int) -> list[str]:
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
    return [*statements, *(f"CREATE TABLE {one} (id BIGSERIAL PRIMARY KEY, tenant INT)" for one in names(well))]


def mysql(tables: int) -> list[str]:
    statements = [line.format(t=name) for name, (lines, _, _) in TRAPS_OF_MYSQL.items() for line in lines]
    well = names(tables - len(TRAPS_OF_MYSQL))
    return [*statements, *(f"CREATE TABLE {one} (id BIGINT AUTO_INCREMENT PRIMARY KEY, tenant INT)" for one in well)]


def names(count: int) -> list[str]:
    return [f"well_{number}" for number in range(count)]


def fill(url: str, tables: int, rows: int) -> None:
    """Rows for the tables that are well."""
    several = ", ".join(["(1)"] * rows)
    execute(url, *(f"INSERT INTO {one} (tenant) VALUES {several}" for one in names(tables - 30)))


def expected(url: str) -> dict[str, tuple[str, str]]:
    """The limit and the greatest value of each that is not well."""
    if "postgresql" in url:
        found = {f"public.{name}.id": (str(limit), str(top)) for name, (_, limit, top) in TRAPS_OF_POSTGRESQL.items()}
        found["other.orders.id"] = (str(INT), "1750000005")
        found["other.items.order_id"] = (str(SMALLINT), "1750000005")
        found["public.narrow_small.wide_id"] = (str(SMALLINT), "30000")
        found["public.wide.id"] = (str(BIGINT), "30000")  # its sequence is behind
        return found
    place = make_url(url).database
    return {f"{place}.{name.strip('`')}.id": (str(limit), str(top)) for name, (_, limit, top) in TRAPS_OF_MYSQL.items()}


ROWS_READ = """SELECT sum(seq_tup_read) + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)
FROM pg_stat_user_tables"""
SCANS = "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname NOT LIKE 'allocator%'"


def rows_read(url: str, look: Callable[[], T]) -> tuple[T, int]:
    """What `look` answers, and how many rows of tables and indexes the server read meanwhile, by its counters.

    On MySQL and MariaDB those of its catalogues too, and of scans alone.
    """
    if "postgresql" in url:
        execute(url, "SELECT pg_stat_force_next_flush()", "SELECT pg_stat_reset()")  # else some come after the reset
        answer = look()
        execute(url, "SELECT pg_stat_force_next_flush()")
        (count,) = values(url, ROWS_READ)
        return answer, int(count)
    rows = []

    def ended(connection: Any, record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("SHOW SESSION STATUS WHERE variable_name IN ('Handler_read_rnd_next', 'Handler_read_next')")
        rows.extend(int(row[1]) for row in cursor.fetchall())
        cursor.close()

    event.listen(Pool, "checkin", ended)
    try:
        return look(), sum(rows)
    finally:
        event.remove(Pool, "checkin", ended)

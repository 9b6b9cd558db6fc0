"""`examples/integer_keys.sql`: the statement of each database finds the keys that run out."""

import re
from typing import Any

import pytest
from support.documents.pages import ROOT
from support.servers.administrator import administrator, execute

FILE = ROOT / "examples" / "integer_keys.sql"
INT, BIGINT = 2**31 - 1, 2**63 - 1
TABLES = {
    "postgres": [
        'CREATE TABLE "Full" (id INT PRIMARY KEY)',
        'INSERT INTO "Full" VALUES (2147483647), (5)',
        "CREATE SCHEMA other",
        "CREATE TABLE other.deleted (id SERIAL PRIMARY KEY)",
        "SELECT setval('other.deleted_id_seq', 2000000000)",
        "CREATE TABLE widened (id SERIAL PRIMARY KEY)",
        "ALTER TABLE widened ALTER id TYPE BIGINT",
        "SELECT setval('widened_id_seq', 1900000000)",
        "CREATE TABLE referred (id BIGINT PRIMARY KEY)",
        "CREATE TABLE refers (id BIGINT PRIMARY KEY, no SMALLINT REFERENCES referred (id))",
        "INSERT INTO referred VALUES (20000)",
        "CREATE TABLE texts (id VARCHAR(9) PRIMARY KEY)",
    ],
    "mysql": [
        "CREATE TABLE tiny (id TINYINT AUTO_INCREMENT PRIMARY KEY)",
        "INSERT INTO tiny VALUES (100)",
        "CREATE TABLE deleted (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY)",
        "ALTER TABLE deleted AUTO_INCREMENT = 4000000001",
        "CREATE TABLE wide (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY)",
        "INSERT INTO wide VALUES (9223372036854775808)",
    ],
}
EXPECTED = {
    "postgres": [
        ('"Full".id', "integer", INT, INT, 100.0),
        ("other.deleted.id", "integer", 2 * 10**9, INT, 93.1),
        ("widened.id", "bigint", 19 * 10**8, INT, 88.5),
        ("referred.id", "bigint", 20_000, 2**15 - 1, 61.0),
        ("refers.id", "bigint", 0, BIGINT, 0.0),
    ],
    "mysql": [
        ("deleted.id", "int unsigned", 4 * 10**9, 2**32 - 1, 93.1),
        ("tiny.id", "tinyint", 100, 127, 78.7),
        ("wide.id", "bigint unsigned", 2**63, 2**64 - 1, 50.0),
    ],
}


def answer(url: str, kind: str) -> list[tuple[Any, ...]]:
    """The rows of the last statement for a database, without our own tables."""
    _, postgres, mysql = FILE.read_text().split("\n\n")
    with administrator(url) as connection:
        for statement in (postgres if kind == "postgres" else mysql).split(";\n"):
            if statement:
                found = connection.exec_driver_sql(statement.replace("%", "%%"))
        rows = [tuple(row) for row in found if "allocator" not in row[0]]
    return [(row[0], re.sub(r"\(\d+\)", "", row[1]), *row[2:]) for row in rows]  # MariaDB writes a width


@pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"])
def test_the_keys_that_run_out_stand_first(kind, fresh):
    of = "postgres" if kind == "postgres" else "mysql"
    execute(fresh, *TABLES[of])

    assert [(*row[:4], float(row[4])) for row in answer(fresh, kind)] == [
        (*row[:4], pytest.approx(row[4])) for row in EXPECTED[of]
    ]

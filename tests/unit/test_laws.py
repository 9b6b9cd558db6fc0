"""The three laws of the house: imports go one way, SQL has one room, the schemes are pure."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import allocator

PACKAGE = Path(allocator.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts[len(PACKAGE.parts) :])

LAYERS = (
    ("errors", "forks", "entry", "waiting", "defaults"),
    ("schemes",),
    ("database",),
    ("background", "iterators", "tags", "tokens"),
    ("roster", "shard"),
    ("growth", "adoption"),
    ("shards",),
    ("supply",),
    ("segments", "meteor", "snowflake", "objectid", "inspection"),
    ("public",),
    ("refills",),
    ("deadline",),
    ("servers",),
    ("client",),
    ("backend",),
    ("sequence",),
    ("sync",),
    ("aio_tags",),
    ("aio",),
    ("testing",),
    ("doctor", "tracing"),
    ("service",),
    ("cli",),
    ("integrations",),
    ("__init__", "__main__"),
)
"""A module imports from its own row and the rows above it."""

PURE = {
    "__future__",
    "abc",
    "array",
    "collections",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fnmatch",
    "functools",
    "hashlib",
    "itertools",
}
PURE |= {"math", "operator", "re", "types", "typing", "uuid"}
"""Of the standard library. hashlib is: the same bytes in give the same bytes out; keys and randomness are arguments."""

CONSOLE = ("access", "bits", "history", "rows", "words")
"""The pure files of the room `service/console`."""
DIGESTS = {"base64", "hmac"}

STATEMENT = re.compile(r"\b(SELECT\s|INSERT\s+INTO|UPDATE\s+\w|DELETE\s+FROM|REPLACE\s+INTO|CREATE\s+TABLE|ALTER\s)")
DIALECTS = {"sqlite", "postgresql", "mysql", "mariadb", "psycopg", "pymysql"}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def layer_of(name: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if name in layer)


def imports(tree: ast.AST) -> list[tuple[str, int]]:
    """Everything imported, also late and for types only."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.append((node.module or "", node.lineno))
            if node.module and node.module.startswith("allocator"):
                found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def outward(name: str, source: str) -> list[str]:
    """The imports of a module that point to a layer further out."""
    wrong = []
    for imported, line in imports(ast.parse(source)):
        parts = imported.split(".")
        if parts[0] != "allocator" or len(parts) == 1 or not any(parts[1] in layer for layer in LAYERS):
            continue
        if layer_of(parts[1]) > layer_of(name):
            wrong.append(f"line {line}: {imported}")
    return wrong


def sql_in(source: str) -> list[str]:
    """Statements and names of databases in the code, docstrings apart."""
    tree = ast.parse(source)
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documentation
        and (STATEMENT.search(node.value) or node.value.lower() in DIALECTS)
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_inwards_only(path: Path):
    assert outward(name_of(path), path.read_text()) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_sql_and_the_names_of_databases_are_in_the_database_room_only(path: Path):
    if name_of(path) != "database":
        assert sql_in(path.read_text()) == []


@pytest.mark.parametrize("path", sorted((PACKAGE / "schemes").glob("*.py")), ids=lambda path: path.name)
def test_schemes_are_pure(path: Path):
    outside = {name.split(".")[0] for name, _ in imports(ast.parse(path.read_text()))} - PURE

    assert outside <= {"allocator"}


@pytest.mark.parametrize("name", CONSOLE)
def test_what_the_console_decides_is_pure(name: str):
    """So that it is tested with plain calls: clocks, keys and figures are arguments."""
    tree = ast.parse((PACKAGE / "service" / "console" / f"{name}.py").read_text())
    imported = [one for one, _ in imports(tree)]
    inside = [one.split(".") for one in imported if one.startswith("allocator.")]

    assert {one.split(".")[0] for one in imported} <= PURE | DIGESTS | {"allocator"}
    assert [one for one in inside if one[1] != "schemes" and one[:3] != ["allocator", "service", "console"]] == []
    assert {one[3] for one in inside if one[1] == "service"} <= set(CONSOLE)


def test_every_row_of_the_law_of_imports_is_alive():
    """The first row that names a room counts: what stands in a second one, or is no longer there, holds nothing."""
    named = [name for layer in LAYERS for name in layer]

    assert sorted(named) == sorted({name_of(path) for path in MODULES})


def test_controls_each_law_can_be_broken():
    assert outward("schemes", "from allocator.database import store")
    assert outward("database", "def late():\n    from allocator.sync import Allocator")
    assert sql_in("text('UPDATE allocator_segment SET x = 1')")
    assert sql_in("if dialect.name == 'mysql': pass")
    assert "time" not in PURE


def test_import_allocator_is_cheap():
    heavy = {
        "sqlalchemy",
        "alembic",
        "click",
        "psycopg",
        "pymysql",
        "pydantic",
        "starlette",
        "jinja2",
        "uvicorn",
        "prometheus_client",
        "urllib3",
        "testcontainers",
        "django",
        "flask",
        "fastapi",
    }
    code = f"import sys, allocator; print(*({heavy!r} & sys.modules.keys()))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""

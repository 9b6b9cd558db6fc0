"""The laws of the house that neither `lint-imports` nor ruff holds: SQL has one room, the schemes are pure, nothing
imports itself by way of others; and what CONTRIBUTING says of the house is so."""

import ast
import re
from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest
from support.kit import output

import allocator

PACKAGE = Path(allocator.__file__).parent
ROOT = PACKAGE.parent
TESTS = ROOT / "tests"
MODULES = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
"""The text of each, by its place, such as `schemes/tag.py`."""
IMPORTS = grimp.build_graph(
    "allocator", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
)
"""Late ones too, but not those for types alone."""
PURE = {"__future__", "abc", "array", "bisect", "collections", "dataclasses", "datetime", "decimal", "allocator"}
PURE |= {"difflib", "enum", "fnmatch", "functools", "hashlib", "itertools", "math", "operator", "re", "shlex", "types"}
PURE |= {"typing", "uuid", "base64", "hmac"}
"""Of the standard library. hashlib is: the same bytes in give the same bytes out; keys and randomness are arguments."""
STATEMENT = re.compile(r"\b(SELECT\s|INSERT\s+INTO|UPDATE\s+\w|DELETE\s+FROM|REPLACE\s+INTO|CREATE\s+TABLE|ALTER\s)")
DIALECTS = {"sqlite", "postgresql", "mysql", "mariadb", "psycopg", "pymysql"}


def texts_in(source: str) -> list[str]:
    """The texts in the code, docstrings apart."""
    nodes = [*ast.walk(ast.parse(source))]
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    constants = [node.value for node in nodes if isinstance(node, ast.Constant) and node not in docstrings]
    return [value for value in constants if isinstance(value, str)]


def databases_in(source: str) -> list[str]:
    return [one for one in texts_in(source) if one.lower() in DIALECTS]


def sql_in(source: str) -> list[str]:
    return [one for one in texts_in(source) if STATEMENT.search(one)]


def codes_in(source: str) -> list[str]:
    """Calls that ask for the code of a driver's error."""
    return re.findall(r"\b(?<!def )(?:code|code_of|sqlstate)\(", source)


def all_but(*places: str) -> Callable[[str], bool]:
    return lambda place: not place.startswith(places)


NAME_DATABASES = ("mysql.py", "postgresql.py", "sqlite.py", "django/", "address.py", "checks.py", "tables.py")
"""Of the room `database`. What a database does not do as the others is a member of its dialect."""
KNOW_CODES = ("driver_errors.py", "connection.py", "mysql.py", "postgresql.py", "sqlite.py")


@pytest.mark.parametrize(
    ("found_in", "holds_for", "broken", "kept"),
    [
        (sql_in, all_but("database/"), "text('UPDATE allocator_segment SET x = 1')", "'''SELECT 1'''"),
        (databases_in, all_but(*(f"database/{name}" for name in NAME_DATABASES)), "x.name == 'mysql'", "'mysql://h'"),
        (codes_in, all_but(*(f"database/{name}" for name in KNOW_CODES)), "dialect.code(error)", "error.codes"),
    ],
    ids=["SQL in its room", "databases by their dialect", "codes of drivers"],
)
def test_the_law_and_its_control(found_in, holds_for, broken, kept):
    bound = {place: text for place, text in MODULES.items() if holds_for(place)}

    assert bound
    assert {place: wrong for place, text in bound.items() if (wrong := found_in(text))} == {}
    assert (bool(found_in(broken)), found_in(kept)) == (True, [])


def used_by(rooms: str) -> set[str]:
    """The packages that the modules import whose names this pattern finds."""
    bound = [name for name in IMPORTS.modules if re.match(rf"allocator\.({rooms})", name)]
    return {each.partition(".")[0] for name in bound for each in IMPORTS.find_modules_directly_imported_by(name)}


def test_clocks_randomness_and_process_ids_are_arguments_where_it_is_decided():
    """So that every rule is tested with plain numbers."""
    for rooms in (r"schemes\.", r"public_ids\.", ".*_rules$", r"service\.console\.(figures|history)"):
        assert set() < used_by(rooms) <= PURE
    assert used_by("runtime") >= {"os", "threading", "time"}, "control: the room below is not pure"


def test_nothing_imports_itself_by_way_of_others_and_a_circle_is_found():
    """So it does not matter which module is imported first, and each can be read without those that use it."""
    imported = {name: IMPORTS.find_modules_directly_imported_by(name) for name in IMPORTS.modules}
    TopologicalSorter(imported).prepare()
    with pytest.raises(CycleError):
        TopologicalSorter({**imported, "allocator.errors": {"allocator.sync"}}).prepare()


def test_the_house_can_be_taken_in_at_a_glance():
    """Few files at the root; a generator has the name of its scheme; else a name says which file it is."""
    folders: dict[str, set[str]] = {}
    for folder, _, name in (place.rpartition("/") for place in MODULES):
        folders.setdefault(name, set()).add(folder)
    several = {name for name, places in folders.items() if len(places) > 1 and places != {"schemes", "generators"}}

    assert len([place for place in MODULES if "/" not in place]) <= 8
    assert several <= {"__init__.py", "__main__.py"}


def test_contributing_names_what_is_there():
    """The walk of one `next_id`, the rooms, the folders of tests."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = {name for name in re.findall(r"`([\w./-]+)`", text) if "/" in name or name.endswith((".py", ".toml"))}
    places = (PACKAGE, TESTS, ROOT / "migrations")
    gone = {name for name in named if not any(next(place.rglob(name.strip("/")), None) for place in places)}
    columns = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    rows = {name.removesuffix(".py").strip("/") for names in columns for name in re.findall(r"`([\w./]+)`", names)}
    rooms = {place.split("/")[0].removesuffix(".py") for place in MODULES} - {"__init__", "__main__", "errors"}
    parts = {f"tests/{path.name}" for path in TESTS.iterdir() if list(path.rglob("test_*.py"))}

    assert {name for name in gone if not (ROOT / name).exists()} == set()
    assert rows >= rooms | parts


def test_import_allocator_is_cheap():
    heavy = {"sqlalchemy", "alembic", "click", "psycopg", "pymysql", "pydantic", "starlette", "jinja2", "granian"}
    heavy |= {"prometheus_client", "http.client", "testcontainers", "django", "fastapi", "opentelemetry"}
    code = f"import sys, allocator; print(*({heavy!r} & sys.modules.keys()))"

    assert output(code) == "\n"

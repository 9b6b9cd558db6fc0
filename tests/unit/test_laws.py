"""The laws of the house that `lint-imports` does not hold: SQL has one room, the schemes are pure, nothing imports
itself by way of others; and what CONTRIBUTING says of the house is so."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
from support.kit import output

import allocator

PACKAGE = Path(allocator.__file__).parent
ROOT = PACKAGE.parent
TESTS = ROOT / "tests"
MODULES = {
    str(path.relative_to(PACKAGE)): path.read_text()
    for path in sorted(PACKAGE.rglob("*.py"))
    if "migrations" not in path.relative_to(PACKAGE).parts
}
"""The text of each, by its place, such as `schemes/tag.py`."""
PURE = {"__future__", "abc", "array", "bisect", "collections", "dataclasses", "datetime", "decimal", "allocator"}
PURE |= {"difflib", "enum", "fnmatch", "functools", "hashlib", "itertools", "math", "operator", "re", "shlex", "types"}
PURE |= {"typing", "uuid", "base64", "hmac"}
"""Of the standard library. hashlib is: the same bytes in give the same bytes out; keys and randomness are arguments."""
STATEMENT = re.compile(r"\b(SELECT\s|INSERT\s+INTO|UPDATE\s+\w|DELETE\s+FROM|REPLACE\s+INTO|CREATE\s+TABLE|ALTER\s)")
DIALECTS = {"sqlite", "postgresql", "mysql", "mariadb", "psycopg", "pymysql"}

parse = cache(ast.parse)


def imported(node: ast.AST) -> Iterator[str]:
    """What a module imports, late too, but not for types alone. `*` stands for what `import_module` fills in."""
    match node:
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return
        case ast.Import(names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module, names):
            yield from (f"{module}.{alias.name}" for alias in names)
        case ast.Call(ast.Name("import_module"), [ast.JoinedStr([ast.Constant(), *_] as parts)]):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts)
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def texts_in(source: str) -> list[str]:
    """The texts in the code, docstrings apart."""
    tree = parse(source)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in statements)
    return [node.value for node in constants if isinstance(node.value, str)]


def databases_in(source: str) -> list[str]:
    return [one for one in texts_in(source) if one.lower() in DIALECTS]


def sql_in(source: str) -> list[str]:
    return [one for one in texts_in(source) if STATEMENT.search(one)]


def impure_in(source: str) -> list[str]:
    return sorted({name.split(".")[0] for name in imported(parse(source))} - PURE)


def codes_in(source: str) -> list[str]:
    """Calls that ask for the code of a driver's error."""
    calls = (node.func for node in ast.walk(parse(source)) if isinstance(node, ast.Call))
    names = (func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls)
    return [name for name in names if name in {"code", "code_of", "sqlstate"}]


def private_names_in(source: str) -> list[str]:
    """Names with a leading underscore that a module reads of anything but its own objects: `x._y`, `self.x._y`."""
    return [
        ast.unparse(node)
        for node in ast.walk(parse(source))
        if isinstance(node, ast.Attribute)
        and re.match("_[^_]", node.attr)
        and ast.unparse(node.value) not in {"self", "cls"}
    ]


def all_but(*places: str) -> Callable[[str], bool]:
    return lambda place: not place.startswith(places)


def is_pure(place: str) -> bool:
    """Clocks, randomness and process ids are arguments there, so that every rule is tested with plain numbers."""
    decides = place.startswith(("schemes/", "public_ids/")) and not place.endswith("__init__.py")
    return decides or place.endswith(("_rules.py", "service/console/figures.py", "service/console/history.py"))


NAME_DATABASES = ("mysql.py", "postgresql.py", "sqlite.py", "django/", "address.py", "checks.py", "tables.py")
"""Of the room `database`. What a database does not do as the others is a member of its dialect."""
KNOW_CODES = ("driver_errors.py", "connection.py", "mysql.py", "postgresql.py", "sqlite.py")


@pytest.mark.parametrize(
    ("found_in", "holds_for", "broken", "kept"),
    [
        (sql_in, all_but("database/"), "text('UPDATE allocator_segment SET x = 1')", "'''SELECT 1'''"),
        (databases_in, all_but(*(f"database/{name}" for name in NAME_DATABASES)), "x.name == 'mysql'", "'mysql://h'"),
        (codes_in, all_but(*(f"database/{name}" for name in KNOW_CODES)), "dialect.code(error)", "error.codes"),
        (impure_in, is_pure, "from time import monotonic", "from allocator.errors import InvalidId"),
        (private_names_in, lambda place: place.startswith("service/"), "self._ids._backend", "self._ids.__dict__"),
    ],
    ids=["SQL in its room", "databases by their dialect", "codes of drivers", "pure", "no private name of another"],
)
def test_the_law_and_its_control(found_in, holds_for, broken, kept):
    bound = {place: text for place, text in MODULES.items() if holds_for(place)}

    assert bound
    assert {place: wrong for place, text in bound.items() if (wrong := found_in(text))} == {}
    assert (bool(found_in(broken)), found_in(kept)) == (True, [])


def knotted(sources: Mapping[str, str]) -> set[str]:
    """The modules that need themselves by the imports of others, late ones too."""
    graph = {name: set(modules(set(imported(parse(text))), sources)) - {name} for name, text in sources.items()}

    def needed(name: str) -> set[str]:
        seen: set[str] = set()
        new = {name}
        while new:
            new = {other for one in new for other in graph[one]} - seen
            seen |= new
        return seen

    return {name for name in graph if name in needed(name)}


def modules(names: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    """Those that names stand for, or stand in."""
    for name in names:
        found = [one for one in known if fnmatch(one, name)]
        yield from found or [one for one in known if one == name.rpartition(".")[0]]


def test_nothing_imports_itself_by_way_of_others_and_a_circle_is_found():
    """So it does not matter which module is imported first, and each can be read without those that use it."""
    names = {f"allocator.{place[:-3].replace('/', '.')}".removesuffix(".__init__"): place for place in MODULES}
    types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.room import a\n"
    late = "def f():\n    from p.room.a import name\n"
    filled_in = "def f(name):\n    return import_module(f'p.{name}.a')\n"

    assert knotted({name: MODULES[place] for name, place in names.items()}) == set()
    assert knotted({"p.room.a": "import p.room.b", "p.room.b": types}) == set()
    assert knotted({"p.room.a": "from p.hall import b", "p.hall.b": late, "p.hall.c": late}) == {"p.room.a", "p.hall.b"}
    assert knotted({"p.room.a": "import p.room.b", "p.room.b": filled_in}) == {"p.room.a", "p.room.b"}


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

"""The laws of the house: imports go one way and in no circle, SQL has one room, the schemes are pure; and what
CONTRIBUTING says of the house is so."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.kit import output

import allocator

PACKAGE = Path(allocator.__file__).parent
CONTRIBUTING = PACKAGE.parent / "CONTRIBUTING.md"
TESTS = Path(__file__).parents[1]
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts[len(PACKAGE.parts) :])

LAW = """
1  errors
2  schemes < public_ids, runtime
3  database, generators
4  fleet < remote, numbers
5  backend < sync < aio < service_allocator
6  testing, doctor < service < cli < integrations
"""
"""A room imports from the rows above its own, and in its own row from the rooms on the left of a `<`."""

ROWS = [[set(group.split(", ")) for group in line[3:].split(" < ")] for line in LAW.strip().splitlines()]
FACE = {"__init__", "__main__"}
ROOMS = {room for groups in ROWS for group in groups for room in group} | FACE
PURE_ROOMS = ("schemes", "public_ids")

PURE = {"__future__", "abc", "array", "bisect", "collections", "dataclasses", "datetime", "decimal"}
PURE |= {"difflib", "enum", "fnmatch", "functools", "hashlib", "itertools", "math", "operator", "re", "shlex", "types"}
PURE |= {"typing", "uuid"}
"""Of the standard library. hashlib is: the same bytes in give the same bytes out; keys and randomness are arguments."""

CONSOLE = ("service/console/figures.py", "service/console/history.py")
DIGESTS = {"base64", "hmac"}

parse = cache(ast.parse)

STATEMENT = re.compile(r"\b(SELECT\s|INSERT\s+INTO|UPDATE\s+\w|DELETE\s+FROM|REPLACE\s+INTO|CREATE\s+TABLE|ALTER\s)")
DIALECTS = {"sqlite", "postgresql", "mysql", "mariadb", "psycopg", "pymysql"}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def place_of(name: str) -> tuple[int, int]:
    """The row of a room, and how far to the right it stands there."""
    return next(
        (row, column) for row, groups in enumerate(ROWS) for column, group in enumerate(groups) if name in group
    )


def may_import(name: str, other: str) -> bool:
    return name == other or name in FACE or (other not in FACE and place_of(other) < place_of(name))


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
    for imported, line in imports(parse(source)):
        parts = imported.split(".")
        if parts[0] != "allocator" or len(parts) == 1 or parts[1] not in ROOMS:
            continue
        if not may_import(name, parts[1]):
            wrong.append(f"line {line}: {imported}")
    return wrong


def texts_in(source: str) -> list[str]:
    """The texts in the code, docstrings apart."""
    tree = parse(source)
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
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
    ]


def databases_in(source: str) -> list[str]:
    return [one for one in texts_in(source) if one.lower() in DIALECTS]


def sql_in(source: str) -> list[str]:
    """Statements and names of databases."""
    return [one for one in texts_in(source) if STATEMENT.search(one)] + databases_in(source)


def offenders(found_in: Callable[[str], list[str]], modules: Iterable[Path]) -> dict[str, list[str]]:
    """What each module has that it must not have, by its place; those that have nothing are left out."""
    found = {file_of(path): found_in(path.read_text()) for path in modules}
    return {place: wrong for place, wrong in found.items() if wrong}


def file_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def test_imports_point_inwards_only():
    for room in ROOMS:
        modules = [path for path in MODULES if name_of(path) == room]
        assert offenders(partial(outward, room), modules) == {}


def test_sql_and_the_names_of_databases_are_in_the_database_room_only():
    assert offenders(sql_in, (path for path in MODULES if name_of(path) != "database")) == {}


NAME_DATABASES = ("mysql.py", "postgresql.py", "sqlite.py", "django/", "address.py", "checks.py", "tables.py")
"""Of the room `database`. What a database does not do as the others is a member of its dialect."""


def test_the_room_of_databases_asks_the_dialect_and_not_its_name():
    may_name = tuple(f"database/{place}" for place in NAME_DATABASES)
    assert offenders(databases_in, (path for path in MODULES if not file_of(path).startswith(may_name))) == {}


PURE_FILES = sorted(
    path
    for path in MODULES
    if (name_of(path) in PURE_ROOMS and path.name != "__init__.py")
    or path.stem.endswith("_rules")
    or file_of(path) in CONSOLE
)


def impure_in(source: str) -> list[str]:
    outside = {name.split(".")[0] for name, _ in imports(parse(source))} - PURE - DIGESTS
    return sorted(outside - {"allocator"})


def test_what_decides_is_pure():
    """Clocks, randomness and process ids are arguments, so that every rule is tested with plain numbers."""
    assert PURE_FILES
    assert offenders(impure_in, PURE_FILES) == {}


def is_pure(name: str) -> bool:
    _, room, *rest = name.split(".")
    return room in PURE_ROOMS or f"{room}/{rest[0]}.py" in CONSOLE


def test_what_the_console_decides_needs_pure_rooms_alone():
    for place in CONSOLE:
        inside = [name for name, _ in imports(parse((PACKAGE / place).read_text())) if name.startswith("allocator.")]
        places = [name for name in inside if not is_pure(name)]
        assert places == [], place


KNOW_CODES = {"driver_errors", "connection", "mysql", "postgresql", "sqlite"}


def codes_in(source: str) -> list[str]:
    """Calls that ask for the code of a driver's error."""
    calls = (node.func for node in ast.walk(parse(source)) if isinstance(node, ast.Call))
    names = (func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls)
    return [name for name in names if name in {"code", "code_of", "sqlstate"}]


def test_what_the_code_of_an_error_means_is_said_in_one_place():
    assert offenders(codes_in, (path for path in MODULES if path.stem not in KNOW_CODES)) == {}


def private_names_in(source: str) -> list[str]:
    """Names with a leading underscore that a module reads of anything but its own objects: `x._y`, `self.x._y`."""
    return [
        ast.unparse(node)
        for node in ast.walk(parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
    ]


def test_the_service_reads_no_private_name_of_another_room():
    """What it needs of the faces and generators stands in `service_allocator.py`."""
    assert offenders(private_names_in, (path for path in MODULES if name_of(path) == "service")) == {}


def test_the_house_can_be_taken_in_at_a_glance():
    rooms: dict[str, set[str]] = {}
    for path in MODULES:
        if path.name not in {"__init__.py", "__main__.py"}:
            rooms.setdefault(path.name, set()).add(str(path.parent.relative_to(PACKAGE)))
    at_the_root = [path.name for path in MODULES if path.parent == PACKAGE]

    assert {name_of(path) for path in MODULES} == ROOMS
    assert len(ROWS) <= 8
    assert len(at_the_root) <= 8, at_the_root
    # A generator has the name of its scheme; else a name says which file it is.
    several = {name: folders for name, folders in rooms.items() if len(folders) > 1}
    assert [name for name, folders in several.items() if not folders <= {"schemes", "generators"}] == []


def at_import(node: ast.AST) -> Iterator[str]:
    """What a module imports while it is imported itself: not in its functions, and not for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield from (
            (name for name, _ in imports(ast.Module([child], [])))
            if isinstance(child, ast.Import | ast.ImportFrom)
            else at_import(child)
        )


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The modules that each module needs, with the packages that these are in."""
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        needed = {name for name in at_import(parse(source)) if name in sources}
        packages = {".".join(name.split(".")[:end]) for name in needed for end in range(1, name.count(".") + 1)}
        graph[module] = {name for name in needed | packages if not f"{module}.".startswith(f"{name}.")} | (
            needed - {module}
        )
    return graph


def test_every_module_can_be_imported_first():
    """Nothing imports itself by way of others, inside a room neither, so that it does not matter who begins."""
    names = {path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in MODULES}
    graph = import_graph({name.removesuffix(".__init__"): path.read_text() for path, name in names.items()})

    TopologicalSorter(graph).prepare()


def test_control_a_circle_of_imports_is_found():
    circle = {
        "allocator.tags": "from allocator.tags import rows",
        "allocator.tags.rows": "class Row:\n    from allocator.fleet import one",
        "allocator.fleet": "",
        "allocator.fleet.one": "import allocator.tags.names",
        "allocator.tags.names": "",
    }
    late = "def late():\n    import allocator.tags\nif TYPE_CHECKING:\n    import allocator.tags"

    with pytest.raises(CycleError):
        TopologicalSorter(import_graph(circle)).prepare()
    TopologicalSorter(import_graph(circle | {"allocator.fleet.one": late})).prepare()


def test_contributing_shows_the_law_and_names_what_is_there():
    """The walk of one `next_id`, the rooms, the folders of tests."""
    text = CONTRIBUTING.read_text()
    named = {name for name in re.findall(r"`([\w./-]+)`", text) if "/" in name or name.endswith((".py", ".toml"))}
    places = (PACKAGE, TESTS, PACKAGE.parent / "migrations")
    gone = {
        name
        for name in named
        if not any(next(place.rglob(name.strip("/")), None) for place in places)
        and not (CONTRIBUTING.parent / name).exists()
    }
    columns = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    rooms = {name.removesuffix(".py").strip("/") for names in columns for name in re.findall(r"`([\w./]+)`", names)}
    parts = {f"tests/{path.name}" for path in TESTS.iterdir() if list(path.rglob("test_*.py"))}

    assert "".join(f"    {line}\n" for line in LAW.strip().splitlines()) in text
    assert gone == set()
    assert rooms >= (ROOMS - FACE - {"errors"}) | parts


def test_controls_each_law_can_be_broken():
    assert outward("schemes", "from allocator.database import store")
    assert outward("database", "def late():\n    from allocator.sync import Allocator")
    assert outward("fleet", "from allocator.database import store") == []
    assert outward("fleet", "from allocator.remote import client")
    assert outward("remote", "from allocator.fleet import tags") == []
    assert sql_in("text('UPDATE allocator_segment SET x = 1')")
    assert sql_in("if dialect.name == 'mysql': pass")
    assert databases_in("if dialect.name == 'sqlite': return 'SELECT 1'") == ["sqlite"]
    assert codes_in("if dialect.code(error.orig) in dialect.codes.forbidden: raise DatabaseRefused") == ["code"]
    assert impure_in("from time import monotonic\nfrom allocator.errors import InvalidId") == ["time"]
    assert offenders(impure_in, [PACKAGE / "sync.py"]).keys() == {"sync.py"}
    assert private_names_in("self._ids._backend") == ["self._ids._backend"]
    assert private_names_in("ids._backend.lease()") == ["ids._backend"]
    assert private_names_in("self._ids.lease") == []


def test_import_allocator_is_cheap():
    heavy = {"sqlalchemy", "alembic", "click", "psycopg", "pymysql", "pydantic", "starlette", "jinja2", "granian"}
    heavy |= {"prometheus_client", "http.client", "testcontainers", "django", "fastapi", "opentelemetry"}
    code = f"import sys, allocator; print(*({heavy!r} & sys.modules.keys()))"

    assert output(code) == "\n"

"""Each verb that is run on a connection of our own is in the table of what a retry may repeat, and why."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import allocator
from allocator.database import verbs

PACKAGE = Path(allocator.__file__).parent
RUN = {"run", "on_tables", "_run", "attempt"}
"""What runs a verb, or passes it on."""


def listed(table: str) -> Counter[str]:
    """The names of verbs in the table: its indented lines, after the reason."""
    lines = [line.split() for line in table.splitlines() if line.startswith("    ")]
    return Counter(name for words in lines for name in words if "." in name)


def verbs_run(path: Path) -> Iterator[str]:
    """The verbs that a module has run: functions on a connection, by the names of their modules and their own."""
    tree = ast.parse(path.read_text())
    modules = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("allocator.")
        for alias in node.names
    }
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and takes_connection(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name) and called(node.func) in RUN:
            for given in node.args:
                yield from verbs_in(given, modules, own, path.stem)


def takes_connection(function: ast.FunctionDef) -> bool:
    return [one.arg for one in function.args.args][:1] == ["connection"]


def called(function: ast.Attribute | ast.Name) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id


def verbs_in(given: ast.expr, modules: dict[str, str], own: set[str], here: str) -> Iterator[str]:
    if isinstance(given, ast.IfExp):
        yield from verbs_in(given.body, modules, own, here)
        yield from verbs_in(given.orelse, modules, own, here)
    elif isinstance(given, ast.Lambda) and isinstance(given.body, ast.Call):
        yield from verbs_in(given.body.func, modules, own, here)
    elif isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name):
        module = modules.get(given.value.id, "")
        if module.startswith("allocator.database."):
            yield f"{module.rpartition('.')[2]}.{given.attr}"
    elif isinstance(given, ast.Name) and given.id in own:
        yield f"{here}.{given.id}"
    elif isinstance(given, ast.Name) and modules.get(given.id, "").startswith("allocator.database."):
        yield ".".join(modules[given.id].split(".")[-2:])


def test_each_verb_that_is_run_is_listed_once_with_what_a_retry_does():
    known = listed(verbs.__doc__ or "")
    run = {name for path in sorted(PACKAGE.rglob("*.py")) for name in verbs_run(path)}

    assert {"segments.create", "token_rows.add", "shard_row.fetch", "inspection.current"} <= run
    assert sorted(run) == sorted(known.elements())


def test_control_a_verb_that_nobody_thought_of_is_found(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        "from allocator.database.verbs import segments as rows\n"
        "def ours(connection, dialect): ...\n"
        "def go(database):\n"
        "    database.run(ours)\n"
        "    database.run(rows.first if database else rows.second, 1)\n"
        "    database.run(lambda connection, _: rows.third(connection))\n"
    )

    assert sorted(verbs_run(module)) == ["module.ours", "segments.first", "segments.second", "segments.third"]

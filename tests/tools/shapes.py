"""The shape of a package: how long its functions and modules are, and which modules need each other."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from inspect import get_annotations


def lines(text: str) -> int:
    return sum(not line.isspace() and bool(line) for line in text.splitlines())


def sizes(sources: Mapping[str, str]) -> dict[str, int]:
    """The median of the lines, and what a tenth exceeds: a walk that is shorter by longer functions is no gain."""
    functions = [
        lines("\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno]))
        for text in sources.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = {}
    for name, all_lines in ("function", functions), ("module", [lines(text) for text in sources.values()]):
        in_order = sorted(filter(None, all_lines))
        found[f"{name}-median"] = in_order[len(in_order) // 2]
        found[f"{name}-p90"] = in_order[len(in_order) * 9 // 10]
    return found


def imported(node: ast.AST) -> Iterator[str]:
    """What a module imports, late too, but not for types alone. `*` stands for what `import_module` fills in."""
    match node:
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return
        case ast.Import(names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module, names):
            yield from (f"{module}{name}" for name in ("", *(f".{alias.name}" for alias in names)))
        case ast.Call(ast.Name("import_module"), [ast.JoinedStr([ast.Constant(), *_] as parts)]):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts)
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def knots(sources: Mapping[str, str]) -> Counter[str]:
    """How many modules of each room need themselves by the imports of others: each circle is a knot."""
    found = {name: set(imported(ast.parse(text))) for name, text in sources.items()}
    graph = {
        name: [other for other in sources if other != name and any(fnmatch(other, each) for each in names)]
        for name, names in found.items()
    }

    def needed(name: str) -> set[str]:
        seen: set[str] = set()
        new = {name}
        while new:
            new = {other for one in new for other in graph[one]} - seen
            seen |= new
        return seen

    return Counter(name.split(".")[1] for name in graph if name in needed(name))


def names(*classes: type) -> set[str]:
    """All public names in the bodies of these classes, whichever of them has one."""
    return {name for each in classes for name in {*vars(each), *get_annotations(each)} if not name.startswith("_")}

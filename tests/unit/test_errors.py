"""The tree of errors, and the promise that its drawing is true."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import allocator
from allocator import errors


def tree() -> dict[str, type]:
    return {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.AllocatorError)
    }


def test_the_tree_is_drawn_in_full():
    drawn = {line.strip(" │├└─").split(" ")[0] for line in (errors.__doc__ or "").splitlines()}

    assert set(tree()) <= drawn


def test_every_error_says_what_it_means():
    assert [name for name, kind in tree().items() if not kind.__doc__] == []


def test_every_error_is_public():
    assert set(tree()) <= set(allocator.__all__)


def test_all_is_true():
    """What is imported for type checkers, what is imported when it is asked for, and what is listed."""
    tree = ast.parse(Path(allocator.__file__).read_text())
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and "allocator" in str(node.module)]
    homes = {alias.name: str(node.module) for node in imported for alias in node.names}

    assert sorted(homes) == sorted(allocator.__all__) == sorted(set(dir(allocator)) - {"__version__"})
    late = {name: home for home, names in allocator.HOMES.items() for name in names}
    assert late == {name: home for name, home in homes.items() if home != "allocator.errors"}
    assert all(getattr(allocator, name) for name in allocator.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = allocator.nonsense


def test_an_error_can_be_raised_again_without_sharing_its_traceback():
    cause = ValueError("x")
    first = errors.Exhausted("gone")
    first.__cause__ = cause
    second = first.again()

    assert second is not first
    assert (type(first), "gone", cause) == (type(second), str(second), second.__cause__)

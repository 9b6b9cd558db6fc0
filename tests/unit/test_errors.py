"""The errors, and the names of the package."""

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


def test_every_error_says_what_it_means():
    assert [name for name, kind in tree().items() if not kind.__doc__] == []


def test_errors_are_imported_from_their_module():
    """And whoever asks the package for one is told so, by an import too, which hides the text of an AttributeError."""
    assert not {*tree()} & {*allocator.__all__}
    with pytest.raises(
        ImportError, match="^UnknownTag is in allocator.errors: from allocator.errors import UnknownTag$"
    ):
        _ = allocator.UnknownTag  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="^UnknownTag is in allocator.errors"):
        exec("from allocator import UnknownTag")


def test_all_is_true():
    """What is imported for type checkers, what is imported when it is asked for, and what is listed."""
    source = ast.parse(Path(allocator.__file__).read_text())
    imported = [node for node in ast.walk(source) if isinstance(node, ast.ImportFrom)]
    homes = {
        alias.name: node.module for node in imported for alias in node.names if "allocator." in (node.module or "")
    }

    assert len(homes) <= 20  # whatever is new makes room, or has a module of its own, as errors and tests have
    assert sorted(homes) == sorted(allocator.__all__) == sorted({*dir(allocator)} - {"__version__", "errors"})
    assert homes == allocator.HOMES
    assert all(getattr(allocator, name) for name in (*allocator.__all__, "errors"))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = allocator.nonsense  # type: ignore[attr-defined]


def test_an_error_can_be_raised_again_without_sharing_its_traceback():
    cause = ValueError("x")
    first = errors.Exhausted("gone")
    first.__cause__ = cause
    second = first.again()

    assert second is not first
    assert (type(first), "gone", cause) == (type(second), str(second), second.__cause__)

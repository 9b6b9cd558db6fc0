"""The tree of errors, and the promise that its drawing is true."""

from __future__ import annotations

import inspect

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
    shown = {
        name for name, value in vars(allocator).items() if not name.startswith("_") and not inspect.ismodule(value)
    }

    assert shown == set(allocator.__all__)
    assert len(set(allocator.__all__)) == len(allocator.__all__)


def test_an_error_can_be_raised_again_without_sharing_its_traceback():
    cause = ValueError("x")
    first = errors.Exhausted("gone")
    first.__cause__ = cause
    second = first.again()

    assert second is not first
    assert (type(first), "gone", cause) == (type(second), str(second), second.__cause__)

"""Parts of the real code that a control breaks, by the place that has them and their name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

Patches = Mapping[tuple[Any, str], Any]


@contextmanager
def patched(patches: Patches) -> Iterator[None]:
    with ExitStack() as stack:
        for (place, name), value in patches.items():
            stack.enter_context(patch.object(place, name, value))
        yield

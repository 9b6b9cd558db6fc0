"""Chapters that a process of a Django application tells: it prints as JSON how each ended, with nothing or why not.

Imported when Django is set up.
"""

import json
import traceback
from collections.abc import Callable
from typing import Any

from django.db import models

CHAPTERS: list[Callable[[], None]] = []


def chapter(tell: Callable[[], None]) -> Callable[[], None]:
    CHAPTERS.append(tell)
    return tell


def same(found: Any, expected: Any) -> None:
    assert found == expected, f"{found!r}, and not {expected!r}"


def model(app: str, name: str, base: type = models.Model, /, meta: dict[str, Any] | None = None, **fields: Any) -> Any:
    """A model of an application, as its class statement would make it."""
    options = type("Meta", (), {"app_label": app, **(meta or {})})
    return type(base)(name, (base,), {"__module__": app, "Meta": options, **fields})


def ending(tell: Callable[[], None]) -> str:
    try:
        tell()
    except Exception:
        return traceback.format_exc()
    return ""


def tell_all() -> None:
    print(json.dumps({tell.__name__: ending(tell) for tell in CHAPTERS}))

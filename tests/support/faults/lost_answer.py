"""A verb whose first run commits, while its answer is lost with the connection."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError


def lose_answer(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[object]:
    """Lose the first answer of a verb, as where a pooler restarts. Returns the answers of its runs, as they come."""
    verb, answers = getattr(module, name), []

    def losing(*given: Any) -> object:
        answers.append(verb(*given))
        if not answers[1:]:
            raise OperationalError(name, {}, Exception("server closed the connection"), connection_invalidated=True)
        return answers[-1]

    monkeypatch.setattr(module, name, losing)
    return answers

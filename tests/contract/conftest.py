"""What several contract tests take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.service.guarded import Guarded
from support.service.served import Served


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A service that has tokens."""
    made = Guarded(str(tmp_path_factory.mktemp("guarded")))
    yield made
    made.close()


@pytest.fixture
def service(guarded: Guarded) -> Served:
    return guarded.service

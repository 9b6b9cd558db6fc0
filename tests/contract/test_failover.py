"""A database that forgets what it had committed: the quick form of `tests/failover`, one scene for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from rig.drawers import Thread
from rig.machines import Templates
from rig.scenes import SCENES
from rig.story import Story
from rig.verdict import VERDICTS

QUICK = (
    "sqlite-renamed-running",
    "sqlite-renamed-at-rest",
    "postgres-promoted",
    "mariadb-restored-here-cold",
)


@pytest.fixture(scope="module")
def templates() -> Iterator[Templates]:
    made = Templates()
    yield made
    made.close()


@pytest.fixture(scope="module", params=QUICK)
def story(request: pytest.FixtureRequest, templates: Templates, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return SCENES[request.param].play(templates, tmp_path_factory.mktemp("place"), Thread)


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda verdict: verdict.__name__)
def test_a_database_that_forgets(story: Story, verdict: Callable[[Story], None]):
    verdict(story)

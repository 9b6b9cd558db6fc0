"""Failovers by the dozen: a primary is killed, its asynchronous standby is promoted, and ids go on."""

from itertools import cycle, islice

import pytest
from support.faults.forgetting import Promoted
from support.faults.forgetting_scenes import Scene, scene
from support.faults.forgetting_story import VERDICTS
from support.servers.machines import Postgres
from tqdm import tqdm

FORMATS = ("ROW", "MIXED")


def postgres() -> list[Scene]:
    """Every version that is here."""
    return [scene("postgres", Promoted, program=program) for program in Postgres.programs_here()]


def by_format(kind: str) -> list[Scene]:
    return [scene(kind, Promoted, f"--binlog-format={each}") for each in FORMATS]


ROUNDS = {
    "postgres": (20, postgres),
    "mariadb": (20, lambda: by_format("mariadb")),
    "mariadb-image": (6, lambda: by_format("mariadb-image")),
    "mysql": (6, lambda: by_format("mysql")),
}


@pytest.mark.parametrize("kind", ROUNDS)
def test_rounds_of_failovers(kind, templates, tmp_path, report):
    rounds, scenes = ROUNDS[kind]
    stories = []
    for number, each in enumerate(tqdm(list(islice(cycle(scenes()), rounds)), desc=kind)):
        stories.append(each.play(templates, tmp_path / str(number)))
        for verdict in VERDICTS:
            verdict(stories[-1])
    off, gap, refuse, busy = (
        (sum(story.told[tag].ids for story in stories), sum(story.told[tag].duplicates for story in stories))
        for tag in ("off", "gap", "refuse", "busy")
    )
    report(
        f"{rounds} rounds; (ids, duplicates): guard off {off}, gap {gap}, refuse and repair {refuse}, "
        f"drawn from all the time {busy}"
    )

"""Every way in which a database is made to forget, by name: `mariadb-restored-elsewhere`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.faults.forgetting import (
    BY_LUCK,
    RENAMED,
    SAME_FILE,
    Archived,
    Dumped,
    Forgetful,
    Promoted,
    Replaced,
    Replayed,
    Restored,
    Way,
)
from support.faults.forgetting_story import Story
from support.processes.drawers import Drawer, Process
from support.servers.available import or_without
from support.servers.machine_images import MariaDBImage, MySQLImage
from support.servers.machines import Green, Machine, MariaDB, Postgres, Templates

KINDS: dict[str, type[Machine]] = {
    "postgres": Postgres,
    "mariadb": MariaDB,
    "mysql": MySQLImage,
    "mariadb-image": MariaDBImage,
}


@dataclass(frozen=True, slots=True)
class Scene:
    """kind: of the database. running: see `Story`."""

    kind: str
    make: Callable[[Templates, Path], Forgetful]
    running: bool = True

    def play(
        self, templates: Templates, folder: Path, drawer: type[Drawer] = Process, *, repaired: bool = False
    ) -> Story:
        folder.mkdir(parents=True, exist_ok=True)
        with or_without(self.kind, lambda: self.make(templates, folder)) as place:
            return Story(place, drawer, running=self.running, repaired=repaired).tell()


def scene(
    kind: str,
    how: Callable[..., Forgetful],
    *extra: str,
    machine: type[Machine] | None = None,
    program: Path | None = None,
    running: bool = True,
    **more: Any,
) -> Scene:
    """A server that forgets in this way. extra: more words for its command; more: of the way."""
    made_of = machine or KINDS[kind]
    return Scene(kind, lambda templates, folder: how(templates.new(made_of, program, extra), **more), running)


def of_sqlite(*ways: Way) -> dict[str, Scene]:
    return {
        f"sqlite-{way.__name__}-{'running' if running else 'at-rest'}": Scene(
            "sqlite", lambda templates, folder, way=way: Replaced(folder, way), running
        )
        for way in ways
        for running in (True, False)
    }


def dumped(into: str, *kinds: str) -> dict[str, Scene]:
    """Another database has another URL, so nobody who runs can go on there."""
    return {f"{kind}-dumped-to-{into}": scene(kind, Dumped, into=into, running=into != "database") for kind in kinds}


MYSQLS = tuple(kind for kind in KINDS if kind != "postgres")
RESTORED = {
    f"{kind}-restored-{where}-{when}": scene(kind, Restored, elsewhere=where == "elsewhere", stopped=when == "cold")
    for kind in KINDS
    for where in ("here", "elsewhere")
    for when in ("snapshot", "cold")
}
TELLING = {name: one for name, one in RESTORED.items() if name.startswith("mariadb") and "-elsewhere-" in name}
"""MariaDB has another port, folder or host name there; the others take their identity with them."""
UNNOTICED = of_sqlite(*SAME_FILE) | dumped("itself", *MYSQLS) | dumped("rows", "postgres")
UNNOTICED |= {f"{kind}-recovered": scene(kind, Replayed) for kind in MYSQLS}
UNNOTICED |= {name: one for name, one in RESTORED.items() if name not in TELLING}
"""What tells nothing of having been replaced, until an operator does: `allocator db mark-restored`."""
PERHAPS_NOTICED = of_sqlite(*BY_LUCK)
PROMOTED = {f"{kind}-promoted": scene(kind, Promoted) for kind in KINDS}
DUMPED = dumped("server", *KINDS) | dumped("database", *KINDS) | dumped("itself", "postgres")
NOT_DURABLE = {
    f"{kind}-not-durable-{setting}": scene(kind, Restored, setting, stopped=False)
    for kind, setting in (
        ("postgres", "fsync=off"),
        ("mariadb", "--innodb-flush-log-at-trx-commit=2"),
        ("mariadb", "--sync-binlog=0"),
        ("mysql", "--innodb-flush-log-at-trx-commit=2"),
    )
}
"""Servers that say so themselves lose their newest commits in a crash: an older state, on the same server."""
RECOVERED = {"postgres-recovered": scene("postgres", Archived)}
BLUE_GREEN = {"postgres-blue-green": scene("postgres", Promoted, machine=Green)}
SCENES = of_sqlite(*RENAMED) | PROMOTED | RECOVERED | BLUE_GREEN | TELLING | DUMPED | NOT_DURABLE

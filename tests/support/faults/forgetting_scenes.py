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


def promoted(kind: str, *extra: str, program: Path | None = None) -> Scene:
    """extra: more words for the command of the servers."""
    return Scene(kind, lambda templates, folder: Promoted(templates, templates.new(KINDS[kind], program, extra)))


def restored(kind: str, *extra: str, **how: Any) -> Scene:
    """The copy is the server that it was copied from."""
    return Scene(kind, lambda templates, folder: Restored(templates, templates.new(KINDS[kind], None, extra), **how))


def dumped(kind: str, into: str) -> Scene:
    """Another database has another URL, so nobody who runs can go on there."""
    return Scene(
        kind, lambda templates, folder: Dumped(templates, templates.new(KINDS[kind]), into), into != "database"
    )


def recovered(kind: str, how: type[Archived | Replayed]) -> Scene:
    """By its own logs, in its place."""
    return Scene(kind, lambda templates, folder: how(templates, templates.new(KINDS[kind])))


def replaced(way: Way, running: bool) -> Scene:
    return Scene("sqlite", lambda templates, folder: Replaced(folder, way), running)


def of_sqlite(*ways: Way) -> dict[str, Scene]:
    return {
        f"sqlite-{way.__name__}-{'running' if running else 'at-rest'}": replaced(way, running)
        for way in ways
        for running in (True, False)
    }


RESTORED = {
    f"{kind}-restored-{where}-{when}": restored(kind, elsewhere=where == "elsewhere", stopped=when == "cold")
    for kind in KINDS
    for where in ("here", "elsewhere")
    for when in ("snapshot", "cold")
}
TELLING = {name: scene for name, scene in RESTORED.items() if name.startswith("mariadb") and "-elsewhere-" in name}
"""MariaDB has another port, folder or host name there; the others take their identity with them."""

UNNOTICED = of_sqlite(*SAME_FILE)
UNNOTICED |= {f"{kind}-dumped-to-itself": dumped(kind, "itself") for kind in KINDS if kind != "postgres"}
UNNOTICED |= {"postgres-dumped-to-rows": dumped("postgres", "rows")}
UNNOTICED |= {f"{kind}-recovered": recovered(kind, Replayed) for kind in KINDS if kind != "postgres"}
UNNOTICED |= {name: scene for name, scene in RESTORED.items() if name not in TELLING}
"""What tells nothing of having been replaced, until an operator does: `allocator db mark-restored`."""
PERHAPS_NOTICED = of_sqlite(*BY_LUCK)
PROMOTED = {f"{kind}-promoted": promoted(kind) for kind in KINDS}
DUMPED = {f"{kind}-dumped-to-{into}": dumped(kind, into) for kind in KINDS for into in ("server", "database")}
DUMPED |= {"postgres-dumped-to-itself": dumped("postgres", "itself")}
NOT_DURABLE = {
    "postgres-without-fsync": restored("postgres", "fsync=off", stopped=False),
    "mariadb-not-flushed": restored("mariadb", "--innodb-flush-log-at-trx-commit=2", stopped=False),
    "mariadb-binlog-not-flushed": restored("mariadb", "--sync-binlog=0", stopped=False),
    "mysql-not-flushed": restored("mysql", "--innodb-flush-log-at-trx-commit=2", stopped=False),
}
"""Servers that say so themselves lose their newest commits in a crash: an older state, on the same server."""
RECOVERED = {"postgres-recovered": recovered("postgres", Archived)}
BLUE_GREEN = {
    "postgres-blue-green": Scene("postgres", lambda templates, folder: Promoted(templates, templates.new(Green)))
}
SCENES = of_sqlite(*RENAMED) | PROMOTED | RECOVERED | BLUE_GREEN | TELLING | DUMPED | NOT_DURABLE

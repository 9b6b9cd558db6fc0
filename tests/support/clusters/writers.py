"""Processes that draw ids of one scheme from a cluster, through whichever member can write, and a run of them."""

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pymysql
from sqlalchemy import Engine, create_engine, event, make_url
from tqdm import tqdm

from allocator import Allocator, SnowflakeSettings
from support.clusters.cluster import MEMBERS, Cluster
from support.distinct import none_twice
from support.processes.crew import Crew
from support.processes.notes import Drawn, Notes, drawn

STEP, LEASE = 10, 2.0
LIVES = {"meteor": 20, "snowflake": 200}
"""Ids after which a node is registered anew, and another worker leased."""
PAUSE = 0.005
LOOK_SECONDS = 2.0
GALERA = "SELECT variable_value = 'ON' FROM information_schema.global_status WHERE variable_name = 'wsrep_ready'"
GROUP = (
    "SELECT NOT @@super_read_only AND 2 * SUM(member_state = 'ONLINE') > COUNT(*) "
    "FROM performance_schema.replication_group_members"
)


def can_write(connection: Any) -> bool:
    """What the health check of a proxy asks: a member without a majority, or a secondary, is left out."""
    with connection.cursor() as cursor:
        cursor.execute(GALERA if "MariaDB" in connection.server_version else GROUP)
        return bool(cursor.fetchone()[0])


def connected(urls: Sequence[str]) -> Any:
    """To the first of these members that can write, as by a proxy; to the only one in any case."""
    error: Exception = pymysql.OperationalError(2003, "no member of the cluster can write")
    for url in map(make_url, urls):
        try:
            found = pymysql.connect(
                host=url.host,
                port=url.port or 0,
                user=url.username,
                password=url.password or "",
                database=url.database,
                connect_timeout=LOOK_SECONDS,
                read_timeout=LOOK_SECONDS,
            )
            if len(urls) == 1 or can_write(found):
                return found
            found.close()
        except pymysql.Error as failed:
            error = failed
    raise error


def draw(path: Path, number: int, urls: Sequence[str], scheme: str, name: str, settings: dict[str, Any]) -> NoReturn:
    """The work of a crew. The codes of the server's errors count as calls that failed."""
    warnings.simplefilter("error")
    engine, notes = create_engine("mysql+pymysql:///ids", creator=partial(connected, urls)), Notes(path)

    @event.listens_for(Engine, "handle_error")
    def note(context: Any) -> None:
        error = context.original_exception
        notes.fail(f"code {next(iter(error.args), type(error).__name__)}")

    while True:
        with Allocator(engine, snowflake=SnowflakeSettings(lease=LEASE), **settings) as ids:
            call: Callable[[], int] = {
                "segment": partial(ids.next_id, name),
                "ticket": partial(ids.ticket, name),
                "meteor": ids.meteor,
                "snowflake": ids.snowflake,
            }[scheme]
            for _ in range(LIVES.get(scheme, sys.maxsize)):
                with notes.call():
                    notes.write(call())
                time.sleep(PAUSE)


class Writers(Crew):
    """Writers in a folder of their own, started one after the other."""

    def __init__(self, folder: Path) -> None:
        super().__init__(draw, folder, begun=1)

    def begin(self, scheme: str, name: str, urls: Sequence[str], **settings: Any) -> None:
        self.running.append(
            self.start(list(urls), scheme, name, {"timeout": TIMEOUT, "step": STEP, "max_step": STEP, **settings})
        )

    def stop(self) -> None:
        assert all(worker.process.is_alive() for worker in self.running), self.errors()
        self.close()

    def drawn(self, scheme: str, name: str) -> Drawn:
        return drawn(worker.notes for worker in self.ever if worker.words[1:3] == (scheme, name))


def wait(seconds: float, what: str) -> None:
    """With a bar on the terminal."""
    for _ in tqdm(range(int(seconds * 10)), desc=what, unit="tick", leave=False, disable=None):
        time.sleep(0.1)


# -- a run on a cluster: writers of every scheme, some trouble in the middle, and what must be true afterwards


TIMEOUT, SLACK = 5.0, 1.0
"""Seconds that a call may take, and how late it may be told so on a machine that is busy."""
WARM_UP, AFTERWARDS = 5.0, 10.0
COUNTS = {"segment": 3, "ticket": 3, "meteor": 1, "snowflake": 1}
"""Writers of each scheme."""

Report = Callable[[str], None]
Places = Callable[[int], Sequence[int]]
"""For the number of a writer, the members that it tries, the first one first."""


def its_own_first(number: int) -> Sequence[int]:
    return [(number + offset) % MEMBERS for offset in range(MEMBERS)]


def in_order(number: int) -> Sequence[int]:
    return range(MEMBERS)


def under_load(
    cluster: Cluster,
    writers: Writers,
    name: str,
    places: Places,
    trouble: Callable[[], None],
    counts: dict[str, int] = COUNTS,
) -> dict[str, Drawn]:
    """Let writers draw, make trouble, let them draw on; gives what each scheme drew."""
    for scheme, count in counts.items():
        for number in range(count):
            writers.begin(scheme, name, [cluster.url(member) for member in places(number)])
    writers.wait_until_all_have_begun()
    wait(WARM_UP, f"{name}: warm-up")
    trouble()
    healed = time.monotonic()
    wait(AFTERWARDS, f"{name}: afterwards")
    writers.stop()
    found = {scheme: writers.drawn(scheme, name) for scheme in counts}
    for scheme, told in found.items():
        assert told.after(healed), f"no {scheme} id came after the trouble: {told}"
    return found


def account(found: dict[str, Drawn], report: Report) -> None:
    """Write down what was drawn; then nothing may be there twice, and no call have gone over its deadline."""
    for scheme, told in found.items():
        report(f"{scheme}: {told}")
    for scheme, told in found.items():
        none_twice(told.duplicates, f"{scheme}: {told}")
        assert told.longest < TIMEOUT + SLACK, f"{scheme}: {told}"

"""A process that draws ids of one scheme from a cluster, through whichever member can write; `writers` runs it.

Every id is written down with its moment before the next one is drawn, so that a kill hides none.
"""

import json
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import pymysql
from sqlalchemy import Engine, create_engine, event, make_url

from allocator import Allocator
from allocator.errors import AllocatorError
from allocator.schemes.snowflake import SnowflakeSettings

RECORD = struct.Struct("<dq")
CLAIMS = (
    "UPDATE allocator_segment",
    "REPLACE",
    "INSERT INTO allocator_node",
    "UPDATE allocator_lease",
    "INSERT INTO allocator_lease",
)
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


def through(urls: list[str]) -> Callable[[], Any]:
    """Connects to the first of these members that can write, as a proxy does; to the only one in any case."""

    def connect() -> Any:
        error: Exception = pymysql.OperationalError(2003, "no member of the cluster can write")
        for url in map(make_url, urls):
            try:
                found = pymysql.connect(
                    host=url.host,
                    port=url.port,
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

    return connect


class Writer:
    def __init__(self, urls: list[str], scheme: str, name: str, settings: dict[str, Any]) -> None:
        # libpq tries several hosts by itself.
        of_mysql = urls[0].startswith("mysql")
        self.engine = (
            create_engine("mysql+pymysql:///ids", creator=through(urls)) if of_mysql else create_engine(urls[0])
        )
        self.scheme, self.name, self.settings = scheme, name, settings
        self.timeout = float(settings["timeout"])
        self.codes: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.words: dict[str, str] = {}
        self.claims = 0
        self.longest = 0.0
        event.listen(Engine, "handle_error", self.count_error)
        event.listen(Engine, "before_cursor_execute", self.count_claim)

    def count_error(self, context: Any) -> None:
        error = context.original_exception
        number = next(iter(error.args), None)
        code = number if isinstance(number, int) else getattr(error, "sqlstate", None) or type(error).__name__
        self.codes[str(code)] += 1

    def count_claim(self, connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        self.claims += statement.startswith(CLAIMS)

    def calls(self) -> Iterator[Callable[[], int]]:
        """Without end, one call for each id."""
        while True:
            with Allocator(self.engine, snowflake=SnowflakeSettings(lease=LEASE), **self.settings) as ids:
                call: Callable[[], int] = {
                    "segment": partial(ids.next_id, self.name),
                    "ticket": partial(ids.ticket, self.name),
                    "meteor": ids.meteor,
                    "snowflake": ids.snowflake,
                }[self.scheme]
                yield from repeat(call, LIVES.get(self.scheme, sys.maxsize))

    def run(self, folder: Path, number: str) -> None:
        with (folder / f"{number}-{self.scheme}-{self.name}.ids").open("ab", buffering=0) as out:
            for call in self.calls():
                if (folder / "stop").exists():
                    break
                self.draw(call, out)
        (folder / f"{number}.json").write_text(json.dumps(self.account()))

    def draw(self, call: Callable[[], int], out: Any) -> None:
        began = time.monotonic()
        try:
            found = call()
            out.write(RECORD.pack(time.monotonic(), found))
        except AllocatorError as error:
            self.errors[type(error).__name__] += 1
            self.words[type(error).__name__] = str(error)[:300]
        self.longest = max(self.longest, time.monotonic() - began)
        time.sleep(PAUSE)

    def account(self) -> dict[str, Any]:
        return {
            "scheme": self.scheme,
            "name": self.name,
            "claims": self.claims,
            "codes": self.codes,
            "errors": self.errors,
            "words": self.words,
            "longest": self.longest,
        }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    Writer(given["urls"], given["scheme"], given["name"], given["settings"]).run(Path(given["folder"]), given["number"])

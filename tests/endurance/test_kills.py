"""Four processes on every database at once, killed at random."""

from __future__ import annotations

import random
import time

from support.distinct import none_twice
from support.processes.workers import Workers
from support.servers.available import KINDS, SERVERS, Server
from tqdm import tqdm

IDS_EACH = 500_000


def test_killed_workers_on_every_database_at_once(shared_database, tmp_path, tag, report):
    SERVERS.start(set(KINDS))
    kinds = ["sqlite", *(kind for kind, server in SERVERS.found.items() if isinstance(server, Server))]
    rnd = random.Random(20261121)
    runs = {}
    for kind in kinds:
        folder = tmp_path / kind
        folder.mkdir()
        runs[kind] = Workers(shared_database(kind), tag, folder, step=100, ids_each=IDS_EACH)
    try:
        for _ in tqdm(range(60), desc="kills"):
            time.sleep(0.4 * rnd.random())
            run = runs[rnd.choice(kinds)]
            run.kill_one(rnd.randrange(len(run.running)))
        for kind in tqdm(kinds, desc="to the end"):
            runs[kind].wait(300)
    finally:
        for run in runs.values():
            run.__exit__(None, None, None)
    for kind, run in runs.items():
        found = run.report()
        report(
            f"{kind}: {found.ids} ids, {found.killed} of {run.started} workers killed, {found.duplicates} duplicates"
        )
        none_twice(found.duplicates)
        assert found.ids >= 4 * IDS_EACH

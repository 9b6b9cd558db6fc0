"""Several processes, forks and kills: never an id twice."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext

import pytest
from support.distinct import distinct
from support.faults.wire import Wire
from support.kit import ON_SERVERS, SQLITE, database_of
from support.processes.children import in_child
from support.processes.patience import until
from support.rules import rule

from allocator import Allocator
from allocator.database.store import Database
from allocator.errors import AllocatorClosed
from allocator.schemes.tag import Tag


@ON_SERVERS
def test_the_parents_connection_survives_the_child_which_opens_its_own(url, tag):
    with Allocator(url) as ids:
        ids.reserve(tag, 1)
        before = backend(ids)
        assert in_child(lambda: backend(ids)) != str(before)
        for _ in range(3):
            in_child(lambda: ids.reserve(tag, 1))
        in_child(ids.close)

        assert ids.reserve(tag, 1) == range(5, 6)
        assert backend(ids) == before


def backend(ids: Allocator) -> object:
    """The server's name for our connection."""
    ask = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
    question = ask[database_of(ids).dialect.name]
    return database_of(ids).run(lambda connection, _: connection.exec_driver_sql(question).scalar())


def test_a_fork_while_close_waits_duplicates_nothing(url, tag):
    with Wire(url) if not url.startswith("sqlite") else nullcontext() as wire:
        ids = Allocator(wire.url if wire else url, timeout=2, step=20, max_step=20)
        ids.next_ids(tag, 2)
        if wire:
            wire.deaf = True
        ids.next_id(tag)  # low water: a claim is under way
        closing = threading.Thread(target=ids.close)
        closing.start()
        assert until(lambda: ids._terms.background.closed.ended)
        theirs = in_child(lambda: ids.next_id(tag))
        with pytest.raises(AllocatorClosed):
            ids.next_id(tag)
        closing.join(10)

    assert theirs.startswith("AllocatorClosed")


@rule(11)
@SQLITE
def test_control_without_the_hook_a_child_repeats_the_parents_ids(url, tag):
    from allocator.runtime import forks

    with Allocator(url) as ids:
        ids.next_id(tag)
        forks.alive.discard(ids)  # the rule, broken
        theirs = in_child(lambda: ids.next_id(tag))

        assert theirs == str(ids.next_id(tag))


@rule(3)
def test_claims_of_one_moment_have_no_id_in_common(url, tag):
    """And what was claimed is what the rows say, on eight connections that claim three tags in turns of their own."""
    names = [f"{tag}.{number}" for number in range(3)]
    ready = threading.Barrier(8)

    def run(number: int) -> list[tuple[str, range]]:
        with closing(Database(url, timeout=60)) as database:
            turned = names[number % 3 :] + names[: number % 3]
            for name in turned:
                database.open_segment(Tag(name), create=True)
            ready.wait()
            return [(name, database.claim_segment(name, 2, {})) for _ in range(12) for name in turned]

    with ThreadPoolExecutor(8) as pool:
        claimed = [one for found in pool.map(run, range(8)) for one in found]

    distinct([(name, one) for name, ids in claimed for one in ids])
    with Allocator(url) as ids:
        assert {name: ids.tags.get(name).max_value for name in names} == dict.fromkeys(names, 8 * 12 * 2)

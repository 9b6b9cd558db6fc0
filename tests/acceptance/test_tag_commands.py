"""`allocator tags list|show|delete`: what cannot be undone has to be confirmed."""

from __future__ import annotations

import json
from contextlib import closing
from unittest.mock import Mock

import pytest
from support.kit import SQLITE, run
from support.servers.administrator import execute

from allocator import Allocator
from allocator.database.store import Database
from allocator.errors import DatabaseRefused, MaxValueWentBack, UnknownTag
from allocator.schemes.tag import Tag


@pytest.fixture
def three(fresh: str) -> str:
    with closing(Allocator(fresh)) as ids:
        for name, start, limit in (("order-eu", 10, 1_000), ("order-us", 500, 1_000_000), ("user", 90, 100)):
            ids.tags.create(name, start_after=start, limit=limit, step=1)
    return fresh


def listed(url: str, *words: str) -> list[str]:
    return [tag["tag"] for tag in run(url, "tags", "list", *words, "--json").json]


@SQLITE
def test_tags_are_chosen_by_name(three):
    assert listed(three, "order-*") == ["order-eu", "order-us"]
    assert listed(three, "*-US") == []
    assert listed(three) == ["order-eu", "order-us", "user"]
    assert listed(three, "user") == ["user"]


@SQLITE
def test_a_tag_is_shown_with_what_remains_and_its_last_claim(fresh):
    run(fresh, "tags", "create", "order", "--limit", "1000")
    (before,) = run(fresh, "tags", "list", "order", "--json").json
    run(fresh, "next", "order", "-n", "10")
    (after,) = run(fresh, "tags", "list", "order", "--json").json

    assert (before["max_value"], before["remaining"], before["claimed_at"]) == ("0", "1000", None)
    assert (after["max_value"], after["remaining"]) == ("10", "990")
    assert after["claimed_at"]
    assert "error: tag 'other' does not exist" in run(fresh, "tags", "list", "other").err


@SQLITE
def test_a_misspelt_tag_is_answered_with_similar_ones(three):
    for words in ("list order_eu", "set order_eu --step 2", "repair order_eu", "delete order_eu"):
        assert run(three, "tags", *words.split()).err == (
            "error: tag 'order_eu' does not exist; similar tags: order-eu, order-us\n"
        )
    assert run(three, "next", "usr", "--no-create").err.endswith("similar tags: user\n")
    assert "create it with: allocator tags create bill" in run(three, "tags", "list", "bill").err


# -- delete


@SQLITE
def test_a_tag_that_never_gave_an_id_is_deleted_at_once(fresh):
    """Unless it was given a start: whoever makes it again should know that."""
    run(fresh, "tags", "create", "started", "--start-after", "5000")
    assert "may have issued ids up to 5000" in run(fresh, "tags", "delete", "started").err
    run(fresh, "tags", "create", "order")
    done = run(fresh, "tags", "delete", "order")

    assert (done.code, done.out) == (0, "deleted order\n")
    assert run(fresh, "tags", "list", "order").code == 1
    assert run(fresh, "tags", "delete", "order").err.startswith("error: tag 'order' does not exist")


@SQLITE
def test_a_tag_that_gave_ids_is_deleted_only_with_yes_and_the_last_id_is_said(fresh):
    run(fresh, "next", "order", "-n", "7")
    refused = run(fresh, "tags", "delete", "order")

    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "error: tag 'order' may have issued ids up to 7; they repeat if its name is used again; to confirm, add --yes\n"
    )
    assert run(fresh, "next", "order").out == "8\n"
    done = run(fresh, "tags", "delete", "order", "--yes")
    assert done.out == "deleted order; to use the name again: allocator tags create order --start-after 8\n"
    run(fresh, "tags", "create", "order", "--start-after", "8")
    assert run(fresh, "next", "order").out == "9\n"


@SQLITE
def test_with_json_it_has_to_be_confirmed_too(fresh):
    run(fresh, "next", "order")

    assert "add --yes" in json.loads(run(fresh, "tags", "delete", "order", "--json").err)["message"]
    done = run(fresh, "tags", "delete", "order", "--json", "--yes")
    assert json.loads(done.out) == {"deleted": "order", "last": "1"}


@SQLITE
def test_a_user_that_may_not_delete_closes_no_tag(fresh):
    with closing(Allocator(fresh)) as ids:
        ids.reserve("order", 5)
        (database,) = ids.tags.databases()
        database.remove_tag = Mock(side_effect=DatabaseRefused("no right to delete"))
        with pytest.raises(DatabaseRefused, match="no right"):
            ids.tags.delete("order", 5)

        assert ids.reserve("order", 5)[-1] == 10


@SQLITE
def test_the_start_of_a_deleted_tag_is_above_ids_that_a_failover_forgot(fresh):
    run(fresh, "next", "order")
    execute(fresh, "UPDATE allocator_shard SET server_run = 'elsewhere'")
    done = run(fresh, "tags", "delete", "order", "--yes")

    assert int(done.out.split()[-1]) > 1 << 22


@pytest.mark.statements
def test_a_row_that_is_open_is_not_deleted(fresh):
    with closing(Allocator(fresh)) as ids, closing(Database(fresh)) as database:
        ids.reserve("order", 5)

        assert not database.remove_tag("order")
        assert database.close_tag(Tag("order", 5))
        assert database.remove_tag("order")


@SQLITE
def test_a_process_that_still_draws_from_a_deleted_tag_stops(fresh):
    with closing(Allocator(fresh, step=1, max_step=1)) as ids:
        ids.reserve("order", 5)
        run(fresh, "tags", "delete", "order", "--yes")

        with pytest.raises((MaxValueWentBack, UnknownTag)):
            ids.reserve("order", 5)

"""Many tags: read, listed and answered in pages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import create_engine, insert
from support.kit import run
from support.service.served import Served

from allocator import Allocator
from allocator.database import tables
from allocator.fleet.tag_administration import Tags
from allocator.schemes.tag import Tag
from allocator.service.served_ids import page_of
from allocator.testing import MemoryBackend

ENDINGS = ("-b", ".a", "0", ":c", "A", "Z", "_d", "a", "b")
"""Their order byte by byte is not that of a language."""


def pages(service: Served, token: str | None = None, **query: Any) -> list[list[str]]:
    """The names of the tags, page by page."""
    found: list[list[str]] = []
    following: str | None = ""
    while following is not None:
        fields = query | ({"after": following} if following else {})
        path = "/v1/tags?" + "&".join(f"{name}={value}" for name, value in fields.items())
        answer = service.get(path, token=token).json
        found.append([one["tag"] for one in answer["tags"]])
        following = answer.get("next")
    return found


@pytest.mark.statements
def test_pages_follow_each_other_byte_by_byte(kind, served, tag):
    service = served(kind)
    names = [f"{tag}{ending}" for ending in ENDINGS]
    for name in reversed(names):
        assert service.put(f"/v1/tags/{name}", json={}).status == 201
    found = pages(service, limit=2)
    listed = [name for page in found for name in page]

    assert [len(page) for page in found[:-1]] == [2] * (len(found) - 1)
    assert listed == sorted(set(listed))
    assert [name for name in listed if name in names] == names
    assert service.get(f"/v1/tags?after={tag}Z&limit=1").json["tags"][0]["tag"] == f"{tag}_d"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service with 2,500 tags."""
    url = f"sqlite:///{tmp_path_factory.mktemp('crowded')}/ids.db"
    with Allocator(url) as ids:
        ids.next_id("order")
    engine = create_engine(url)
    row = {"max_value": 7, "step": 10, "max_step": 100, "id_limit": 1000, "failover_gap": 0}
    with engine.begin() as connection:
        connection.execute(insert(tables.segment), [{**row, "tag": f"tag-{number:04}"} for number in range(2_499)])
    engine.dispose()
    with Served(url) as service:
        yield service


def test_a_page_has_a_hundred_tags_and_a_thousand_at_most(crowded):
    first = crowded.get("/v1/tags").json

    assert (len(first["tags"]), first["next"]) == (100, "tag-0098")
    assert [len(page) for page in pages(crowded, limit=1000)] == [1000, 1000, 500]
    assert crowded.get("/v1/tags?after=tag-2498").json == {"tags": []}
    for query in ("limit=0", "limit=1001", "limit=x", "after=", "after=a%20b"):
        assert crowded.get(f"/v1/tags?{query}").status == 400, query


def test_the_client_and_the_command_follow_pages(crowded):
    with Allocator(crowded.address) as ids:
        assert len(ids.tags.list()) == 2_500
    assert len(run(crowded.address, "tags", "list").out.splitlines()) == 2_501


def test_many_readers_wait_for_each_other_and_nobody_for_them(crowded):
    def read(number: int) -> Any:
        return crowded.get("/v1/tags?limit=1000")

    with ThreadPoolExecutor(60) as pool:
        answers = [pool.submit(read, number) for number in range(120)]
        claims = [crowded.post("/v1/tags/order/segments?size=10").status for _ in range(5)]
    refused = [answer for one in answers if (answer := one.result()).status != 200]

    assert claims == [200] * 5
    assert {(one.status, one.headers["Retry-After"]) for one in refused} <= {(503, "1")}  # after the timeout
    assert crowded.get("/v1/tags").status == 200


def test_a_reader_of_a_few_tags_learns_no_name_of_others():
    rows = MemoryBackend()
    for number in range(2_500):
        rows.create_tag(Tag(f"hidden-{number}" if number % 500 else f"seen-{number}", 0), rows.read_shard())
    tags = Tags(lambda: [rows], Tag("", 0))  # type: ignore[list-item]

    def sees(name: str) -> bool:
        return name.startswith("seen")

    assert [tag.name for tag in page_of(tags._page, "", 2, sees)] == ["seen-0", "seen-1000"]
    assert [tag.name for tag in page_of(tags._page, "seen-1000", 9, sees)] == ["seen-1500", "seen-2000", "seen-500"]


def test_pages_of_shards_are_those_of_all_their_tags():
    """Of a tag that two shards have, the greater value is shown, wherever the pages are cut."""
    shards = [MemoryBackend() for _ in range(3)]
    for number in range(24):
        for which, shard in enumerate(shards):
            if number % (which + 2) == 0:
                shard.create_tag(Tag(f"tag-{number:02}", 10 * which), shard.read_shard())
    tags = Tags(lambda: shards, Tag("", 0))  # type: ignore[arg-type, return-value]
    listed = [(tag.name, tag.max_value) for tag in tags.list()]
    for limit in (1, 2, 3, 7, 50):
        found: list[Tag] = []
        while page := page_of(tags._page, found[-1].name if found else "", limit, bool):
            found += page

        assert [(tag.name, tag.max_value) for tag in found] == listed, limit

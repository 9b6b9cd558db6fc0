"""The statements of `docs/migrating.md` that print commands: our ids continue above all of Leaf's and tinyid's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.distinct import distinct
from support.documents.pages import ROOT, blocks
from support.servers.administrator import execute, values
from support.servers.databases import with_schema

from allocator import Allocator

pytestmark = pytest.mark.parametrize("kind", ["mysql", "mariadb"])

LEAF, TINYID = (
    block.text.partition("\n")[2].partition(";")[0]
    for block in blocks(ROOT / "docs" / "migrating.md")
    if "SELECT CONCAT('allocator tags create" in block.text
)
LEAF_TABLE = "CREATE TABLE leaf_alloc (biz_tag varchar(128) PRIMARY KEY, max_id bigint NOT NULL DEFAULT 1, step int)"
TINYID_TABLE = "CREATE TABLE tiny_id_info (biz_type varchar(63) PRIMARY KEY, max_id bigint, step int, delta int)"
ODD = ("'; touch x; '", "a b", "$(touch x)", "`touch x`", "a\ntouch x", "")


OF_LEAF = range(1, 31)
OF_TINYID = [*range(2, 11, 2), *range(1, 31, 2)]
"""What these may have given: `delta` databases share the numbers by remainder."""


def ours(lines: list[str], url: str, folder: Path) -> list[int]:
    """What is drawn after the lines were run in a shell."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ALLOCATOR_DATABASE_URL": with_schema(url)}
    subprocess.run(["sh", "-c", "\n".join(lines)], cwd=folder, env=environment, check=False, capture_output=True)
    with Allocator(url) as ids:
        return list(ids.reserve("order", 20))


def test_our_ids_continue_above_those_of_leaf(kind, new_database, empty, tmp_path):
    """After three claims of a tag, beside names that a shell would run."""
    leaf = new_database(kind)
    odd = [f"INSERT INTO leaf_alloc (biz_tag) VALUES ('{name.replace(chr(39), chr(39) * 2)}')" for name in ODD]
    claims = ["UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'order'"] * 3
    execute(leaf, LEAF_TABLE, "INSERT INTO leaf_alloc (biz_tag, step) VALUES ('order', 10), ('new', 10)", *odd, *claims)
    lines = values(leaf, LEAF)
    drawn = ours(lines, empty, tmp_path)

    assert len(lines) == 3, "the empty name is refused, the other odd ones are not printed"
    assert distinct([*OF_LEAF, *drawn]) == 50
    assert drawn[0] == 31
    with Allocator(empty) as ids:
        assert {tag.name: tag.max_value for tag in ids.tags.list()} == {"new": 0, "order": 50}
    assert list(tmp_path.iterdir()) == []


def test_our_ids_continue_above_those_of_all_databases_of_tinyid(kind, new_database, tmp_path):
    """That share a type: one after a claim, one after three. In any order: the second line raises the tag, or is
    refused."""
    lines = []
    for claims in (1, 3):
        url = new_database(kind)
        execute(url, TINYID_TABLE, f"INSERT INTO tiny_id_info VALUES ('order', {10 * claims}, 10, 2)")
        lines += values(url, TINYID)
    for order in (lines, lines[::-1]):
        drawn = ours(order, new_database(kind), tmp_path)

        assert distinct([*OF_TINYID, *drawn]) == 40
        assert drawn[0] == 31

"""Delete a tag: its row in each database.

A tag that is made again under the name begins at 1. So the caller must name the last id, and the tag is deleted only
while that is still the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from allocator.errors import InvalidSetting
from allocator.fleet.tag_administration import complete
from allocator.schemes.shared.argument_checks import check_tag
from allocator.schemes.tag import Tag, unknown

if TYPE_CHECKING:
    from allocator.database.store import Database


def last_claimed(databases: Iterable[Database], name: str) -> int:
    """The greatest id claimed from a tag; 0 if none was. Raises `UnknownTag`."""
    rows = [row for _, row in rows_of(databases, name)]
    if not rows:
        raise unknown(name)
    return max(map(last_of, rows))


def delete(databases: Sequence[Database], name: str, last: int) -> None:
    """Delete a tag that gave no id above `last`, the result of `last_claimed`."""
    with complete(databases):
        for database, row in rows_of(databases, name):
            if last_of(row) > last or not database.remove_tag(row):
                raise InvalidSetting(f"tag {name!r} is in use: ids were claimed meanwhile, and it was not deleted")


def rows_of(databases: Iterable[Database], name: str) -> list[tuple[Database, Tag]]:
    found = [(database, database.fetch_tag(check_tag(name))) for database in databases]
    return [(database, row) for database, row in found if row is not None]


def last_of(row: Tag) -> int:
    return row.max_value if row.max_value > row.skipped else 0

"""Tags bound to columns: the rows of `allocator_binding`, and facts about a column.

Facts come from the catalog and an index alone: no table is scanned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, delete, func, literal_column, select

from allocator.database.columns import takeovers
from allocator.database.dialect import Dialect
from allocator.database.schema.tables import binding as rows_of_bindings
from allocator.database.schema.tables import takeover as rows_of_takeovers
from allocator.database.verbs import segments
from allocator.errors import InvalidSetting
from allocator.rules.column_bindings import HELD, Binding, Bound, Placed
from allocator.rules.takeover_ranges import ColumnFacts
from allocator.schemes.shared.argument_checks import MAX_ID, check_tag, split_column
from allocator.schemes.tag import unknown

P = TypeVar("P", bound=Placed)

KEPT = rows_of_bindings.c
GIVEN_BACK = "given back"


def fetch_all(connection: Connection, dialect: Dialect, tag: str = "") -> Sequence[Binding]:
    """Fetch the bindings of a tag or of all, sorted by place. A takeover counts as one until it is given back."""
    kept = select(rows_of_bindings).where(KEPT.tag == tag if tag else KEPT.tag != "")
    found = {row.place: Binding(*row) for row in connection.execute(kept)}
    for place in connection.scalars(select(rows_of_takeovers.c.place)).all():
        row = takeovers.fetch(connection, place)
        if row is not None and row.state != GIVEN_BACK and tag in {"", row.tag}:
            first = row.ranges.tag_first
            found[place] = Binding(place, row.tag, row.started_given, first, 0, row.started_at, row)
    return [found[place] for place in sorted(found)]


def bind(connection: Connection, dialect: Dialect, words: str, name: str) -> Binding:
    """Bind a tag to table.column or schema.table.column, and return the binding. A repeated call changes nothing.

    Raises `UnknownTag` and `InvalidSetting`.
    """
    place, part = split_column(words)
    schema, _, bare = place.rpartition(".")
    facts = fetch_facts(connection, dialect, schema, bare, part)
    check(facts)
    known = next((one for one in fetch_all(connection, dialect) if one.place == facts.place), None)
    if known is not None:
        if known.tag == name:
            return known
        end = "takeover back" if known.takeover else "tags unbind"
        raise InvalidSetting(
            f"{facts.place} is bound to tag {known.tag!r} already; first run: allocator {end} {facts.place}"
        )
    tag = segments.fetch(connection, dialect, check_tag(name))
    if tag is None:
        raise unknown(name)
    now = int(connection.scalar(select(literal_column(dialect.clock))) or 0)
    if facts.greatest > facts.limit:  # a BIGINT UNSIGNED
        raise InvalidSetting(f"{facts.place} is at {facts.greatest:,}, and no tag gives ids above {facts.limit:,}")
    first = min(max(facts.greatest, 0 if tag.claimed_at else tag.max_value) + 1, MAX_ID)
    made = Binding(facts.place, name, facts.greatest, first, tag.max_value - tag.skipped, now)
    values = {part.name: getattr(made, part.name) for part in KEPT}
    connection.execute(dialect.insert_missing(rows_of_bindings).values(**values))
    return made


def check(facts: ColumnFacts) -> None:
    """Raise `InvalidSetting` for a column without whole numbers, or without an index that finds the greatest."""
    if not facts.is_whole:
        raise InvalidSetting(f"{facts.place} is {facts.type}, and holds no whole numbers")
    if not facts.is_indexed:
        raise InvalidSetting(
            f"no index begins with {facts.place}, so only a scan of the table could tell its greatest value; make an "
            "index first"
        )


def unbind(connection: Connection, dialect: Dialect, words: str) -> Binding:
    """End the binding that is named by its place or the end of it, and return it. Raises `InvalidSetting`.

    The binding of a takeover ends only if its column is gone.
    """
    one = the_one(fetch_all(connection, dialect), words, "no tag is")
    if one.takeover and find_facts(connection, dialect, one.place) is not None:
        raise InvalidSetting(f"{one.place} is bound by its takeover; first run: allocator takeover back {one.place}")
    connection.execute(delete(rows_of_bindings).where(KEPT.place == one.place))
    if one.takeover:
        connection.execute(delete(rows_of_takeovers).where(rows_of_takeovers.c.place == one.place))
    return one


def the_one(found: Iterable[P], words: str, none: str) -> P:
    """The binding that is named by its place or the end of it. Raises `InvalidSetting` for none, or for several."""
    split_column(words)
    named = [one for one in found if one.is_named(words)]
    if not named:
        raise InvalidSetting(f"{none} bound to {words:.255}")
    if len(named) > 1:
        raise InvalidSetting(f"{words} is not clear: name one of {', '.join(one.place for one in named)}")
    return named[0]


def forget(connection: Connection, dialect: Dialect, tag: str) -> None:
    """Delete the bindings of a tag that was deleted."""
    connection.execute(delete(rows_of_bindings).where(KEPT.tag == tag))


def fetch_facts(connection: Connection, dialect: Dialect, schema: str, name: str, part: str) -> ColumnFacts:
    """Fetch the facts of a column. Raises `InvalidSetting` if there is no such column."""
    return dialect.tools().fetch_facts(connection, schema, name, part)


def find_facts(connection: Connection, dialect: Dialect, place: str) -> ColumnFacts | None:
    """Fetch the facts of a column; None if it is gone."""
    try:
        return fetch_facts(connection, dialect, *takeovers.parts_of(place))
    except InvalidSetting:
        return None


def read(connection: Connection, dialect: Dialect, binding: Binding) -> Bound:
    """Read a bound column, and then its tag, for the doctor. Raises `InvalidSetting` for a column without an index.

    The tag only rises. Read in this order, a claim and an INSERT in between raise no alarm.
    """
    with by_index(connection, dialect):
        facts = find_facts(connection, dialect, binding.place)
        if facts is None:
            return Bound(binding)
        check(facts)
        taken, key = binding.takeover, takeovers.key_of(facts.place)
        greatest = takeovers.greatest_of_tag(connection, facts.place, taken.ranges) if taken else facts.greatest
        smallest = connection.scalar(select(func.min(key)))
        stray, above = stray_row(connection, binding, facts)
        if stray > above and taken:  # the counter may have moved in between
            facts = find_facts(connection, dialect, binding.place) or facts
            _, above = stray_row(connection, binding, facts)
        has_trigger = taken is not None and not facts.below
        return Bound(
            binding,
            facts,
            segments.fetch(connection, dialect, binding.tag),
            greatest,
            smallest,
            stray if stray > above else 0,
            above,
            has_trigger and takeovers.native(dialect).is_refused(connection, facts.place),
        )


def stray_row(connection: Connection, binding: Binding, facts: ColumnFacts) -> tuple[int, int]:
    """The greatest row that neither tag nor counter can have issued, and the id above which it was searched.

    The row is 0 if there is none.
    """
    taken = binding.takeover
    low, below = binding.greatest, binding.tag_first
    if taken:
        if not facts.below:  # any inserted row moves this counter, so it cannot stay below the tag
            return 0, 0
        low = facts.given if taken.state in HELD and facts.counter else taken.given
        below = taken.ranges.native_last + 1
    key = takeovers.key_of(facts.place)
    found = connection.scalar(select(func.max(key)).where(key > low, key < below)) if low + 1 < below else None
    return found or 0, low


@contextmanager
def by_index(connection: Connection, dialect: Dialect) -> Iterator[None]:
    """Read by index: PostgreSQL would scan a table that its statistics call small."""
    if not dialect.index_only:
        yield
        return
    with dialect.transaction(connection):
        connection.exec_driver_sql(dialect.index_only)
        yield

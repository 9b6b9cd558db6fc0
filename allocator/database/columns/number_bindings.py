"""Numbers bound to columns: the rows of `allocator_number_binding`, and the rows with one of the next numbers.

An index finds these rows: no table is scanned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from itertools import product, takewhile
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Enum,
    Integer,
    Numeric,
    String,
    Uuid,
    bindparam,
    column,
    delete,
    select,
    union_all,
)
from sqlalchemy.types import NullType, TypeEngine

from allocator.database.columns.bindings import by_index, fetch_facts, find_facts, the_one
from allocator.database.columns.column_types import kinds_of
from allocator.database.connection import inspector_of
from allocator.database.dialect import Dialect
from allocator.database.schema.tables import number_binding
from allocator.database.verbs.number_columns import Source, fetch_newest
from allocator.errors import InvalidSetting
from allocator.rules.bound_numbers import (
    SHOWN,
    BoundNumbers,
    NumberBinding,
    above,
    check_foretold,
    following,
    newest,
    written,
)
from allocator.rules.gapless_audit import Found, Group, read_row, scopes_of, uuid_of
from allocator.schemes.gapless_numbers import NumberRule, first_day
from allocator.schemes.shared.argument_checks import MAX_ID, split_column

KEPT = number_binding.c
SPECIAL = ("_where", "_using", "_prefix")
"""Suffixes of options of indexes that do not help: a partial one lacks rows, one that is no tree has no order."""
COUNTERS = 1_000
"""Compare at most this many counters of a binding, the newest: one scope per customer makes many."""
BATCH = 20
ROWS = 100_000
"""Rows of a binding after which no more counters are compared: days of many years may have the same bare numbers."""
DECIMALS = 18
"""Digits of a NUMERIC whose numbers all fit in 64 bits: some of 19 digits do not."""
SAMPLE = 100
"""A column without counters holds numbers if one row of 100 can be read as one."""
IS_WHOLE = re.compile("-?[0-9]{1,20}")


def fetch_all(connection: Connection, dialect: Dialect, name: str = "") -> Sequence[NumberBinding]:
    """Fetch the bindings of a name or of all, sorted by place."""
    wanted = select(number_binding).where(KEPT.name == name if name else KEPT.name != "").order_by(KEPT.place)
    return [NumberBinding(*row) for row in connection.execute(wanted)]


def bind(connection: Connection, dialect: Dialect, wanted: NumberBinding, zone: tzinfo) -> BoundNumbers:
    """Bind numbers to the column that `wanted.place` names, and return what the doctor reads of both.

    A repeated call changes nothing. Raises `InvalidSetting`.
    """
    table, part = split_column(wanted.place)
    schema, _, bare = table.rpartition(".")
    place = fetch_facts(connection, dialect, schema, bare, part).place
    counters, _ = fetch_newest(connection, wanted.name, COUNTERS)
    made = replace(wanted, place=place, reset=wanted.rule(counters, wanted.reset).reset)
    known = next((one for one in fetch_all(connection, dialect) if one.place == place), made)
    if known != made:
        raise InvalidSetting(
            f"{place} is bound to numbers {known.name!r} already, by other options; first run: "
            f"allocator numbers unbind {place}"
        )
    bound = read(connection, dialect, made, zone)
    values = {part.name: getattr(made, part.name) for part in KEPT}
    connection.execute(dialect.insert_missing(number_binding).values(**values))
    return bound


def unbind(connection: Connection, dialect: Dialect, words: str) -> NumberBinding:
    """End the binding that is named by its place or the end of it, and return it. Raises `InvalidSetting`."""
    one = the_one(fetch_all(connection, dialect), words, "no numbers are")
    connection.execute(delete(number_binding).where(KEPT.place == one.place))
    return one


def read(connection: Connection, dialect: Dialect, binding: NumberBinding, zone: tzinfo) -> BoundNumbers:
    """Read a bound column and its counters. Raises `InvalidSetting` without an index, or if the format needs a date."""
    with by_index(connection, dialect):
        if find_facts(connection, dialect, binding.place) is None:
            return BoundNumbers(binding, is_there=False)
        counters, has_more = fetch_newest(connection, binding.name, COUNTERS)
        held = column_of(connection, dialect, binding, binding.rule(counters), zone, counters)
        if not counters:
            return BoundNumbers(binding, orphan=held.any_number())
        seen, compared = held.next_rows(counters)
        # A number may have been drawn and its row committed in between: then the counter has passed it.
        passed = fetch_newest(connection, binding.name, COUNTERS)[0] if seen else {}
        wrong = sorted({group for group, _ in above(seen, passed)})
        below = {group: (passed[group], newest(passed[group], partial(held.taken, group))) for group in wrong[:SHOWN]}
        has_more = has_more or compared < len(counters)
        return BoundNumbers(binding, True, below, len(wrong) - len(below), "", compared, has_more)


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A column of numbers, searched by number, and by scope and year where columns hold these."""

    connection: Connection
    rule: NumberRule
    zone: tzinfo
    source: Source
    scope_kind: TypeEngine[Any]
    by_year: bool
    scopes: Mapping[str, str]

    def next_rows(self, counters: Mapping[Group, int]) -> tuple[list[tuple[Group, int]], int]:
        """The rows above their counters with one of the next numbers, and how many counters were compared."""
        asked = [(group, following(n)) for group, n in counters.items()]
        seen: list[tuple[Group, int]] = []
        read = compared = 0
        while compared < len(asked) and read < ROWS:
            found = self.rows(asked[compared : compared + BATCH])
            seen += above(found, counters)
            read, compared = read + len(found), min(compared + BATCH, len(asked))
        return seen, compared

    def taken(self, group: Group, numbers: range) -> set[int]:
        """The numbers of this range that rows of the group have."""
        return {n for found, n in self.rows([(group, numbers)]) if found == group and n in numbers}

    def any_number(self) -> str:
        """A number of the column as text, of some rows: others may be older than the format. "" for none."""
        found = self.connection.execute(self.source.rows().limit(SAMPLE))
        return next((str(row[0]) for row in found if not isinstance(self.read(row), Found)), "")

    def read(self, row: Sequence[Any]) -> tuple[Group, int] | Found:
        return read_row(self.rule, self.zone, *row, scopes=self.scopes)

    def rows(self, asked: Sequence[tuple[Group, range]]) -> list[tuple[Group, int]]:
        """The rows with these numbers, read as the audit reads them. Some may belong to other groups."""
        wanted = [
            self.source.rows().where(*where)
            for group, numbers in asked
            for where in product(self.having(group, numbers), *self.beside(group))
        ]
        found = self.connection.execute(union_all(*wanted)).all() if wanted else ()
        read = (self.read(row) for row in found)
        return [one for one in read if not isinstance(one, Found)]

    def having(self, group: Group, numbers: range) -> list[ColumnElement[bool]]:
        kind: TypeEngine[Any] = String() if self.source.is_text else BigInteger()
        values: list[Any] = written(self.rule, group, numbers) if self.source.is_text else list(numbers)
        return [column(self.source.column, kind).in_(values)]

    def beside(self, group: Group) -> Iterator[list[ColumnElement[bool]]]:
        """Conditions on the columns of scope and period for rows of the group; each comparison is one index range.

        Empty where the column cannot hold the scope.
        """
        if self.source.scope:
            yield [is_value(self.source.scope, one) for one in values_of(self.scope_kind, group.scope)]
        if self.by_year:
            yield [column(self.source.period) == first_day(group.period).year]


def is_value(name: str, value: object) -> ColumnElement[bool]:
    """PostgreSQL takes a parameter without a type as its column's: so also an enum, and CHAR by its index."""
    return column(name).is_(None) if value is None else column(name) == bindparam(None, value, type_=NullType())


def values_of(kind: TypeEngine[Any], scope: str) -> list[object]:
    """A scope as its column may hold it. A UUID as text has dashes or none; the empty scope is NULL or ''."""
    empty: list[object] = [] if scope else [None]
    if isinstance(kind, Enum):
        return [*empty, scope] if scope in kind.enums else empty
    if isinstance(kind, String | NullType):
        return [*empty, *spellings(scope)]
    if isinstance(kind, Uuid):
        known = uuid_of(scope)
        return [*empty, *([] if known is None else [str(known)])]
    greatest = 2 * MAX_ID + 1 if getattr(kind, "unsigned", False) else MAX_ID
    is_held = IS_WHOLE.fullmatch(scope) and -MAX_ID - 1 <= int(scope) <= greatest
    return [*empty, *([int(scope)] if is_held else [])]


def spellings(scope: str) -> list[str]:
    known = uuid_of(scope)
    return [scope] if known is None else list(dict.fromkeys([scope, str(known), known.hex]))


def check_scope(connection: Connection, dialect: Dialect, place: str, kind: TypeEngine[Any]) -> None:
    """Raise `InvalidSetting` for a type that scopes cannot be compared with."""
    known = Integer if dialect.columns_have_types else NullType
    is_whole = isinstance(kind, Numeric) and kind.scale == 0 and (kind.precision or 99) <= DECIMALS
    if not is_whole and not isinstance(kind, String | Integer | Uuid | known):
        raise InvalidSetting(
            f"{place} is {words_of(connection, kind)}: scopes are compared with text, whole numbers and UUIDs alone"
        )


def words_of(connection: Connection, kind: TypeEngine[Any]) -> str:
    return "of a type that is not known" if isinstance(kind, NullType) else kind.compile(connection.dialect)


def column_of(
    connection: Connection,
    dialect: Dialect,
    binding: NumberBinding,
    rule: NumberRule,
    zone: tzinfo,
    counters: Iterable[Group],
) -> NumberColumn:
    """Raises `InvalidSetting` where an index or a column is missing, or the format does not fit the column."""
    table, part = split_column(binding.place)
    schema, _, bare = table.rpartition(".")
    kinds = kinds_of(connection, bare, schema)
    scope, period = binding.scope_column.lower(), binding.period_column.lower()
    for name in (binding.scope_column, binding.period_column):
        if name and name.lower() not in kinds:
            raise InvalidSetting(f"there is no table with a column {table}.{name}")
    if scope:
        check_scope(connection, dialect, f"{table}.{binding.scope_column}", kinds[scope])
    is_text = isinstance(kinds[part.lower()], String)
    if not is_text and not rule.format.is_bare:
        raise InvalidSetting(f"{binding.place} is no text, and the format is {rule.format.template!r}")
    check_foretold(rule)
    by_year = bool(period) and rule.reset == "year" and isinstance(kinds[period], Integer)
    needed = [one for one in (scope if "scope" not in rule.format.fields else "", part.lower()) if one]
    compared = {*needed, scope, *[period] * by_year}
    if not any(set(needed) <= set(takewhile(compared.__contains__, one)) for one in indexes(connection, bare, schema)):
        raise InvalidSetting(
            f"no index of {table} begins with ({', '.join(needed)}), so only a scan of the table could tell whether a "
            f"number is in it; create one: CREATE INDEX NAME ON {table} ({', '.join(needed)})"
        )
    source = Source(table, part, binding.scope_column, binding.period_column, is_text=is_text)
    return NumberColumn(connection, rule, zone, source, kinds.get(scope, NullType()), by_year, scopes_of(counters))


def indexes(connection: Connection, table: str, schema: str) -> Iterator[list[str]]:
    """The columns of each index that covers all rows, in order."""
    inspector = inspector_of(connection)
    found = [
        one["column_names"]
        for one in inspector.get_indexes(table, schema)
        if not any(name.endswith(SPECIAL) for name in one.get("dialect_options", ()))
    ]
    found += [list(one["column_names"]) for one in inspector.get_unique_constraints(table, schema)]
    found.append(list(inspector.get_pk_constraint(table, schema)["constrained_columns"]))
    return ([str(name).lower() for name in names] for names in found)

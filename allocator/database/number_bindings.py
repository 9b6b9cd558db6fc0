"""Numbers bound to columns: the rows of `allocator_number_binding`, and the rows with one of the next numbers.

An index finds these rows: no table is scanned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from itertools import takewhile
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Integer, String, column, delete, select, union_all
from sqlalchemy.types import NullType, TypeEngine

from allocator.database.bindings import by_index, fetch_facts, find_facts, the_one
from allocator.database.connection import inspector_of
from allocator.database.dialect import Dialect
from allocator.database.tables import number_binding
from allocator.database.verbs.columns import kinds_of
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
from allocator.schemes.checks import split_column
from allocator.schemes.number_audit import Found, Group, read_row
from allocator.schemes.numbering import NumberRule, first_day

KEPT = number_binding.c
SPECIAL = ("_where", "_using", "_prefix")
"""Suffixes of the options of a partial index, and of an index that is no tree."""
COUNTERS = 1_000
"""Counters of a binding that are compared with its column at most."""
BATCH = 20
"""Counters of one query."""
ROWS = 100_000
"""Rows of a binding after which no more counters are compared: days of many years may have the same bare numbers."""


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


# -- what the doctor reads


def read(connection: Connection, dialect: Dialect, binding: NumberBinding, zone: tzinfo) -> BoundNumbers:
    """Read a bound column and its counters. Raises `InvalidSetting` without an index, or if the format needs a date."""
    with by_index(connection, dialect):
        if find_facts(connection, dialect, binding.place) is None:
            return BoundNumbers(binding, is_there=False)
        counters, has_more = fetch_newest(connection, binding.name, COUNTERS)
        held = column_of(connection, binding, binding.rule(counters), zone)
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
        """A number of the column as text; "" if it holds none."""
        row = self.connection.execute(self.source.rows().limit(1)).first()
        return "" if row is None or isinstance(read_row(self.rule, self.zone, *row), Found) else str(row[0])

    def rows(self, asked: Sequence[tuple[Group, range]]) -> list[tuple[Group, int]]:
        """The rows with these numbers, read as the audit reads them. Some may belong to other groups."""
        wanted = [
            self.source.rows().where(*where) for group, numbers in asked if (where := self.conditions(group, numbers))
        ]
        found = self.connection.execute(union_all(*wanted)).all() if wanted else ()
        read = (read_row(self.rule, self.zone, *row) for row in found)
        return [one for one in read if not isinstance(one, Found)]

    def conditions(self, group: Group, numbers: range) -> list[ColumnElement[bool]]:
        """The WHERE conditions, each a comparison with values, for the index. Empty if no row can have this scope."""
        source = self.source
        kind: TypeEngine[Any] = String() if source.is_text else BigInteger()
        values: list[Any] = written(self.rule, group, numbers) if source.is_text else list(numbers)
        found: list[ColumnElement[bool]] = [column(source.column, kind).in_(values)]
        if source.scope:
            scope = value_of(self.scope_kind, group.scope)
            if scope is None and group.scope:
                return []
            found.append(column(source.scope) == scope)  # None becomes IS NULL
        if self.by_year:
            found.append(column(source.period) == first_day(group.period).year)
        return found


def value_of(kind: TypeEngine[Any], scope: str) -> object:
    """A scope as its column holds it: text, a number or a UUID; None where it cannot."""
    if isinstance(kind, NullType):  # a column of SQLite without a type
        return scope or None
    try:
        return kind.python_type(scope) if scope else None
    except (ValueError, TypeError, ArithmeticError, NotImplementedError):
        return None


def column_of(connection: Connection, binding: NumberBinding, rule: NumberRule, zone: tzinfo) -> NumberColumn:
    """Raises `InvalidSetting` where an index or a column is missing, or the format does not fit the column."""
    table, part = split_column(binding.place)
    schema, _, bare = table.rpartition(".")
    kinds = kinds_of(connection, bare, schema)
    scope, period = binding.scope_column.lower(), binding.period_column.lower()
    for name in (binding.scope_column, binding.period_column):
        if name and name.lower() not in kinds:
            raise InvalidSetting(f"there is no table with a column {table}.{name}")
    is_text = isinstance(kinds[part.lower()], String)
    if not is_text and not rule.format.is_bare:
        raise InvalidSetting(f"{binding.place} is no text, and the format is {rule.format.template!r}")
    check_foretold(rule)
    by_year = bool(period) and rule.reset == "year" and isinstance(kinds[period], Integer)
    needed = [one for one in (scope if "scope" not in rule.format.fields else "", part.lower()) if one]
    compared = {*needed, scope, *[period] * by_year}
    if not any(set(needed) <= set(takewhile(compared.__contains__, one)) for one in indexes(connection, bare, schema)):
        raise InvalidSetting(
            f"no index begins with {table}.{' and '.join(needed)}, so only a scan of the table could tell whether a "
            "number is in it; make an index first"
        )
    source = Source(table, part, binding.scope_column, binding.period_column, is_text=is_text)
    return NumberColumn(connection, rule, zone, source, kinds.get(scope, NullType()), by_year)


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

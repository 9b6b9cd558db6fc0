"""The rows of `allocator_number` and `allocator_number_void`, in the transaction of a caller.

One statement inserts or raises the row of a name, scope and period, and returns its new number. The row stays locked
until that transaction ends. A ROLLBACK returns the number, and nobody has drawn a later one meanwhile. So there are no
gaps, and a scope has one writer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

from sqlalchemy import Connection, exists, select, update
from sqlalchemy.exc import SQLAlchemyError

from allocator.database.dialect import Dialect
from allocator.database.driver_errors import is_rolled_back, translate_drawn
from allocator.database.tables import number, shard
from allocator.errors import Exhausted, SchemaDamaged
from allocator.schemes.gapless_numbers import MAX_NUMBER, Number, NumberRule, out_of_numbers, place

if TYPE_CHECKING:
    from allocator.database.caller import Caller

T = TypeVar("T")

KEY = "name = :name AND scope = :scope AND period = :period"
PEEK = f"SELECT n FROM allocator_number WHERE {KEY}"
INSERT = "INSERT INTO allocator_number (name, scope, period, rule, n)"
KEPT = "SELECT rule FROM allocator_number WHERE rule <> '' AND {} LIMIT 1"
CONFLICT = "ON CONFLICT (name, scope, period) DO UPDATE SET n ="
RAISE = f"{CONFLICT} allocator_number.n + {{count}}, rule = :rule WHERE allocator_number.rule IN ('', :rule)"
RAISE_TO = f"{CONFLICT} CASE WHEN allocator_number.n < {{n}} THEN {{n}} ELSE allocator_number.n END"
VOID = (
    "INTO allocator_number_void (name, scope, period, n, written, reason, voided_at) "
    "VALUES (:name, :scope, :period, {n}, :written, :reason, CURRENT_TIMESTAMP)"
)

DUPLICATE = "ON DUPLICATE KEY UPDATE n ="
VALUES = f"{INSERT} VALUES (:name, :scope, :period, :rule, {{first}}) "
SAME = f"{DUPLICATE} IF(rule IN ('', :rule), {{raised}}, 0), rule = :rule"
"""MySQL knows no condition here: the CHECK of the table refuses the 0."""

Parameters = Mapping[str, object]
"""Name, scope, period and rule of a row. Numbers are in the text: asyncpg would send small ones as a narrower type."""


class NumberDialect:
    """The statements of SQLite and PostgreSQL, and what differs between the databases.

    A caller waits for the row as long as the lock timeout of its own session says.
    """

    draws = f"{VALUES}{RAISE} AND allocator_number.n <= {{most}} RETURNING n"
    """It begins with INSERT: Python's sqlite3 opens a transaction for INSERT, and not for WITH."""
    raises = f"{INSERT} VALUES (:name, :scope, :period, '', {{n}}) {RAISE_TO}"
    reads = PEEK
    """The newest number of a row that this transaction has locked."""
    voids = f"INSERT {VOID} ON CONFLICT DO NOTHING"
    settles = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
    """First in a transaction of our own, so that what is read under the counter's lock is the newest."""
    by_key = ""
    """A hint: find rows by their primary key, and lock no others on the way."""
    cuts_down = False
    """Whether a column may take the greatest number that it holds for a greater one, without an error."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def commits_each(self, connection: Any, driver_connection: Any) -> bool:
        """Whether the driver is in autocommit, and no transaction is open."""
        return getattr(connection, "autocommit", False) is True and not self.dialect.leaves_open(driver_connection)

    def draw(self, caller: Caller, row: Parameters, first: int, count: int) -> int | None:
        """Raise the row by `count`, or insert it with `first`, and return its new number.

        None, or an error that means `Exhausted`, if it keeps another rule or fewer numbers are left.
        """
        return first_of(caller.run(drawing(self.draws, first, count), row))

    def rolls_back_at_timeout(self, caller: Caller) -> bool:
        """Whether the server rolls back the whole transaction where a statement waited too long; True if unknown."""
        return False


class SQLiteNumbers(NumberDialect):
    settles = ""  # the draw locks the file, and what is read after it is the newest

    def commits_each(self, connection: Any, driver_connection: Any) -> bool:
        commits = driver_connection.isolation_level is None or getattr(driver_connection, "autocommit", False) is True
        return commits and not self.dialect.leaves_open(driver_connection)


class MySQLNumbers(NumberDialect):
    """MySQL has no RETURNING: the number is the LAST_INSERT_ID in the response to the statement."""

    draws = VALUES + SAME.format(raised="LAST_INSERT_ID(n + {count})")
    raises = f"{INSERT} VALUES (:name, :scope, :period, '', {{n}}) {DUPLICATE} GREATEST(n, {{n}})"
    voids = f"INSERT IGNORE {VOID}"
    reads = f"{PEEK} FOR UPDATE"  # a read without a lock may be of an earlier moment
    by_key = "FORCE INDEX (PRIMARY)"
    cuts_down = True

    def commits_each(self, connection: Any, driver_connection: Any) -> bool:
        asked = getattr(connection, "get_autocommit", None)
        commits = asked() if callable(asked) else getattr(connection, "autocommit", False) is True
        return bool(commits) and not self.dialect.leaves_open(driver_connection)

    def draw(self, caller: Caller, row: Parameters, first: int, count: int) -> int | None:
        cursor = caller.run(drawing(self.draws, first, count), row)
        if cursor.rowcount == 1:
            return first  # a new row
        # Where the table has triggers no number comes back; the row is locked by this transaction.
        return int(cursor.lastrowid or 0) or first_of(caller.run(self.reads, row))

    def rolls_back_at_timeout(self, caller: Caller) -> bool:
        with suppress(SQLAlchemyError):
            return first_of(caller.run("SELECT @@innodb_rollback_on_timeout", {})) != 0
        return True


class MariaDBNumbers(MySQLNumbers):
    draws = f"{VALUES}{SAME.format(raised='n + {count}')} RETURNING n"
    draw = NumberDialect.draw


@lru_cache
def drawing(statement: str, first: int, count: int) -> str:
    return statement.format(first=first, count=count, most=MAX_NUMBER - count)


def first_of(cursor: Any) -> int | None:
    rows = cursor.fetchall()
    return int(rows[0][0]) if rows else None


@cache
def number_dialect(dialect: Dialect, *, is_mariadb: bool) -> NumberDialect:
    if dialect.embedded:
        return SQLiteNumbers(dialect)
    if not dialect.rolls_back_by_itself:
        return NumberDialect(dialect)
    return MariaDBNumbers(dialect) if is_mariadb else MySQLNumbers(dialect)


class Row(TypedDict):
    """The key of a row of `allocator_number`."""

    name: str
    scope: str
    period: str


def draw(caller: Caller, rule: NumberRule, row: Row, count: int) -> int:
    """Raise the row by `count`, and return the last number drawn. Raises `Exhausted`, and `InvalidSetting` where the
    counters of the name keep another rule."""
    first, last, kept = rule.start - 1 + count, None, {**row, "rule": rule.kept}
    if first <= MAX_NUMBER:
        with suppress(Exhausted):  # MySQL's, also where the row keeps another rule: see `SAME`
            last = translated(caller, row, lambda: caller.numbers.draw(caller, kept, first, count))
        if last is not None and last < count:
            caller.refuse_more()
            raise SchemaDamaged(
                f"{place(**row)} keeps another rule, and {caller.where} lets it be overwritten, since it enforces no "
                "CHECK; nothing was written: let it enforce them, then try again"
            )
        if last in {None, first}:  # a new row is compared with one of the others
            where = KEY if last is None else f"name = :name AND NOT ({KEY})"
            found = translated(caller, row, lambda: caller.run(KEPT.format(where), row).fetchall())
            if found and found[0][0] != rule.kept:
                caller.refuse_more()
                raise rule.other(found[0][0])
    if last is None:
        raise out_of_numbers(place(**row))
    return last


def fetch_last(caller: Caller, row: Row) -> int | None:
    """The newest number that this transaction sees; None before the first one."""
    return first_of(translated(caller, row, lambda: caller.run(PEEK, row)))


def raise_to(caller: Caller, row: Row, n: int) -> int:
    """Raise the newest number to `n` unless it is greater, and return it."""
    translated(caller, row, lambda: caller.run(caller.numbers.raises.format(n=n), row))
    return first_of(translated(caller, row, lambda: caller.run(caller.numbers.reads, row))) or n


def void(caller: Caller, row: Row, voided: Number, reason: str) -> bool:
    """Write down that a number is void; False if that was done before."""
    statement = caller.numbers.voids.format(n=voided.n)
    parameters = {**row, "written": voided.text, "reason": reason}
    return bool(translated(caller, row, lambda: caller.run(statement, parameters)).rowcount == 1)


def translated(caller: Caller, row: Row, act: Callable[[], T]) -> T:
    """Run a statement. Let its transaction take no other one unless the server has certainly kept it."""
    began, dialect, is_kept = monotonic(), caller.numbers.dialect, False
    try:
        found = act()
        is_kept = True
        return found
    except SQLAlchemyError as error:
        passed = monotonic() - began
        is_over = is_rolled_back(error, dialect, lambda: caller.numbers.rolls_back_at_timeout(caller))
        is_kept = not is_over
        raise translate_drawn(error, dialect, caller.where, place(**row), passed, is_over=is_over) from error
    finally:
        if not is_kept and dialect.rolls_back_by_itself:  # also after an exception of a signal handler: nobody looked
            caller.refuse_more()


# -- of all names, on a connection of our own


class Counter(NamedTuple):
    """A row of `allocator_number`: n is the newest number."""

    name: str
    scope: str
    period: str
    n: int
    rule: str = ""


def fetch_counters(connection: Connection, dialect: Dialect, name: str = "") -> Sequence[Counter]:
    """Fetch the counters of a name or of all, sorted."""
    return counters_in(connection, number, name)


def counters_in(connection: Connection, source: Any, name: str) -> Sequence[Counter]:
    """Fetch the rows of a name or of all, sorted."""
    key = (source.c.name, source.c.scope, source.c.period, source.c.n)
    wanted = select(*key, *(source.c[one] for one in ("rule",) if one in source.c)).order_by(*key)
    return [Counter(*row) for row in connection.execute(wanted.where(source.c.name == name) if name else wanted)]


def may_lack_numbers(connection: Connection) -> bool:
    """Whether there are counters in a database that has moved to another server, or was restored."""
    return bool(connection.scalar(select(shard.c.id).where(shard.c.moved_at > 0, exists(select(number.c.n)))))


def forget_rule(connection: Connection, dialect: Dialect, name: str) -> int:
    """Let the next draw decide by which rule the numbers of a name are counted. Returns how many counters there are."""
    return connection.execute(update(number).where(number.c.name == name).values(rule="")).rowcount

"""Numbers without gaps: how one is written and parsed, and when they restart.

format   "INV-{year}-{n:05}": any text with {n} and other FIELDS, each once; {{ and }} are braces
reset    never, year, month or day: in each period the numbers restart at `start`
period   "", "2026", "2026-03" or "2026-03-14": what `reset` names of a date; of a fiscal year, that of its first day
scope    "", or as a tag; each scope has numbers of its own
n        1 to 2**63 - 1

No two numbers of a scope have the same text, and each text names one number; other formats are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, date, datetime, tzinfo
from functools import cached_property
from shlex import quote
from typing import Literal, NamedTuple
from uuid import UUID

from allocator.errors import Exhausted, InvalidArgument, InvalidId, InvalidSetting, InvalidTag
from allocator.schemes.shared.argument_checks import MAX_ID, TAG, check_tag, check_whole, integer, quoted

Reset = Literal["never", "year", "month", "day"]

RESETS: Mapping[Reset, tuple[str, ...]] = {
    "never": (),
    "year": ("year",),
    "month": ("year", "month"),
    "day": ("year", "month", "day"),
}
"""A format must contain these fields: else two periods would write the same number."""

LENGTHS: Mapping[Reset, int] = {"never": 0, "year": 4, "month": 7, "day": 10}
"""Length of a period as text: a prefix of an ISO date."""

MAX_NUMBER = MAX_ID
MAX_COUNT = 10_000
"""`next` returns a list, and other callers of the scope wait until its transaction ends."""
MAX_FORMAT = 128
MAX_WIDTH = len(str(MAX_NUMBER))
MAX_REASON = 255
"""The width of the column `reason` of `allocator_number_void`."""

DIGITS = {"year": 4, "yy": 2, "end_yy": 2, "quarter": 1, "month": 2, "day": 2}
PADDED = {f"{{{name}}}": f"{{{name}:0{digits}}}" for name, digits in DIGITS.items()}
"""Padded with zeros for `str.format`: a year has 4 digits, month and day 2."""
FIELDS = ("n", *DIGITS, "scope")
YEARS = frozenset({"year", "yy", "end_yy"})
"""Fields that tell the year. Two digits are for 2000 to 2099: other years are refused, as their texts would repeat."""
CALENDAR = "01-01"
"""The first day of a year that is no fiscal year."""
PATTERNS = {
    "n": "[0-9]{1,19}",
    "scope": TAG.pattern,
    **{name: f"[0-9]{{{digits}}}" for name, digits in DIGITS.items()},
    "quarter": "[1-4]",
}
PIECE = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<field>\w+)(?::0(?P<width>[1-9][0-9]?))?\}|(?P<text>[^{}]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Number:
    """A number that was issued; `str()` is its text. Write `text` or `n` into a column: few drivers take the number.

    n: 1 to 2**63 - 1.
    text: what people see, as `INV-2026-00001`.
    scope: "" if there is only one.
    period: "", or the year, month or day in which it is counted, as `2026`, `2026-03` or `2026-03-14`.
    """

    n: int
    text: str
    scope: str = ""
    period: str = ""

    def __str__(self) -> str:
        return self.text


class Group(NamedTuple):
    """The scope and period that share one counter."""

    scope: str = ""
    period: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a format: either literal text or the name of a field."""

    text: str = ""
    field: str = ""


class NumberFormat:
    """A parsed format. Raises `InvalidSetting` if two numbers could have the same text."""

    def __init__(self, template: object) -> None:
        if not isinstance(template, str) or not 1 <= len(template) <= MAX_FORMAT or not template.isprintable():
            raise InvalidSetting(f"a format is 1 to {MAX_FORMAT} printable characters, got {quoted(template)}")
        self.template = template
        self._written = PIECE.sub(lambda piece: PADDED.get(piece.group(), piece.group()), template)
        self.pieces = list(pieces_of(template))
        named = [piece.field for piece in self.pieces if piece.field]
        self.fields = frozenset(named)
        self.two_digits = "year" not in self.fields and not self.fields.isdisjoint(YEARS)
        if "n" not in self.fields or len(named) != len(self.fields):
            raise InvalidSetting(f"a format holds {{n}} once, and no field twice, got {quoted(template)}")
        if "scope" in self.fields and not self._has_a_mark():
            raise InvalidSetting(
                f"between {{n}} and {{scope}} a format needs a character that is no digit, as in '{{scope}}-{{n}}', "
                f"got {quoted(template)}"
            )

    def __repr__(self) -> str:
        return f"NumberFormat({self.template!r})"

    def _has_a_mark(self) -> bool:
        """Whether text separates the scope from the number: a scope may begin or end with digits."""
        first, last = sorted(place for place, piece in enumerate(self.pieces) if piece.field in {"n", "scope"})
        between = "".join(piece.text for piece in self.pieces[first:last])
        return any(not character.isdecimal() for character in between)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        parts = (f"(?P<{p.field}>{PATTERNS[p.field]})" if p.field else re.escape(p.text) for p in self.pieces)
        return re.compile("".join(parts), re.ASCII)

    @property
    def is_bare(self) -> bool:
        """Whether the format is only the number; scope and period are in other columns then."""
        return len(self.pieces) == 1

    def write(self, n: int, day: date, scope: str) -> str:
        if self.template == "{n}":
            return str(n)
        short = {"yy": day.year % 100, "end_yy": (day.year + 1) % 100, "quarter": (day.month + 2) // 3}
        return self._written.format(n=n, year=day.year, **short, month=day.month, day=day.day, scope=scope)

    def read(self, text: object) -> dict[str, str]:
        """The fields of a text, and its `year`. Raises `InvalidId` unless `write` makes exactly this text of them."""
        match = self.pattern.fullmatch(text) if isinstance(text, str) else None
        if match:
            found = match.groupdict()
            if self.two_digits:
                short = int(found["yy"]) if "yy" in found else (int(found["end_yy"]) - 1) % 100
                found["year"] = str(2000 + short)
            n = int(found["n"])
            if 1 <= n <= MAX_NUMBER and self.write(n, day_in(found), found.get("scope", "")) == text:
                return found
        raise InvalidId(f"{quoted(text)} is no number of the format {self.template!r}")


def pieces_of(template: str) -> Iterator[Piece]:
    """Parse a format. Raises `InvalidSetting` for an unknown field or a single brace."""
    place = 0
    while place < len(template):
        match = PIECE.match(template, place)
        field = match["field"] if match else None
        if not match or (field and (field not in FIELDS or (match["width"] and field != "n"))):
            raise InvalidSetting(
                "the fields of a format are {n} or {n:05}, {year}, {yy}, {end_yy}, {quarter}, {month}, {day} and "
                f"{{scope}}, and a brace is written twice, got {quoted(template[place:])}"
            )
        if field:
            if int(match["width"] or 0) > MAX_WIDTH:
                raise InvalidSetting(f"{{n}} has at most {MAX_WIDTH} digits, got {quoted(match.group())}")
            yield Piece(field=field)
        else:
            yield Piece(text=match["text"] or match["brace"][0])
        place = match.end()


def day_in(fields: Mapping[str, str]) -> date:
    """A date with these fields. Raises `InvalidId` if there is none, as for 30 February."""
    first_month = 3 * int(fields.get("quarter", 1)) - 2
    try:
        return date(int(fields.get("year", 2000)), int(fields.get("month", first_month)), int(fields.get("day", 1)))
    except ValueError:
        text = "-".join(fields[name] for name in RESETS["day"] if name in fields)
        raise InvalidId(f"there is no date {text}") from None


@dataclass(frozen=True, slots=True)
class NumberRule:
    """How the numbers of a name are written and counted. Raises `InvalidTag` and `InvalidSetting`.

    start: the first number of each scope and period.
    year_starts: month and day of the first day of a year.
    timezone: the name of the time zone of dates; "-" if it has none.
    """

    name: str
    format: NumberFormat
    reset: Reset = "never"
    start: int = 1
    year_starts: str = CALENDAR
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        check_tag(self.name)
        check_whole("start", self.start, 1, MAX_NUMBER)
        if self.reset not in RESETS:
            raise InvalidSetting(f"reset must be 'never', 'year', 'month' or 'day', got {quoted(self.reset, 40)}")
        self._check_year()
        told = self.format.fields | ({"year"} if self.format.two_digits else set())
        missing = [name for name in RESETS[self.reset] if name not in told]
        if missing and not self.format.is_bare:
            raise InvalidSetting(
                f"the numbers restart each {self.reset}, so the format must hold {{{missing[0]}}}, or the same text "
                f"would repeat; got {self.format.template!r}. A bare '{{n}}' is for a table that has a column "
                "for the date"
            )

    def _check_year(self) -> None:
        if not is_day_of_each_year(self.year_starts):
            raise InvalidSetting(
                f"year_starts must be a month and day that each year has, as '04-01', got {quoted(self.year_starts)}"
            )
        if self.is_fiscal and self.reset != "year":
            raise InvalidSetting(f"year_starts={self.year_starts!r} needs reset='year', got reset={self.reset!r}")
        if not self.format.fields.isdisjoint({"month", "day"} if self.is_fiscal else {"end_yy"}):
            raise InvalidSetting(
                "a format with {month} or {day} is for years that start on 01-01, and one with {end_yy} for those that "
                f"do not, got {self.format.template!r} and year_starts={self.year_starts!r}"
            )

    @property
    def kept(self) -> str:
        """What a counter keeps: who draws by another rule would give a number twice, or in another year."""
        return f"{self.reset} {self.year_starts} {self.timezone} {self.format.template}"

    def other(self, kept: str) -> InvalidSetting:
        """The error that the counters keep another rule."""
        return InvalidSetting(
            f"the numbers of {self.name!r} are counted by {told(kept)}, and here by {told(self.kept)}; take those, or "
            f"stop whatever draws these numbers, and run: allocator numbers set {self.name} --reformat"
        )

    @property
    def is_fiscal(self) -> bool:
        return self.year_starts != CALENDAR

    def counted_day(self, day: date) -> date:
        """The date for `period` and `number`: in a fiscal year, the months count from its first day.

        Raises `InvalidArgument` for a year that the format cannot write.
        """
        month, first = (int(part) for part in self.year_starts.split("-"))
        year, months = divmod(day.year * 12 + day.month - month - (day.day < first), 12)
        least, most = (2000, 2099) if self.format.two_digits else (1, MAXYEAR)
        if not least <= year <= most:
            text = self.format.template
            raise InvalidArgument(f"at={day} is in the year {year}, but {text!r} is for {least} to {most}")
        return date(year, months + 1, 1) if self.is_fiscal else day

    def period(self, day: date) -> str:
        return "" if self.reset == "never" else day.isoformat()[: LENGTHS[self.reset]]

    @property
    def has_dates(self) -> bool:
        """Whether the period or the text depends on the date."""
        return self.reset != "never" or not self.format.fields.isdisjoint(DIGITS)

    def number(self, n: int, scope: str, period: str, day: date) -> Number:
        return Number(n, self.format.write(n, day, scope), scope, period)

    def parse(self, text: str, scope: str = "", period: str = "") -> Number:
        """The number that a text names; `scope` and `period` are taken from it where the format holds them.

        Raises `InvalidId` where the text is no number of this format, or of another scope or period than those given.
        """
        found = self.format.read(text)
        scope = agreed("scope", text, scope, found.get("scope", ""))
        names = RESETS[self.reset]
        if all(name in found for name in names):
            period = agreed("period", text, period, "-".join(found[name] for name in names))
        return Number(int(found["n"]), text, scope, period)

    def check_scope(self, scope: object) -> str:
        """Convert a scope to text; an int or a UUID is accepted too. Raises `InvalidTag`."""
        if type(scope) is str and TAG.fullmatch(scope):
            return scope
        if isinstance(scope, UUID) or type(integer(scope)) is int:
            scope = str(integer(scope))
        if scope == "" and isinstance(scope, str) and "scope" not in self.format.fields:
            return ""
        try:
            return check_tag(scope)
        except InvalidTag as error:
            empty = "" if "scope" in self.format.fields else "empty, or "
            raise InvalidTag(str(error).replace("a tag is ", f"the scope of {self.name!r} is {empty}", 1)) from None


def settings_in(kept: str) -> dict[str, str]:
    """The settings of a rule that a counter keeps; none where nobody has drawn."""
    return dict(zip(("reset", "year_starts", "timezone", "format"), kept.split(" ", 3), strict=False)) if kept else {}


def told(kept: str) -> str:
    """A rule as the options of a command."""
    return " ".join(f"--{name.replace('_', '-')} {quote(value)}" for name, value in settings_in(kept).items())


def agreed(what: str, text: str, given: str, found: str) -> str:
    """The scope or period that the text or the caller names. Raises `InvalidId` if they differ."""
    if given and found and given != found:
        raise InvalidId(f"{quoted(text)} is of the {what} {found!r}, not of {given!r}")
    return found or given


def place(name: str, scope: str, period: str) -> str:
    """Name, scope and period of a counter, for a message."""
    of_scope = f" of scope {scope!r}" if scope else ""
    return f"{name!r}{of_scope}{f' in {period}' if period else ''}"


def out_of_numbers(where: str) -> Exhausted:
    return Exhausted(f"fewer numbers of {where} are left below {MAX_NUMBER} than were requested")


def first_day(period: str) -> date:
    """The first day of a period. Raises ValueError if there is no such date."""
    return date.fromisoformat(period + "2000-01-01"[len(period) :])


def reset_of(period: str) -> Reset:
    """When the numbers of a period restart. Raises ValueError for a text that is no year, month or day."""
    for reset, length in LENGTHS.items():
        if length == len(period) and first_day(period):
            return reset
    raise ValueError(f"{period!r} is no year, month or day")


def is_day_of_each_year(text: object) -> bool:
    """Whether it is a text as `04-01`, and not 29 February."""
    try:
        return date.fromisoformat(f"2001-{text}").isoformat() == f"2001-{text}"
    except ValueError:
        return False


def day_of(at: object, zone: tzinfo | None) -> date:
    """The date that decides the period of a number; a datetime is converted to the time zone, or else local time of it.

    zone: None if nobody chose one: UTC, and a datetime without a time zone raises `InvalidArgument`.
    """
    if isinstance(at, datetime):
        if at.utcoffset() is not None:
            return at.astimezone(zone or UTC).date()
        if zone is None:
            raise InvalidArgument(f"at={quoted(at)} has no time zone; give it a tzinfo, or give Numbers() a timezone=")
        return at.date()
    if not isinstance(at, date):
        raise InvalidArgument(f"at must be a date or a datetime with a tzinfo, got {quoted(at)}")
    return at

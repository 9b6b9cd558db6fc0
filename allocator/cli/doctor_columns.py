"""`allocator doctor --columns`: the keys of the host's own tables, and when they end."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

from allocator.cli.options import require_files
from allocator.cli.output import REFUSED, show, table
from allocator.database.address import address_of
from allocator.database.columns.integer_keys import read_keys
from allocator.errors import InvalidSetting
from allocator.rules.days_left import DAY
from allocator.rules.key_columns import FULL, SOON, Outlook, outlooks


class EarlierRun(NamedTuple):
    """When it ran, and the greatest values by database and column; None if all columns were empty."""

    at: datetime
    greatest: Mapping[str, Mapping[str, int]] | None


def show_columns(urls: Sequence[str], schema: str | None, since: str | None) -> None:
    """Print the keys, the worst first, and exit with 1 if one needs attention."""
    require_files(*urls)
    earlier, now = read_earlier(since) if since else None, datetime.now(UTC)
    by_database: dict[str, list[dict[str, Any]]] = {}
    for url in urls:
        address = address_of(url)
        keys = read_keys(address, schema)
        if schema and not keys:
            raise InvalidSetting(f"no table of a schema {schema!a:.80} has an integer key in {address.shown}")
        before = earlier.greatest.get(address.shown, {}) if earlier and earlier.greatest is not None else None
        days = (now - earlier.at).total_seconds() / DAY if earlier else None
        by_database[address.shown] = [to_row(one, now.date()) for one in outlooks(keys, before, days, now.date())]
    output = {"at": now.isoformat(timespec="seconds"), "databases": by_database}
    show(output, "\n\n".join(text_of(where, rows) for where, rows in by_database.items()))
    if any(row["needs_attention"] for rows in by_database.values() for row in rows):
        sys.exit(REFUSED)


def read_earlier(since: str) -> EarlierRun:
    """The file that an earlier --json was written to, or a date on which all tables were empty."""
    path = Path(since)
    if path.is_file():
        try:
            output = json.loads(path.read_text(encoding="utf-8"))
            found = {
                where: {one["column"]: int(one["greatest"]) for one in columns if one["greatest"] is not None}
                for where, columns in output["databases"].items()
            }
            return EarlierRun(datetime.fromisoformat(output["at"]), found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidSetting(f"{path} does not hold the output of: allocator doctor --columns --json") from error
    try:
        at = datetime.combine(date.fromisoformat(since), datetime.min.time(), UTC)
    except ValueError:
        words = f"--since must be a date, as in 2024-01-31, or a file; there is no file {since!a:.80}"
        raise InvalidSetting(words) from None
    if at >= datetime.now(UTC):
        raise InvalidSetting(f"--since must be a date in the past, got {since}")
    return EarlierRun(at, None)


def to_row(one: Outlook, today: date) -> dict[str, Any]:
    key = one.key
    return {
        "column": key.name,
        "type": key.type,
        "limit": str(key.limit),
        "greatest": None if key.greatest is None else str(key.greatest),
        "used": round(key.used, 6),
        "per_day": one.a_day,
        "ends": one.ends,
        "references": key.references or None,
        "by_sequence": key.by_sequence,
        "next": None if key.next is None else str(key.next),
        "mend": key.mend or None,
        "counter_unread": key.mend is None,
        "needs_attention": one.needs_attention(today),
    }


COLUMNS = "needs_attention column type used:.1% greatest per_day:,.0f ends references by_sequence"


def text_of(where: str, found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return f"{where}: no integer keys"
    rows = [{**row, "used": None if row["greatest"] is None else row["used"]} for row in found]
    unread = sum(row["greatest"] is None for row in rows)
    needing = sum(row["needs_attention"] for row in rows) - unread
    summary = f"keys: {len(rows)}; over {100 * FULL:.0f} % full, ending within {SOON} days, or behind: {needing}"
    if needing:
        summary += "; what to do: docs/operating.md"
    if unread:
        summary += f"; not read, since this user lacks SELECT: {unread}"
    if counters := sum(row["counter_unread"] for row in rows):
        summary += f"; sequences not read, since this user lacks SELECT: {counters}"
    if all(row["per_day"] is None for row in rows):
        summary += "; --since adds rates and dates"
    mends = [
        f"{row['column']} is behind: its counter is at {row['next']}, where rows have ids already; fix:\n{row['mend']};"
        for row in rows
        if row["mend"]
    ]
    return "\n".join([where, table(rows, COLUMNS), summary, *mends])

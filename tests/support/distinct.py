"""No id twice: what every test asks that draws ids."""

from collections import Counter
from collections.abc import Hashable, Iterable

SHOWN = 5


class Duplicate(AssertionError):
    """A value came twice. A test that raises it is never retried: see `support.verdict`."""


def distinct(values: Iterable[Hashable]) -> int:
    """How many values there are. Raises `Duplicate`, with the first of those that came more than once."""
    counts = Counter(values)
    twice = [f"{value!r} came {count} times" for value, count in counts.items() if count > 1]
    if twice:
        more = f", and {len(twice) - SHOWN} more" if len(twice) > SHOWN else ""
        raise Duplicate(f"{', '.join(twice[:SHOWN])}{more}, of {counts.total()} values")
    return counts.total()


def none_twice(twice: Iterable[object] | int, of: object = "") -> None:
    """For what came twice, or how much did, where that was found otherwise. Raises `Duplicate` where anything did."""
    found = twice if isinstance(twice, int) else list(twice)
    if found:
        raise Duplicate(f"{found} came twice{of and f', of {of}'}")

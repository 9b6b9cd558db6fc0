"""Logs as JSON, one line per event. Input of callers is escaped, and tokens are masked."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from time import monotonic
from typing import Any, NamedTuple, TextIO

from allocator.rules.token import PREFIX

SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{24,}}")
"""A token, even a truncated one. Shorter matches may be names of tables."""

REFUSED, OURS = "allocator.service.refusal_log", "allocator"
"""Callers can flood the first, and the loggers of the server, which are not `OURS`."""
LINES = 20
"""Lines of one kind per second; more are counted and dropped, so that callers cannot fill the disk."""

NUMBER = "allocator.token"
"""A key in the scope of a request: its logs name the token by its number, never by the secret."""

MAX_ADDRESS = 64

FIELDS = "%(levelname)s %(name)s %(message)s"


def config_of(form: str, pasteable: Callable[[str], str] = str) -> dict[str, Any]:
    """The settings for `logging.config.dictConfig`; `form` is "json" or "text", `pasteable` changes each message."""
    formats: dict[str, Any] = {
        "json": {
            "()": "pythonjsonlogger.json.JsonFormatter",
            "fmt": FIELDS,
            "rename_fields": {"levelname": "level", "name": "logger"},
            "timestamp": "time",  # with the UTC offset, to merge the logs of several machines
        },
        "text": {"format": "%(asctime)s %(levelname)s %(message)s"},
    }
    ours = {"handlers": ["stderr"], "level": "INFO", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"chosen": formats[form]},
        "handlers": {"stderr": {"class": f"{__name__}.LimitedHandler", "formatter": "chosen", "pasteable": pasteable}},
        "loggers": {OURS: ours},
        "root": {"handlers": ["stderr"], "level": "WARNING"},  # the server has a level of its own
    }


class Caller(NamedTuple):
    """The sender of a request: its address and the number of its token. The secret is never logged."""

    address: str
    token: int | None

    def __str__(self) -> str:
        return self.address + (", no valid token" if self.token is None else f", token {self.token}")


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """The sender of a request. Behind a proxy, the address is a header's text: escape and shorten it."""
    client = scope.get("client")
    address = ascii(client[0])[1:-1][:MAX_ADDRESS] if client else "this machine"
    return Caller(address, scope.get(NUMBER))


def masked(text: str) -> str:
    return SECRET.sub(f"{PREFIX}***", text)


class LineLimit:
    """At most `LINES` per second of each kind; the first line of a later second reports the number dropped."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._second = 0
        self._written: Counter[tuple[int, str]] = Counter()
        self._dropped: Counter[tuple[int, str]] = Counter()

    def drop(self, level: int, message: str) -> bool:
        """Count a line as dropped if this second has enough of its kind: then it need not be made."""
        if (second := int(self._clock())) != self._second:
            self._second = second
            self._written.clear()
        if self._written[level, message] < LINES:
            return False
        self._dropped[level, message] += 1
        return True

    def admit(self, level: int, message: str) -> int | None:
        """The number of lines of this kind dropped before; None to drop this one too."""
        if self.drop(level, message):
            return None
        self._written[level, message] += 1
        return self._dropped.pop((level, message), 0)


line_limit = LineLimit()
"""Of this process: its handler writes no more lines, and who would make one can ask before."""


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Masks tokens, and limits the lines that callers cause, so that they cannot fill the disk."""

    def __init__(self, limit: LineLimit = line_limit, pasteable: Callable[[str], str] = str) -> None:
        super().__init__()
        self._limit, self._pasteable = limit, pasteable

    def filter(self, record: logging.LogRecord) -> bool:
        is_by_us = record.name != REFUSED and record.name.partition(".")[0] == OURS
        if is_by_us or not isinstance(record.args, tuple):
            return True
        dropped = self._limit.admit(record.levelno, record.msg)
        if dropped:
            record.msg = f"{record.msg} (%d more like this were dropped)"
            record.args = (*record.args, dropped)
        return dropped is not None

    def format(self, record: logging.LogRecord) -> str:
        said = copy(record)  # other handlers get it as it was
        said.msg, said.args = self._pasteable(record.getMessage()), None
        return masked(super().format(said))

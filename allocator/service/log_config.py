"""Logs as JSON, a line for each event; what came from outside stands in it escaped, and tokens are masked."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, NamedTuple, TextIO

from allocator.rules.token import PREFIX

SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{24,}}")
"""A token, also one that was cut off, wherever a caller has put it. Shorter names may be those of tables."""

REFUSED, SERVER = "allocator.service.refusal_log", "uvicorn.error"
"""The loggers of lines that callers cause, as many as they like."""
LINES = 20
"""How many of one kind are written in a second."""

NUMBER = "allocator.token"
"""Where a request holds the number of its token, once that is known."""

MAX_ADDRESS = 64

FIELDS = "%(levelname)s %(name)s %(message)s"


def config_of(form: str) -> dict[str, Any]:
    """For `logging.config.dictConfig`: "json" for a machine, "text" for a person."""
    from pythonjsonlogger.core import RESERVED_ATTRS  # not there without the extra, of which `server` tells

    formats: dict[str, Any] = {
        "json": {
            "()": "pythonjsonlogger.json.JsonFormatter",
            "fmt": FIELDS,
            "reserved_attrs": [*RESERVED_ATTRS, "color_message"],  # uvicorn's, for terminals
            "rename_fields": {"levelname": "level", "name": "logger"},
            "timestamp": "time",  # of UTC, and says so: lines of several machines are read together
        },
        "text": {"format": "%(asctime)s %(levelname)s %(message)s"},
    }
    ours = {"handlers": ["stderr"], "level": "INFO", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"chosen": formats[form]},
        "handlers": {"stderr": {"class": f"{__name__}.Lines", "formatter": "chosen"}},
        "loggers": {"allocator": ours, "uvicorn": ours},
    }


class Caller(NamedTuple):
    """Who sent a request: the number of the token, of whose secret nothing is written."""

    address: str
    token: int | None

    def __str__(self) -> str:
        return self.address + (", no valid token" if self.token is None else f", token {self.token}")


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """A proxy on this machine names the address for whom it asks: that is text which anybody may have sent."""
    client = scope.get("client")
    address = ascii(client[0])[1:-1][:MAX_ADDRESS] if client else "an unknown address"
    return Caller(address, scope.get(NUMBER))


def masked(text: str) -> str:
    return SECRET.sub(f"{PREFIX}***", text)


class Bound:
    """At most `LINES` a second of each kind; the first of a later second is told how many were left out."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._second = 0
        self._written: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def admit(self, kind: str) -> int | None:
        """How many of this kind were left out before; None to leave this one out too."""
        if (second := int(self._clock())) != self._second:
            self._second = second
            self._written.clear()
        self._written[kind] += 1
        if self._written[kind] <= LINES:
            return self._left_out.pop(kind, 0)
        self._left_out[kind] += 1
        return None


class Lines(logging.StreamHandler[TextIO]):
    """Writes no token, and of what callers cause no more than a disk holds."""

    def __init__(self, bound: Bound | None = None) -> None:
        super().__init__()
        self._bound = bound or Bound()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name not in {REFUSED, SERVER} or not isinstance(record.args, tuple):
            return True
        left_out = self._bound.admit(f"{record.levelno} {record.msg}")
        if left_out:
            record.msg = f"{record.msg} (%d more like this were not written)"
            record.args = (*record.args, left_out)
        return left_out is not None

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))

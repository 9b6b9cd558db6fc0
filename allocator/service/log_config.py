"""Logs as JSON, one line per event. Input of callers is escaped, and tokens are masked."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TextIO

from allocator.schemes.token import PREFIX

SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{24,}}")
"""A token, even a truncated one. Shorter matches may be names of tables."""

NUMBER = "allocator.token"
"""A key in the scope of a request: its logs name the token by its number, never by the secret. 0 stands for none."""

MAX_ADDRESS = 64

FIELDS = "%(levelname)s %(name)s %(message)s"


def config_of(form: str) -> dict[str, Any]:
    """The settings for `logging.config.dictConfig`; `form` is "json" or "text"."""
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
        "handlers": {"stderr": {"class": f"{__name__}.MaskingHandler", "formatter": "chosen"}},
        "loggers": {"allocator": ours},
        "root": {"handlers": ["stderr"], "level": "WARNING"},  # the server has a level of its own
    }


class Caller(NamedTuple):
    """The sender of a request: its address and the number of its token. The secret is never logged."""

    address: str
    token: int | None

    def __str__(self) -> str:
        return self.address + ("" if self.token is None else f", token {self.token}")


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """The sender of a request. Behind a proxy, the address is a header's text: escape and shorten it."""
    client = scope.get("client")
    address = ascii(client[0])[1:-1][:MAX_ADDRESS] if client else "this machine"
    return Caller(address, scope.get(NUMBER) or None)


def masked(text: str) -> str:
    return SECRET.sub(f"{PREFIX}***", text)


class MaskingHandler(logging.StreamHandler[TextIO]):
    """Masks tokens, whoever logs them."""

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))

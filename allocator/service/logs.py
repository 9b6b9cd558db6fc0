"""Logs as JSON, a line for each event; what came from outside stands in it escaped."""

from __future__ import annotations

from typing import Any

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
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "chosen"}},
        "loggers": {"allocator": ours, "uvicorn": ours},
    }

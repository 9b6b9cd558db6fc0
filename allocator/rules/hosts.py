"""Patterns of the hosts that may get the password: see `shard_hosts` of `Allocator`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from allocator.errors import InvalidSetting
from allocator.schemes.shared.argument_checks import quoted

PATTERN = r"[a-z0-9._:*?-]+"
PLAIN = r"[a-z0-9._:-]+"
"""Only a plain host name can match. libpq reads `evil.example,db.internal` as two hosts, and `/tmp` as a socket."""

Hosts = tuple[str, ...]


def hosts_from(given: str | Iterable[str] | None) -> Hosts:
    """The patterns in a list, or in a text with commas. Raises `InvalidSetting`."""
    if given is None:
        return ()
    if not isinstance(given, str | list | tuple | set | frozenset):
        raise InvalidSetting(f"shard_hosts must be host names, got {quoted(given, 40)}")
    listed = given.split(",") if isinstance(given, str) else given
    patterns = tuple(one.strip().lower() if isinstance(one, str) else one for one in listed)
    for one in patterns:
        if not isinstance(one, str) or not re.fullmatch(PATTERN, one):
            raise InvalidSetting(
                f"shard_hosts must be host names, with * or ? as in 'db-*.internal', got {quoted(one, 40)}"
            )
    return patterns


def is_named(host: str, patterns: Hosts) -> bool:
    return bool(re.fullmatch(PLAIN, host)) and any(fnmatchcase(host, one) for one in patterns)

"""A token of the service: its permissions.

secret     `allocator_` and 43 characters for 256 random bits; only its SHA-256 is stored
verbs      draw: ids; read: settings, state and metrics; administer: create and change tags
tags       patterns, with `*` as wildcard, for tags and ticket types
schemes    the schemes without tags: meteor, including nodes; snowflake, including workers; objectid
name       at most two valid tokens share a name, so that a token can be rotated without downtime
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from hashlib import sha256

from allocator.errors import InvalidSetting, InvalidTag
from allocator.schemes.shared.argument_checks import check_tag

DRAW, READ, ADMINISTER = VERBS = ("draw", "read", "administer")
SCHEMES = ("meteor", "snowflake", "objectid")
MAX_VALID = 2
"""Valid tokens of one name: the old and the new one, while its clients change over."""
PREFIX = "allocator_"
"""By it a log masks secrets, and only an unknown secret that begins with it is worth a read of the database."""
MAX_SCOPE = 1000
"""The width of the column `tags` of `allocator_token`."""

SCHEMES_MARK = "@"
"""Marks the schemes in a stored scope; no pattern contains it."""

PATTERN = re.compile(r"[A-Za-z0-9_.:*-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """One row of `allocator_token`."""

    number: int
    name: str
    digest: str
    verbs: tuple[str, ...]
    tags: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None
    schemes: tuple[str, ...] = ()

    def may(self, verb: str, name: str | None) -> bool:
        """Whether the token allows `verb` on a tag or ticket type; with None, on any that its patterns match."""
        return verb in self.verbs and (name is None or any(fnmatchcase(name, pattern) for pattern in self.tags))

    def may_draw(self, scheme: str) -> bool:
        return DRAW in self.verbs and scheme in self.schemes

    def is_valid(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at

    def checked(self) -> Token:
        """This token, checked. Raises `InvalidSetting`."""
        try:
            check_tag(self.name)
        except InvalidTag as error:
            raise InvalidSetting(f"the name of a token must be spelled like a tag: {error}") from None
        self._check_scope()
        if self.expires_at is not None and self.expires_at <= self.created_at:
            raise InvalidSetting(f"a token must expire in the future, got {self.expires_at:%Y-%m-%d %H:%M}")
        return self

    def _check_scope(self) -> None:
        unknown = [verb for verb in self.verbs if verb not in VERBS]
        if unknown or not self.verbs:
            raise InvalidSetting(
                f"the verbs of a token must be of {', '.join(VERBS)}, got {unknown[0] if unknown else ''!r:.40}"
            )
        for pattern in self.tags:
            if not PATTERN.fullmatch(pattern):
                raise InvalidSetting(
                    f"a pattern must be 1 to 64 of the characters of tags and *, as in order-*, got {pattern!a:.80}"
                )
        for scheme in self.schemes:
            if scheme not in SCHEMES:
                raise InvalidSetting(f"the schemes of a token must be of {', '.join(SCHEMES)}, got {scheme!r:.40}")
        if not self.tags and not self.schemes:
            raise InvalidSetting("a token needs a pattern of tags or a scheme, got neither")
        length = len(scope_to_text(self.tags, self.schemes))
        if length > MAX_SCOPE:
            raise InvalidSetting(f"the scope of a token must be at most {MAX_SCOPE} characters in all, got {length}")


def scope_to_text(tags: tuple[str, ...], schemes: tuple[str, ...]) -> str:
    """The scope as stored in one column: `order-* @meteor,snowflake`."""
    return " ".join([*tags, SCHEMES_MARK + ",".join(schemes)])


def scope_from_text(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tags and schemes of a stored scope."""
    *tags, schemes = text.split()
    return tuple(tags), tuple(filter(None, schemes.removeprefix(SCHEMES_MARK).split(",")))


def digest_of(secret: bytes) -> str:
    return sha256(secret).hexdigest()

"""A token of the service: its permissions.

secret     `allocator_` and 43 characters for 256 random bits; only its SHA-256 is stored
verbs      draw: ids; read: settings, state and metrics; administer: create and change tags
tags       patterns, with `*` as wildcard, for tags, ticket types and spaces of worker numbers. A scheme without tags is
           named as @meteor, including nodes; @snowflake, including workers; @objectid
name       no two valid tokens share a name
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
SCHEMES = METEOR, SNOWFLAKE, OBJECTID = ("@meteor", "@snowflake", "@objectid")
"""What a scope calls them. No tag is spelled so, and no pattern but `*` matches one: workers are scarce."""
ALL = "*"
PREFIX = "allocator_"
"""By it a log masks secrets, and only an unknown secret that begins with it is worth a read of the database."""
MAX_SCOPE = 1000
"""The width of the column `tags` of `allocator_token`."""

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

    def may(self, verb: str, name: str | None) -> bool:
        """Whether the token allows `verb` on what its patterns match; with None, on any of it."""
        return verb in self.verbs and (name is None or any(fnmatchcase(name, pattern) for pattern in self.tags))

    def may_create(self, tag: str) -> bool:
        """Whether a first draw creates the tag: whoever may make up names must not fill the database with tags."""
        return self.may(ADMINISTER, tag) or tag in self.tags

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
            if not PATTERN.fullmatch(pattern) and pattern not in SCHEMES:
                raise InvalidSetting(
                    "a pattern must be 1 to 64 of the characters of tags and *, as in order-*, or one of "
                    f"{', '.join(SCHEMES)}, got {pattern!a:.80}"
                )
        if not self.tags:
            raise InvalidSetting("a token needs a pattern of tags, got none")
        if (length := len(scope_to_text(self.tags))) > MAX_SCOPE:
            raise InvalidSetting(f"the scope of a token must be at most {MAX_SCOPE} characters in all, got {length}")


def scope_to_text(tags: tuple[str, ...]) -> str:
    """The scope as stored in one column: `order-* @meteor`."""
    return " ".join(tags)


def digest_of(secret: bytes) -> str:
    return sha256(secret).hexdigest()

"""Creates, lists and revokes tokens. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, TypeVar

from allocator.database.address import address_of
from allocator.database.verbs import token_rows
from allocator.errors import InvalidSetting
from allocator.schemes.shared.argument_checks import quoted
from allocator.schemes.token import PREFIX, Token, digest_of

if TYPE_CHECKING:
    from allocator.database.store import Database

T = TypeVar("T")

RANDOM_BYTES = 32
"""256 bits, which nobody guesses: so one SHA-256, without salt, protects the stored digest."""
MAX_DAYS = 36_500
"""A century. `datetime` ends with the year 9999."""


class Tokens:
    """The tokens of a database; of a fleet, see `home_of`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        name: str,
        *,
        verbs: tuple[str, ...],
        tags: tuple[str, ...],
        days: float | None = None,
    ) -> tuple[str, Token]:
        """Create a token; return its secret, which is stored nowhere, and the token.

        Raises `InvalidSetting` if a valid token has this name.
        """
        secret = PREFIX + token_urlsafe(RANDOM_BYTES)
        digest = digest_of(secret.encode())
        now = datetime.now(UTC).replace(microsecond=0)
        fresh = Token(0, name, digest, verbs, tags, now, expiry(now, days)).checked()
        for token in self.list():
            if token.name == name and token.is_valid(now):
                raise InvalidSetting(
                    f"token {token.number} is named {name!r}; choose another name, or revoke it with: "
                    f"allocator tokens revoke {token.number}"
                )
        return secret, replace(fresh, number=self._run(token_rows.add, fresh))

    def state(self) -> tuple[list[Token], bool]:
        """The tokens, and whether any was ever created."""
        found = self.list()
        return found, bool(found) or self._run(token_rows.any_made)

    def list(self) -> list[Token]:
        """All tokens that are not revoked, oldest first; some may have expired."""
        return self._run(token_rows.fetch_all)

    def _run(self, verb: Callable[..., T], *arguments: Any) -> T:
        return self._database.on_tables(verb, *arguments)

    @property
    def shown(self) -> str:
        """The URL of the database, without its password."""
        return self._database.shown

    def revoke(self, number: int) -> None:
        """Raises `InvalidSetting` if there is no such token."""
        if not self._run(token_rows.revoke, number, datetime.now(UTC).replace(microsecond=0)):
            raise InvalidSetting(f"there is no token {quoted(number)}; see: allocator tokens list")


def home_of(urls: Sequence[str]) -> str:
    """The URL of the database that keeps the tokens: that of the least slot."""
    return min(urls, key=lambda url: word.slot if (word := address_of(url).word) else 0)


def expiry(now: datetime, days: float | None) -> datetime | None:
    if days is None:
        return None
    if not 0 < days <= MAX_DAYS:
        raise InvalidSetting(f"days must be above 0 and at most {MAX_DAYS}, got {days:g}")
    return (now + timedelta(days=days)).replace(microsecond=0)

"""The rows of `allocator_token`: the tokens of the service and their scopes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from allocator.database.dialect import Dialect
from allocator.database.tables import token
from allocator.schemes.token import Token, scope_to_text


def add(connection: Connection, dialect: Dialect, fresh: Token) -> int:
    """Write a token, and return its number. A retry finds the row that it wrote."""
    ours = select(token.c.id).where(token.c.digest == fresh.digest)
    if connection.scalar(ours) is None:
        connection.execute(insert(token).values(columns_of(fresh)))
    return int(connection.execute(ours).scalar_one())


def fetch_all(connection: Connection, dialect: Dialect) -> list[Token]:
    """Fetch the tokens that are not revoked, oldest first; some may have expired."""
    found = connection.execute(select(token).where(token.c.revoked_at.is_(None)).order_by(token.c.id))
    return [as_token(row) for row in found]


def any_made(connection: Connection, dialect: Dialect) -> bool:
    """Whether any token was ever made, even a revoked one."""
    return connection.execute(select(token.c.id).limit(1)).first() is not None


def revoke(connection: Connection, dialect: Dialect, number: int, at: datetime) -> bool:
    """Revoke a token; False if there is none, or it is revoked."""
    statement = update(token).where(token.c.id == number, token.c.revoked_at.is_(None))
    return connection.execute(statement.values(revoked_at=at.replace(tzinfo=None))).rowcount == 1


def as_token(row: Any) -> Token:
    created, expires = row.created_at.replace(tzinfo=UTC), row.expires_at and row.expires_at.replace(tzinfo=UTC)
    return Token(row.id, row.name, row.digest, tuple(row.verbs.split()), tuple(row.tags.split()), created, expires)


def columns_of(fresh: Token) -> dict[str, object]:
    return {
        "name": fresh.name,
        "digest": fresh.digest,
        "verbs": " ".join(fresh.verbs),
        "tags": scope_to_text(fresh.tags),
        "created_at": fresh.created_at.replace(tzinfo=None),
        "expires_at": fresh.expires_at and fresh.expires_at.replace(tzinfo=None),
    }

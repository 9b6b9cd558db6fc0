"""The rows of `allocator_token`: the tokens of the service and their scopes."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, insert, select, update

from allocator.database.dialect import Dialect
from allocator.database.tables import token
from allocator.rules.token import Token, scope_from_text, scope_to_text


def add(connection: Connection, dialect: Dialect, fresh: Token) -> None:
    connection.execute(insert(token).values(columns_of(fresh)))


def fetch_all(connection: Connection, dialect: Dialect) -> list[Token]:
    """Fetch the tokens that are not revoked, oldest first; some may have expired."""
    rows = connection.execute(select(token).where(token.c.revoked_at.is_(None)).order_by(token.c.id))
    scopes = [(row, *scope_from_text(row.tags)) for row in rows]
    return [
        Token(
            row.id,
            row.name,
            row.digest,
            tuple(row.verbs.split()),
            tags,
            row.ids_rate,
            row.requests_rate,
            row.created_at.replace(tzinfo=UTC),
            row.expires_at and row.expires_at.replace(tzinfo=UTC),
            schemes,
        )
        for row, tags, schemes in scopes
    ]


def any_made(connection: Connection, dialect: Dialect) -> bool:
    """Whether any token was ever made, even a revoked one."""
    return connection.execute(select(token.c.id).limit(1)).first() is not None


def revoke(connection: Connection, dialect: Dialect, number: int, at: datetime) -> bool:
    """Revoke a token; False if there is none, or it is revoked."""
    statement = update(token).where(token.c.id == number, token.c.revoked_at.is_(None))
    return connection.execute(statement.values(revoked_at=at.replace(tzinfo=None))).rowcount == 1


def columns_of(fresh: Token) -> dict[str, object]:
    return {
        "name": fresh.name,
        "digest": fresh.digest,
        "verbs": " ".join(fresh.verbs),
        "tags": scope_to_text(fresh.tags, fresh.schemes),
        "ids_rate": fresh.ids_rate,
        "requests_rate": fresh.requests_rate,
        "created_at": fresh.created_at.replace(tzinfo=None),
        "expires_at": fresh.expires_at and fresh.expires_at.replace(tzinfo=None),
    }

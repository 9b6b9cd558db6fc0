"""What a retry finds that its first run wrote: a commit whose answer was lost."""

from types import ModuleType
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError
from support.servers.administrator import execute

from allocator.database.verbs import segments, token_rows
from allocator.schemes.tag import Tag
from allocator.service.token_administration import Tokens


def test_a_token_is_one_row_and_its_revocation_holds(database, monkeypatch):
    """With two rows the secret stayed valid by the one that was not revoked."""
    tokens = Tokens(database)
    tokens.create("before", verbs=("draw",), tags=("*",))
    made = lose_answer(monkeypatch, token_rows, "add")
    _, token = tokens.create("billing", verbs=("draw",), tags=("*",))
    assert tokens.list()[1:] == [token]
    assert made == [token.number, token.number]

    tokens.revoke(token.number)
    assert [one.name for one in tokens.list()] == ["before"]


def test_a_secret_cannot_be_two_rows(fresh, database):
    """Not even by a statement that the server ran after its client had given up."""
    Tokens(database).create("billing", verbs=("draw",), tags=("*",))
    columns = "name, digest, verbs, tags, created_at"

    with pytest.raises(IntegrityError):
        execute(fresh, f"INSERT INTO allocator_token ({columns}) SELECT {columns} FROM allocator_token")


def test_a_tag_that_was_deleted_is_not_told_to_be_in_use(database, monkeypatch):
    database.create_tag(Tag("order"), database.settled_shard())
    database.close_tag(Tag("order"))
    removed = lose_answer(monkeypatch, segments, "remove")

    assert database.remove_tag("order")
    assert removed == [True, True]
    assert database.fetch_tag("order") is None


# -- a verb whose first run commits, while its answer is lost with the connection


def lose_answer(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[object]:
    """Lose the first answer of a verb, as where a pooler restarts. Returns the answers of its runs, as they come."""
    verb, answers = getattr(module, name), []

    def losing(*given: Any) -> object:
        answers.append(verb(*given))
        if not answers[1:]:
            raise OperationalError(name, {}, Exception("server closed the connection"), connection_invalidated=True)
        return answers[-1]

    monkeypatch.setattr(module, name, losing)
    return answers

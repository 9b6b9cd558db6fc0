"""A service that asks for tokens, before an embedded database, and the tokens that are made for it."""

from __future__ import annotations

from allocator.database.store import Database
from allocator.service.token_administration import Tokens
from support.service.served import Served


class Guarded:
    """admin: the secret of a token that may do all. options: of the service.

    The database stays open beside the service, for tests that make and revoke tokens while it runs.
    """

    def __init__(self, folder: str, *options: str, admin: str = "admin") -> None:
        self.url = f"sqlite:///{folder}/ids.db"
        self.database = Database(self.url)
        self.database.upgrade_schema()
        self.tokens = Tokens(lambda: self.database)
        self.admin = self.make(admin, "draw", "read", "administer")
        self.prepare()
        self.service = Served(self.url, options=options)

    def prepare(self) -> None:
        """What else is to be there before the service starts, for a subclass."""

    def make(self, name: str, *verbs: str, tags: tuple[str, ...] = ("*",), **settings: object) -> str:
        """The secret of a new token, which may draw everything where nothing else is said."""
        return self.tokens.create(name, verbs=verbs or ("draw",), tags=tags, **settings)[0]  # type: ignore[arg-type]

    def close(self) -> None:
        self.service.close()
        self.database.close()

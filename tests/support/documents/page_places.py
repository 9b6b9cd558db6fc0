"""What a page speaks of, in reality: the databases under the URLs that it names, and the service at its address.

A page names databases as a reader would, `postgresql+psycopg://user:password@host/ids`. Each of these is a new database
of a real server here, the same one wherever the page names it; outputs are told with the page's names again.
"""

import itertools
import os
import re
from pathlib import Path
from typing import Any

from sqlalchemy import CursorResult, make_url

from support.servers.administrator import administrator, execute
from support.servers.available import SERVERS
from support.servers.databases import Databases
from support.service.served import Served

ADDRESS = "127.0.0.1:8000"
URL = re.compile(r"(postgresql\+psycopg|mysql\+pymysql|mariadb\+pymysql)://([\w.-]+)(?::([\w.-]+))?@([\w.-]+)/(\w+)")
KINDS = {"postgresql+psycopg": "postgres", "mysql+pymysql": "mysql", "mariadb+pymysql": "mariadb"}
ROLE = re.compile(r"CREATE (?:ROLE|USER) '?(\w+)", re.IGNORECASE)

ENDED = re.compile(r";(?: *-- (.*))?\n")

numbers = itertools.count(1)

Names = tuple[str, str, str]
"""Of a database in a page: scheme, host, database."""


def own(role: str) -> str:
    """A role belongs to a server, on which other runs may be."""
    return f"p{os.getpid()}_{role}"


def first_row(result: CursorResult[Any]) -> str:
    row = result.first() if result.returns_rows else None
    return " | ".join(map(str, row or ()))


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.served: Served | None = None
        self._made = Databases()
        self._databases: dict[Names, str] = {}
        self._roles: dict[str, str] = {}
        """By name: the URL of the database where it was made."""

    # -- from the words of a page to what there is, and back

    def real(self, text: str) -> str:
        for role in self._roles:
            text = re.sub(rf"\b{role}\b", own(role), text)
        text = URL.sub(self._real_url, text)
        return text.replace(ADDRESS, self.served.address.partition("://")[2]) if self.served else text

    def _real_url(self, found: re.Match[str]) -> str:
        scheme, user, password, host, name = found.groups()
        url = make_url(self._database((scheme, host, name)))
        if user in map(own, self._roles):
            url = url.set(username=user, password=password)
        return url.render_as_string(hide_password=False)

    def _database(self, names: Names) -> str:
        if names not in self._databases:
            name = f"page{next(numbers):03}"  # none is the beginning of another
            self._databases[names] = self._made.new(KINDS[names[0]], name)
        return self._databases[names]

    def told(self, text: str) -> str:
        if self.served:
            text = text.replace(self.served.address.partition("://")[2], ADDRESS)
        for (_, host, name), real in self._databases.items():
            url = make_url(real)
            place = f"{url.host}:{url.port}" if url.port else str(url.host)
            text = text.replace(f"{place}/{url.database}", f"{host}/{name}").replace(str(url.database), name)
        for role in self._roles:
            text = text.replace(own(role), role)
        return text

    # -- statements

    def execute(self, url: str, statements: str) -> list[tuple[str, str]]:
        """Statements of a DBA, each in a transaction of its own.

        Of those with a comment behind them: what it says, and the first row that came.
        """
        named = URL.search(url)
        url = self.real(re.sub("^sqlite:///(?!/)", f"sqlite:///{self.folder}/", url))
        self._roles |= dict.fromkeys(ROLE.findall(statements), url)
        if named:  # as in GRANT … ON ids.*
            statements = statements.replace(f" {named[5]}.*", f" {make_url(url).database}.*")
        with administrator(url) as connection:
            pairs = [
                (expected, first_row(connection.exec_driver_sql(statement.replace("%", "%%"))))
                for statement, expected in self._split(self.real(statements))
            ]
        return [pair for pair in pairs if pair[0]]

    def _split(self, statements: str) -> list[tuple[str, str]]:
        """Each statement, with the comment behind it."""
        parts = [part or "" for part in ENDED.split(re.sub(r"^--.*$", "", statements, flags=re.MULTILINE))]
        pairs = zip(parts[::2], [*parts[1::2], ""], strict=True)
        return [(statement.strip(), said) for statement, said in pairs if statement.strip()]

    def _drop_role(self, name: str, url: str) -> None:
        kind = KINDS[url.partition(":")[0]]
        drop = f"DROP ROLE IF EXISTS {own(name)}" if kind == "postgres" else f"DROP USER IF EXISTS '{own(name)}'"
        execute(SERVERS.get(kind).url, drop)

    # -- the service

    def serve(self, words: list[str], environment: dict[str, str]) -> str:
        """Start `allocator serve` in place of the one before; what it said until it was ready."""
        self.stop()
        self.served = Served(options=tuple(words), is_open=False, cwd=self.folder, **environment)
        return self.served.log()

    def stop(self) -> None:
        if self.served:
            self.served.close()
        self.served = None

    def close(self) -> None:
        self.stop()
        self._made.drop()
        for role, url in self._roles.items():
            self._drop_role(role, url)

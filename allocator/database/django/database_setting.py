"""Convert an entry of Django's `DATABASES` to a URL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import URL

from allocator.errors import InvalidDatabase

IN_MEMORY = "sqlite://"


SOCKETS = {"postgresql": "host", "mysql": "unix_socket"}
"""What names a socket of a server, in a URL."""
IGNORED = frozenset(
    {"pool", "isolation_level", "server_side_binding", "cursor_factory", "row_factory", "context", "prepare_threshold"}
    | {"client_encoding", "charset", "collation", "use_unicode", "init_command", "sql_mode", "autocommit", "conv"}
    | {"connect_timeout", "read_timeout", "write_timeout", "cursorclass", "compress", "local_infile", "client_flag"}
)
"""Options that shape Django's own connections, or that this library sets itself. The driver takes all others."""
VERIFYING = {"VERIFY_CA", "VERIFY_IDENTITY"}


def url_of(vendor: str, entry: Mapping[str, Any]) -> URL | str:
    """The URL for an entry. SQLite gets a file beside Django's, whose transactions would delay claims.

    vendor: as Django's connection names it. Raises `InvalidDatabase` for another kind of database, or for options that
    cannot be carried over.
    """
    name = str(entry.get("NAME") or "")
    if vendor == "sqlite":
        file = file_of(name)
        return URL.create(vendor, database=str(beside(file))) if file else IN_MEMORY
    if vendor not in SOCKETS:
        raise InvalidDatabase(
            f"no ids come from Django's database, which is {vendor}; set ALLOCATOR to the URL of another"
        )
    host, port = str(entry.get("HOST") or ""), str(entry.get("PORT") or "")
    query = options_of(entry.get("OPTIONS") or {})
    count = host.count(",") + 1 if vendor == "postgresql" else 1
    ports = port.split(",")
    if len(ports) not in {1, count} or not all(one.isdecimal() for one in ports if one):
        raise InvalidDatabase(
            f"Django's database has the PORT {port!r}, and needs one number for each host of {host!r}"
        )
    if host.startswith("/") or count > 1:
        host, query[SOCKETS[vendor]] = "", host
    if port and count > 1:  # libpq takes one port for all hosts, SQLAlchemy does not
        port, query["port"] = "", ",".join(ports if len(ports) == count else ports * count)
    return URL.create(
        vendor,
        entry.get("USER") or None,
        entry.get("PASSWORD") or None,
        host or None,
        int(port) if port else None,
        name or None,
        query,
    )


def url_of_rows(vendor: str, entry: Mapping[str, Any]) -> URL | str:
    """The URL of the database itself, where applications draw numbers without gaps. Raises as `url_of` does."""
    file = file_of(str(entry.get("NAME") or "")) if vendor == "sqlite" else None
    return URL.create(vendor, database=str(file)) if file else url_of(vendor, entry)


def options_of(given: Mapping[str, Any]) -> dict[str, str]:
    """The options as those of a URL. PyMySQL, which takes no `ssl_mode`, checks no certificate unless it has a CA."""
    tls = given.get("ssl")
    nested = {f"ssl_{name}": value for name, value in tls.items()} if isinstance(tls, Mapping) else {}
    mode = str(given.get("ssl_mode") or ("REQUIRED" if tls and not nested else "")).upper()
    found = {name: value for name, value in given.items() if name not in {"ssl", "ssl_mode"}} | nested
    if "assume_role" in found or (mode in VERIFYING and "ssl_ca" not in found):
        lost = "assume_role" if "assume_role" in found else f"ssl_mode {mode} without the file of a CA"
        raise InvalidDatabase(
            f"Django's database has the option {lost}, which cannot be carried over; set ALLOCATOR to a URL that says "
            "the same"
        )
    if mode in {"REQUIRED", *VERIFYING}:
        found["ssl_check_hostname"] = str(mode == "VERIFY_IDENTITY").lower()
    return {name: str(value) for name, value in found.items() if name not in IGNORED and value is not None}


def file_of(name: str) -> Path | None:
    """The file of Django's SQLite database; None for one in memory."""
    if name.startswith("file:") and "mode=memory" not in name:
        name = name.removeprefix("file:").partition("?")[0]
    return None if name in {"", ":memory:"} or name.startswith("file:") else Path(name)


def beside(file: Path) -> Path:
    return file.with_name(f"{file.stem}.ids{file.suffix}")

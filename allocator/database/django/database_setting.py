"""Convert an entry of Django's `DATABASES` to a URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL

from allocator.database.address import address_of
from allocator.errors import InvalidDatabase

IN_MEMORY = "sqlite://"


@dataclass(frozen=True, slots=True)
class Server:
    """The options of a kind of server: those carried into the URL, and those that only Django or this library sets."""

    socket: str
    carried: frozenset[str]
    ignored: frozenset[str]


SERVERS = {
    "postgresql": Server(
        "host",
        frozenset({"sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslnegotiation", "passfile", "options"})
        | {"application_name", "target_session_attrs", "channel_binding", "gssencmode", "service"},
        frozenset({"pool", "isolation_level", "server_side_binding", "cursor_factory", "connect_timeout"})
        | {"client_encoding", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"},
    ),
    "mysql": Server(
        "unix_socket",
        frozenset({"read_default_file", "read_default_group", "unix_socket", "ssl_ca", "ssl_cert", "ssl_key"}),
        frozenset({"charset", "collation", "use_unicode", "init_command", "sql_mode", "isolation_level"})
        | {"connect_timeout", "read_timeout", "write_timeout", "autocommit", "conv"},
    ),
}


def url_of(vendor: str, entry: Mapping[str, Any]) -> URL | str:
    """The URL for an entry. SQLite gets a file beside Django's, whose transactions would delay claims.

    vendor: as Django's connection names it. Raises `InvalidDatabase` for another kind of database, or for options that
    cannot be carried over.
    """
    name = str(entry.get("NAME") or "")
    if vendor == "sqlite":
        file = file_of(name)
        return URL.create(vendor, database=str(beside(file))) if file else IN_MEMORY
    if vendor not in SERVERS:
        raise InvalidDatabase(
            f"no ids come from Django's database, which is {vendor}; set ALLOCATOR to the URL of another"
        )
    server, host, port = SERVERS[vendor], str(entry.get("HOST") or ""), str(entry.get("PORT") or "")
    query = options_of(server, entry.get("OPTIONS") or {})
    count = host.count(",") + 1 if vendor == "postgresql" else 1
    ports = port.split(",")
    if len(ports) not in {1, count} or not all(one.isdecimal() for one in ports if one):
        raise InvalidDatabase(
            f"Django's database has the PORT {port!r}, and needs one number for each host of {host!r}"
        )
    if host.startswith("/") or count > 1:
        host, query[server.socket] = "", host
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


def options_of(server: Server, given: Mapping[str, Any]) -> dict[str, str]:
    nested = given.get("ssl")
    flat = {name: value for name, value in given.items() if name != "ssl" or not isinstance(nested, Mapping)}
    if isinstance(nested, Mapping):
        flat |= {f"ssl_{name}": value for name, value in nested.items()}
    unknown = sorted(flat.keys() - server.carried - server.ignored)
    if unknown:
        raise InvalidDatabase(
            f"Django's database has the options {', '.join(unknown)}, which cannot be carried over; set ALLOCATOR to a "
            "URL that says the same"
        )
    return {name: str(value) for name, value in flat.items() if name in server.carried}


def file_of(name: str) -> Path | None:
    """The file of Django's SQLite database; None for one in memory."""
    if name.startswith("file:") and "mode=memory" not in name:
        name = name.removeprefix("file:").partition("?")[0]
    return None if name in {"", ":memory:"} or name.startswith("file:") else Path(name)


def beside(file: Path) -> Path:
    return file.with_name(f"{file.stem}.ids{file.suffix}")


def is_same_file(database: object, vendor: str, entry: Mapping[str, Any]) -> bool:
    """Whether ids would come from the file that Django writes to."""
    file = file_of(str(entry.get("NAME") or "")) if vendor == "sqlite" else None
    ours = address_of(database).file
    return file is not None and ours is not None and Path(ours).absolute() == file.absolute()

"""The addresses of a service, which take the place of a database's URL."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

from allocator.errors import InvalidDatabase

SCHEMES = {"http", "https"}


def addresses(given: object) -> list[str]:
    """The addresses of a service in the first argument of an allocator; none if it names a database."""
    is_list = type(given) in {list, tuple, set, frozenset}  # and not a URL of SQLAlchemy, which is a tuple too
    several: list[object] = list(given) if is_list else [given]  # type: ignore[call-overload]
    named = [one for one in several if isinstance(one, str) and is_address(one)]
    if not is_list and not named:
        return []
    if len(named) < len(several) or not several:
        raise InvalidDatabase(
            "a list of servers may hold only addresses that begin with https:// or http://; pass several databases as "
            "shards="
        )
    return [address_of(one) for one in named]


def is_address(text: str) -> bool:
    return text.partition("://")[0].lower() in SCHEMES


def address_of(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidDatabase(
            "an address looks like https://ids.example.org or http://localhost:8000, without user, password and query "
            f"(pass the token as token=), got {without_secrets(text)!a:.80}"
        )
    return f"{parts.scheme}://{text.partition('://')[2].rstrip('/')}"


def without_secrets(text: str) -> str:
    """An address without what stands before the last `@`, and without its query."""
    return re.sub(r"//.*@", "//", text, flags=re.DOTALL).partition("?")[0].partition("#")[0]


def is_overheard(address: str) -> bool:
    """Tell whether requests leave this machine unencrypted."""
    parts = urlsplit(address)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

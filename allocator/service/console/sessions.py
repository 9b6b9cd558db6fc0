"""Who is at a browser, and whether a change may come from there. Pure: keys and clocks are arguments.

A browser sends no bearer token by itself. So the sign-in page takes a token once, and answers with a cookie:

    digest of the token . when it ends . a nonce . HMAC-SHA256 of these

The key is drawn anew by each start of the service and handed to its workers, so that all of them accept the cookie, and
no other service. The cookie does not hold the token: whoever steals it has a session of this console for `LASTING`
seconds at most, and draws no id with it, since the routes of the API know bearer tokens alone. A revoked or expired
token ends its sessions, wherever they are.

What an attacker can do, by where he is:

- **A foreign page** (CSRF): the cookie is SameSite=Strict and is not sent from there. A change needs a proof that only
  our own pages hold, bound to the session, and a request that says it comes from us (`Sec-Fetch-Site`, else `Origin`).
  A GET changes nothing.
- **Script in our pages** (XSS): all that is shown is escaped, and the content security policy allows our own files
  alone, no inline script and no `eval`. Script that runs nevertheless could do what the session may until it ends; the
  cookie is HttpOnly, so that it cannot carry it away, and it never sees the token.
- **The network**: with https the cookie is Secure and bound to the host by its name's prefix. Without, whoever listens
  between reads cookie and token, as with the API; the sign-in page says so.
- **Another port of the same host** is sent the cookie by browsers, and could use it here until it ends.
- **A name that points to us** (DNS rebinding): a session is bound to the name it was made under, as cookies are.
  Without any token the service is open to this machine alone, by its own names, see `grants.is_local`.
- **The database**: it stores the digests of tokens, which make no cookie without the key.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac

LASTING = 8 * 3600
"""Seconds that a session lasts, whatever is done in it."""


class Seal:
    """Sessions and proofs under one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def _mac(self, purpose: str, text: str) -> str:
        return urlsafe_b64encode(hmac(self._key, f"{purpose} {text}".encode(), sha256)).decode().rstrip("=")

    def session(self, digest: bytes, now: float, nonce: str) -> str:
        """What the cookie holds."""
        said = f"{digest.hex()}.{int(now) + LASTING}.{nonce}"
        return f"{said}.{self._mac('session', said)}"

    def opened(self, cookie: str, now: float) -> bytes | None:
        """The digest of the token that the session was made with, while the session lasts."""
        said, _, mac = cookie.rpartition(".")
        if not cookie.isascii() or not compare_digest(mac.encode(), self._mac("session", said).encode()):
            return None
        digest, ends, _ = said.split(".")
        return bytes.fromhex(digest) if now < int(ends) else None

    def proof(self, cookie: str) -> str:
        """What a form holds beside its fields, good for this session alone; of none, for those who need none."""
        return self._mac("proof", cookie)

    def is_proof(self, given: str, cookie: str) -> bool:
        return given.isascii() and compare_digest(given.encode(), self.proof(cookie).encode())


def is_from_us(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that one of our own pages sent this."""
    site = headers.get("sec-fetch-site")
    if site is not None:  # browsers tell it over https and on this machine
        return site == "same-origin"
    return headers.get("origin", "").partition("://")[2] == headers.get("host", "") != ""


def cookie_name(scheme: str, host: str) -> str:
    """Cookies know no ports, and two services may run on one machine; over https the prefix binds it to the host."""
    port = host.rpartition(":")[2]
    own = f"allocator-{port}" if port.isdecimal() else "allocator"
    return f"__Host-{own}" if scheme == "https" else own


def own_path(given: str) -> str:
    """Where to go on after signing in: a path of ours, and nothing that a browser takes for another host."""
    is_ours = given.startswith("/") and not given.startswith("//") and "\\" not in given and given.isprintable()
    return given if is_ours else "/"

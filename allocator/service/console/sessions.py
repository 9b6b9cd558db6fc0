"""Sessions of browsers, and whether a change comes from one of our own pages.

A browser sends no bearer token by itself. So the sign-in page takes a token once and answers with a cookie, signed by
`itsdangerous`: the digest of the token, a nonce, when it was made, HMAC-SHA256 of these.

The key is drawn by each start of the service and handed to its workers: all of them accept the cookie, and no other
service does. The cookie does not hold the token: who steals it has a session of this console for `LIFETIME` seconds at
most, and draws no id with it, since the API accepts bearer tokens alone. Revoking the token ends its sessions.

Attackers, by where they are:

- **A foreign page** (CSRF): the cookie is SameSite=Strict. A change needs a proof that only our own pages hold, bound
  to the session, and a request whose `Sec-Fetch-Site` or `Origin` is ours. A GET changes nothing.
- **Script in our pages** (XSS): everything is escaped, and the content security policy allows no inline script and no
  `eval`. Script that runs nevertheless may act in the session until it ends; it cannot read the HttpOnly cookie, and
  never sees the token.
- **The network**: with https the cookie is Secure and bound to the host by its name's prefix. Without, a listener reads
  cookie and token, as with the API; the sign-in page says so.
- **Another port of the same host** receives the cookie from browsers, and could use it here until it ends.
- **A name that points to us** (DNS rebinding): a session belongs to the name it was made under, as cookies do. An open
  service answers to the names of this machine alone, see `auth.is_local`.
- **The database** stores the digests of tokens, which make no cookie without the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from secrets import token_urlsafe

from itsdangerous import BadSignature, Signer, TimestampSigner

LIFETIME = 8 * 3600
"""Seconds, whatever is done in the session."""


class Sessions:
    """Cookies and form proofs under one key."""

    def __init__(self, key: bytes) -> None:
        self._cookies = TimestampSigner(key, salt=b"allocator session", digest_method=sha256)
        self._proofs = Signer(key, salt=b"allocator form", digest_method=sha256)

    def issue(self, digest: bytes) -> str:
        """The cookie of a new session. The nonce gives two sessions of one token different proofs."""
        return self._cookies.sign(f"{digest.hex()}.{token_urlsafe(16)}").decode()

    def digest(self, cookie: str) -> bytes | None:
        """The digest of the token that the session was made with, while it lasts."""
        try:
            value = self._cookies.unsign(cookie.encode(errors="replace"), max_age=LIFETIME - 1)
        except BadSignature:
            return None
        return bytes.fromhex(value.decode().partition(".")[0])

    def proof(self, cookie: str) -> str:
        """The hidden field of a form, good for this session alone."""
        return self._proofs.get_signature(cookie).decode()

    def is_proof(self, given: str, cookie: str) -> bool:
        return self._proofs.verify_signature(cookie, given.encode(errors="replace"))


def is_from_us(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that one of our own pages sent this."""
    site = headers.get("sec-fetch-site")
    if site is not None:  # sent over https and on this machine
        return site == "same-origin"
    return headers.get("origin", "").partition("://")[2] == headers.get("host", "") != ""


def cookie_name(scheme: str, host: str) -> str:
    """With the port, since browsers send cookies to all ports of a host; over https with the prefix for one host."""
    port = host.rpartition(":")[2]
    own = f"allocator-{port}" if port.isdecimal() else "allocator"
    return f"__Host-{own}" if scheme == "https" else own


def own_path(given: str) -> str:
    """Where to go after signing in: a path of ours, and nothing that a browser takes for another host."""
    is_ours = given.startswith("/") and not given.startswith("//") and "\\" not in given and given.isprintable()
    return given if is_ours else "/"

"""Whose request it is."""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.database.connection import CONNECTIONS
from allocator.errors import DatabaseRefused, DatabaseUnavailable, InvalidSetting, SchemaOutOfDate, TooManyRequests
from allocator.schemes.token import VERBS, Token, digest_of
from allocator.service.auth import RARE_BURST, RARE_SECONDS, SHARE, Principal, TokenCache, is_local
from allocator.service.error_responses import HttpRefusal, Unauthorized

SECRET = b"allocator_secret"
NOW = datetime.now(UTC)


def token(name: str = "x", secret: bytes = SECRET, **changes: object) -> Token:
    given = {"verbs": VERBS, "tags": ("*",)} | changes
    return Token(1, name, digest_of(secret), created_at=NOW, **given)


def token_cache(*tokens: Token, is_open: bool = False, made: bool | None = None) -> TokenCache:
    found = TokenCache(lambda: (list(tokens), bool(tokens) if made is None else made), is_open)
    asyncio.run(found.refresh())
    return found


def bearer(secret: bytes = SECRET, **more: bytes) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + secret, b"host": b"ids.example.org"}


LOCAL = [
    {b"host": b"127.0.0.1:8000"},
    {b"host": b"localhost"},
    {b"host": b"[::1]:8000"},
    {b"host": b"localhost", b"origin": b"http://localhost:3000"},
    {b"host": b"localhost", b"sec-fetch-site": b"same-origin"},
]
FOREIGN: list[dict[bytes, bytes]] = [
    {},
    {b"host": b"127.0.0.1.example.org"},
    {b"host": b"localhost.example.org:8000"},
    *({b"host": b"localhost", b"origin": origin} for origin in (b"https://example.org", b"null")),
    *({b"host": b"localhost", b"sec-fetch-site": site} for site in (b"cross-site", b"same-site")),
    *(
        {b"host": b"127.0.0.1:8000", name: b"127.0.0.1"}
        for name in (b"x-forwarded-for", b"x-real-ip", b"forwarded", b"via", b"true-client-ip")
    ),
]


def test_what_may_come_from_this_machine():
    assert [headers for headers in LOCAL if not is_local(headers)] == []
    assert [headers for headers in FOREIGN if is_local(headers)] == []


def test_a_secret_is_known_by_its_digest():
    found = token_cache(token())

    assert found.find_in_memory(bearer()).token.name == "x"
    assert found.find_in_memory({b"authorization": b"bearer " + SECRET}).token.name == "x"
    for wrong in (b"Basic " + SECRET, b"Bearer", b"Bearer  " + SECRET, b"Bearer " + SECRET.upper(), SECRET):
        assert found.find_in_memory({b"authorization": wrong}) is None
    assert found.find_in_memory({}) is None


def find(found: TokenCache, headers: dict[bytes, bytes]) -> Principal:
    """As by a request that comes between two reads."""

    async def story() -> Principal:
        asking = asyncio.create_task(found.find(headers))
        await asyncio.sleep(0)
        await found.refresh()
        return await asking

    return asyncio.run(story())


def test_nothing_is_open_before_the_tokens_were_read_and_nobody_waits_for_them_longer_than_for_the_database(caplog):
    unread, found = TokenCache(raising, True), TokenCache(lambda: ([], True), is_open=False, timeout=0.0)
    for one in (unread, found):
        asyncio.run(one.refresh())

    assert unread.find_in_memory({b"host": b"localhost"}) is None
    assert caplog.messages == ["cannot read the tokens; requests with a token are refused: away"]
    with pytest.raises(DatabaseUnavailable):
        find(unread, {b"host": b"localhost"})
    with pytest.raises(DatabaseUnavailable, match="the tokens could not be read within 0 seconds"):
        asyncio.run(found.find(bearer()))


def test_a_token_that_may_be_new_is_looked_for_and_not_refused_while_the_tokens_cannot_be_read(caplog):
    """Its client must try again. What ended, or is no token of ours, is refused at once."""
    caplog.set_level("INFO", "allocator.service")
    failures = [DatabaseUnavailable("away"), SchemaOutOfDate("lacks allocator_token"), DatabaseRefused("not granted")]
    revoked, expired = token(secret=b"allocator_revoked"), token(secret=b"allocator_old", expires_at=NOW)
    load = Mock(side_effect=[([revoked, expired], True), ([expired], True), ([expired, token()], True)])
    found = TokenCache(load, is_open=False)
    asyncio.run(found.refresh())
    asyncio.run(found.refresh())

    assert find(found, bearer()).token.name == "x"
    for failure in failures:
        load.side_effect = [failure, failure]
        for _ in range(2):
            with pytest.raises(type(failure)):
                find(found, bearer(b"allocator_new"))
        for ended in (b"allocator_revoked", b"allocator_old", b"other"):
            with pytest.raises(Unauthorized):
                asyncio.run(found.find(bearer(ended)))
        assert asyncio.run(found.find(bearer())).token.name == "x"
    load.side_effect = [([token()], True)]
    asyncio.run(found.refresh())
    said = [(record.levelname, record.message) for record in caplog.records]
    assert said == [
        *(
            (level, f"cannot read the tokens; the last ones stay valid: {failure}")
            for level, failure in zip(("WARNING", "ERROR", "ERROR"), failures, strict=True)
        ),
        ("INFO", "the database answers again, and the tokens are read"),
    ]


def raising() -> tuple[list[Token], bool]:
    raise DatabaseUnavailable("away")


def test_a_grant_that_did_not_change_keeps_what_it_had_ready():
    tokens = [token()]
    found = TokenCache(lambda: (list(tokens), True), False)
    asyncio.run(found.refresh())
    first = found.find_in_memory(bearer())
    asyncio.run(found.refresh())
    assert found.find_in_memory(bearer()) is first
    tokens[:] = [token(tags=("other",))]
    asyncio.run(found.refresh())

    assert found.find_in_memory(bearer()) is not first


def test_requests_beyond_the_share_of_a_token_wait_for_their_turn_and_are_refused_once_it_is_revoked():
    async def story() -> None:
        tokens = [token()]
        found = TokenCache(lambda: (tokens, True), is_open=False)
        await found.refresh()
        principal, other, now = found.find_in_memory(bearer()), Principal(token()), monotonic()
        assert principal is not None
        async with AsyncExitStack() as held:
            for _ in range(SHARE):
                await held.enter_async_context(principal.connection_slot(now))
            with pytest.raises(HttpRefusal, match="too many requests"):
                await held.enter_async_context(principal.connection_slot(now))
            await held.enter_async_context(other.connection_slot(now))
            waiting = asyncio.create_task(held.enter_async_context(principal.connection_slot(now + 10)))
            tokens.clear()
            await found.refresh()
        with pytest.raises(Unauthorized, match="this token was revoked"):
            await waiting
        async with other.connection_slot(now):  # what was held is given back
            pass

    asyncio.run(story())
    assert CONNECTIONS - 1 == SHARE


# -- the rule of rates: one number, and time that is an argument


def served(requests: list[float]) -> int:
    """How many of them are admitted."""
    principal, admitted = Principal(token()), 0
    for now in requests:
        with suppress(TooManyRequests):
            principal.admit_rare(now)
            admitted += 1
    return admitted


@given(st.lists(st.floats(0, 60), max_size=300))
def test_over_any_time_no_more_than_the_rate_and_the_burst_come_through(requests):
    requests.sort()
    if requests:
        passed = requests[-1] - requests[0]
        assert served(requests) <= passed / RARE_SECONDS + RARE_BURST + 1 + 1e-6


def test_a_burst_is_admitted_at_once_and_the_pause_after_it_is_exactly_what_is_needed():
    """An unused rate is not saved beyond the burst."""
    assert served([0.0, *[1000.0] * 50]) == RARE_BURST + 2
    principal = Principal(token())
    for _ in range(RARE_BURST + 1):
        principal.admit_rare(100.0)
    with pytest.raises(TooManyRequests) as refused:
        principal.admit_rare(100.25)

    assert refused.value.retry_after == pytest.approx(RARE_SECONDS - 0.25)
    principal.admit_rare(100.25 + refused.value.retry_after)


# -- what a token is good for; which routes ask for what: contract/test_tokens.py


def good_for(**changes: object) -> Token:
    return replace(token(), **({"verbs": ("draw",), "tags": ("order", "bill-*")} | changes))


def test_a_pattern_matches_whole_names_and_their_case():
    for name, may in [
        ("order", True),
        ("orders", False),
        ("Order", False),
        ("bill-", True),
        ("bill-7.x", True),
        ("bill", False),
    ]:
        assert good_for().may("draw", name) is may, name
        assert not good_for().may("read", name), name


def test_validity_ends_at_the_very_moment():
    ends = NOW + timedelta(days=1)

    assert good_for(expires_at=ends).is_valid(ends - timedelta(microseconds=1))
    assert not good_for(expires_at=ends).is_valid(ends)
    assert good_for().is_valid(datetime.max.replace(tzinfo=UTC))


def test_a_wish_that_makes_no_sense_is_refused(subtests):
    for changes, sentence in [
        ({"name": "a b"}, "the name of a token"),
        ({"verbs": ()}, "the verbs of a token must be of draw, read, administer, got ''"),
        ({"verbs": ("fly",)}, "got 'fly'"),
        *(
            ({"tags": (odd,)}, "a pattern must be 1 to 64")
            for odd in ("[a-z]", "a?", "a b", "", "é", "x" * 65, "a\n", "@", "@*", "@uuid")
        ),
        ({"tags": ()}, "needs a pattern of tags, got none"),
        ({"tags": ("x" * 60,) * 20}, "at most 1000 characters in all, got 1219"),
        ({"expires_at": NOW}, "must expire in the future"),
    ]:
        with subtests.test(changes=changes), pytest.raises(InvalidSetting, match=sentence):
            good_for(**changes).checked()


def test_a_digest_is_the_sha_256():
    assert digest_of(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

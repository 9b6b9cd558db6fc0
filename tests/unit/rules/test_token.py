"""What a token is good for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from allocator.errors import InvalidSetting
from allocator.rules.token import SCHEMES, VERBS, Token, digest_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def token(**changes: object) -> Token:
    given = {"name": "x", "verbs": ("draw",), "tags": ("order", "bill-*")}
    return Token(1, digest="d", created_at=NOW, **(given | changes))


def test_a_pattern_matches_whole_names_and_their_case():
    for name, may in [
        ("order", True),
        ("orders", False),
        ("Order", False),
        ("bill-", True),
        ("bill-7.x", True),
        ("bill", False),
    ]:
        assert token().may("draw", name) is may, name
        assert not token().may("read", name), name


def test_without_a_name_the_verb_alone_counts():
    assert token().may("draw", None)
    assert not token().may("administer", None)


def test_no_pattern_of_tags_is_good_for_a_scheme_and_no_scheme_for_a_tag():
    for pattern in ("s*", "snowflake"):
        assert token(tags=(pattern,)).may("draw", "snowflake")
        assert not token(tags=(pattern,)).may("draw", "@snowflake")
    assert token(tags=("*",)).may("draw", "@snowflake")
    of_scheme = token(tags=("@snowflake",))

    assert of_scheme.may("draw", "@snowflake")
    assert not of_scheme.may("draw", "@meteor")
    assert not of_scheme.may("draw", "snowflake")
    assert not token(verbs=("read",), tags=SCHEMES).may("draw", "@snowflake")


def test_a_tag_is_created_by_its_name_in_full_or_by_who_may_administer_it():
    for verbs, pattern, may in [
        (("draw",), "order", True),
        (("draw",), "orde*", False),
        (("draw",), "*", False),
        (("administer",), "orde*", True),
        (("administer",), "bill-*", False),
    ]:
        assert token(verbs=verbs, tags=(pattern,)).may_create("order") is may, (verbs, pattern)


def test_brackets_and_question_marks_are_no_patterns():
    for odd in ("[a-z]", "a?", "a b", "", "é", "x" * 65, "a\n", "@", "@*", "@uuid"):
        with pytest.raises(InvalidSetting, match="a pattern must be 1 to 64"):
            token(tags=(odd,)).checked()


def test_validity_ends_at_the_very_moment():
    ends = NOW + timedelta(days=1)

    assert token(expires_at=ends).is_valid(ends - timedelta(microseconds=1))
    assert not token(expires_at=ends).is_valid(ends)
    assert token().is_valid(datetime.max.replace(tzinfo=UTC))


def test_a_wish_that_makes_no_sense_is_refused(subtests):
    for changes, sentence in [
        ({"name": "a b"}, "the name of a token"),
        ({"verbs": ()}, "the verbs of a token must be of draw, read, administer, got ''"),
        ({"verbs": ("fly",)}, "got 'fly'"),
        ({"tags": ()}, "needs a pattern of tags, got none"),
        ({"tags": ("x" * 60,) * 20}, "at most 1000 characters in all, got 1219"),
        ({"expires_at": NOW}, "must expire in the future"),
    ]:
        with subtests.test(changes=changes), pytest.raises(InvalidSetting, match=sentence):
            token(**changes).checked()


def test_a_sound_wish_is_taken():
    for verb in VERBS:
        assert token(verbs=(verb,), expires_at=NOW + timedelta(seconds=1)).checked()


def test_a_digest_is_the_sha_256():
    assert digest_of(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

"""Public ids: texts for outsiders, which reveal neither the number of ids nor their order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from secrets import token_hex
from typing import Any, NoReturn

from allocator.errors import InvalidId, InvalidSetting, NotCopyable
from allocator.public_ids import base62
from allocator.public_ids.seal import Seal
from allocator.schemes.shared.argument_checks import MAX_ID, check_whole, integer, quoted

KEY_BYTES = range(16, 65)
"""128 bits resist guessing; keyed BLAKE2b takes at most 64 bytes."""
NEW_KEY_BYTES = 32
DIGITS = re.compile(rb"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{64}|[0-9A-Fa-f]{128})")
"""Hexadecimal digits of a key of 16, 32 or 64 bytes. A random key looks like this with a chance below 10**-34."""
PREFIX = re.compile(r"[A-Za-z0-9._~-]{0,32}", re.ASCII)


class PublicIds:
    """A one-to-one mapping of ids to opaque texts, and back, under a secret key.

        public = PublicIds(key, prefix="ord_")
        public.encode(1)                    "ord_" and 16 characters
        public.decode(public.encode(1))     1

    key: 16 to 64 bytes, or their hexadecimal digits as str (digits as bytes are refused), as from
        `PublicIds.new_key()`. Keep it: without it no text can be decoded.
    prefix: the beginning of each text: up to 32 of A-Z a-z 0-9 . _ ~ -. Each prefix has its own mapping, so order 1 and
        customer 1 get unrelated texts.
    old_keys: former keys, whose texts can still be decoded.

    A text that was altered, made up, or made with another key decodes with a chance of 2**-26, and never if one
    character was replaced or two neighbours were swapped.

    Key and prefix define the format: a change of one changes the texts. The format is version 1, and no release will
    change it. Immutable; safe to use from several threads. Raises `InvalidSetting`.
    """

    __slots__ = ("_digits", "_length", "_old", "_prefix", "_seal")

    def __init__(
        self,
        key: bytes | str,
        *,
        prefix: str = "",
        old_keys: Iterable[bytes | str] = (),
    ) -> None:
        self._prefix = check_prefix(prefix)
        keys = [check_key(key), *map(check_key, check_old_keys(old_keys))]
        self._seal, *self._old = [Seal(one, prefix) for one in keys]
        self._digits = base62.length_of(self._seal.greatest)
        self._length = len(prefix) + self._digits

    @staticmethod
    def new_key() -> str:
        """A new random key, as 64 hexadecimal digits."""
        return token_hex(NEW_KEY_BYTES)

    def encode(self, id_: int) -> str:
        """The text of an id; all texts have the same length. Raises `InvalidId`."""
        number = check_whole("an id", integer(id_), 1, MAX_ID, InvalidId)
        return self._prefix + base62.encode(self._seal.seal(number), self._digits)

    def decode(self, text: str) -> int:
        """The id of a text. Raises `InvalidId` for a text that `encode` never returns."""
        if not isinstance(text, str) or len(text) != self._length or not text.startswith(self._prefix):
            raise InvalidId(self._describe_format(text))
        sealed = base62.decode(text[len(self._prefix) :])
        id_ = None if sealed is None else self._open(sealed)
        if id_ is None:
            raise InvalidId(f"{text!a} was altered or mistyped, or made with another key")
        return id_

    def _open(self, sealed: int) -> int | None:
        """The id by the first key whose check fits, the present key first."""
        opened = (seal.open(sealed) for seal in (self._seal, *self._old))
        return next((id_ for id_ in opened if id_ is not None), None)

    def __get_pydantic_core_schema__(self, source: object, _: object) -> Any:
        """For Pydantic and FastAPI: `Annotated[int, public]` decodes a text to the id, and encodes it in JSON.

        Plain numbers are refused.
        """
        from pydantic_core import core_schema

        if source is not int:
            raise InvalidSetting(f"public ids must be Annotated[int, …], got {source!r}")
        text = core_schema.str_schema(min_length=self._length, max_length=self._length)
        shown = core_schema.plain_serializer_function_ser_schema(self.encode, return_schema=text, when_used="json")
        read = core_schema.no_info_after_validator_function(self.decode, text)
        return core_schema.chain_schema([read, core_schema.int_schema()], serialization=shown)

    def _describe_format(self, got: object) -> str:
        before = f"{self._prefix!r} and " if self._prefix else ""
        received = f"{len(got)} characters: {ascii(got)[:60]}" if isinstance(got, str) else type(got).__name__
        return f"a public id is {before}{self._digits} characters of {base62.SHOWN}, got {received}"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise NotCopyable("PublicIds holds a secret key and cannot be copied or pickled; make one where it is used")

    def __repr__(self) -> str:
        return f"<PublicIds {self._prefix}…, {self._length} characters>"


def check_key(key: object) -> bytes:
    """The bytes of a key. No message may contain the key."""
    if isinstance(key, str):
        key = parse_digits(key)
    elif not isinstance(key, bytes):
        raise InvalidSetting(f"a key must be bytes, or hexadecimal digits as str, got {type(key).__name__}")
    elif DIGITS.fullmatch(key):  # a different key than the same digits as str
        raise InvalidSetting(
            f"got a key of {len(key)} hexadecimal digits as bytes; pass the digits as str, or decode them"
        )
    if len(key) not in KEY_BYTES:
        raise InvalidSetting(
            f"a key must be {KEY_BYTES[0]} to {KEY_BYTES[-1]} bytes, got {len(key)}; make one with PublicIds.new_key()"
        )
    return key


def parse_digits(key: str) -> bytes:
    try:
        return bytes.fromhex(key)
    except ValueError:
        raise InvalidSetting(
            f"a key as str must be hexadecimal digits, got {len(key)} characters that are not; pass bytes, or make "
            "a key with PublicIds.new_key()"
        ) from None


def check_old_keys(keys: object) -> list[object]:
    if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
        raise InvalidSetting(f"old_keys must be a list of keys, got {type(keys).__name__}")
    return list(keys)


def check_prefix(prefix: object) -> str:
    if isinstance(prefix, str) and (match := PREFIX.fullmatch(prefix)):
        return match.group()
    raise InvalidSetting(
        f"prefix must be up to 32 of the characters A-Z a-z 0-9 . _ ~ -, got {quoted(prefix, 60, ascii)}"
    )

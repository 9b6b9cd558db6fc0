"""Public ids: texts that can be read back, and what is refused."""

import asyncio
import json
import os
import pickle
from typing import Annotated

import pytest
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError
from support.kit import output
from support.service.asgi import ask

from allocator import JAVASCRIPT_MAX_ID, PublicIds
from allocator.errors import InvalidId, InvalidSetting, NotCopyable
from allocator.public_ids import base62, seal
from allocator.public_ids.base62 import DIGITS
from allocator.public_ids.seal import Permutation
from allocator.schemes.shared.argument_checks import MAX_ID

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))

KNOWN = [
    ({}, 1, "ch7CeG9133OA2RkU"),
    ({}, MAX_ID, "Z8SHKzxyP1bjDK0t"),
    ({"prefix": "ord_"}, 1, "ord_I9UOBqekNF7q8zln"),
    ({"prefix": "ord_"}, 2, "ord_hSX4kvtBV2kuW9KT"),
]
"""Of version 1, under `KEY`: customers have such texts in their URLs. No change of the library may change these."""


@pytest.mark.parametrize(("format_", "id_", "text"), KNOWN)
def test_known_answers_of_version_1(format_, id_, text):
    public = PublicIds(KEY, **format_)

    assert public.encode(id_) == text
    assert public.decode(text) == id_


@settings(max_examples=150)
@given(st.binary(min_size=16, max_size=64), st.integers(1, MAX_ID))
def test_every_id_has_a_text_of_one_length_and_is_read_back(key: bytes, id_: int):
    public = PublicIds(key.hex(), prefix="a.b~c-")
    text = public.encode(id_)

    assert public.decode(text) == id_
    assert len(text) == len(public.encode(1))
    assert set(text.removeprefix("a.b~c-")) <= set(DIGITS)


@settings(max_examples=300)
@given(st.integers(0, 2**89 - 1), st.data())
def test_without_any_key_one_alteration_is_refused_for_sure(number: int, data: st.DataObject):
    """A property of the arithmetic, whatever the number: the tag has no part in it."""
    text = base62.encode(number, base62.length_of(2**89 - 1))
    assert base62.decode(text) == number
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from([digit for digit in f"{DIGITS}*-_ é\u0661\n" if digit != text[place]]))
    swapped = text[:place] + text[place : place + 2][::-1] + text[place + 2 :]

    assert base62.decode(text[:place] + other + text[place + 1 :]) is None
    assert swapped == text or base62.decode(swapped) is None


def test_control_digits_alone_take_every_text(monkeypatch):
    monkeypatch.setattr(base62, "FACTOR", 1)
    text = base62.encode(12345, base62.length_of(2**89 - 1))

    assert base62.decode(text[:-1] + "0") is not None
    assert base62.decode(text) == 12345


REFUSED = {
    "another prefix": lambda text: "cus_" + text[4:],
    "the prefix in capitals": lambda text: "ORD_" + text[4:],
    "longer by a zero": lambda text: "ord_0" + text[4:],
    "shorter by a zero, of 122": lambda text: "ord_sbZxRXvCr7jyioB",
    "a new line behind it": lambda text: text + "\n",
    "in the other case": lambda text: "ord_" + text[4:].swapcase(),
    "zeros": lambda text: "ord_" + "0" * (len(text) - 4),
    "the greatest digits": lambda text: "ord_" + "z" * (len(text) - 4),
    "empty": lambda text: "",
    "a number": lambda text: 5,
    "a number that cannot be shown": lambda text: 10**5000,
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_is_never_written_is_refused(change):
    public = PublicIds(KEY, prefix="ord_")
    for id_ in range(1, 6):
        with pytest.raises(InvalidId):
            public.decode(change(public.encode(id_)))


def test_numbers_beyond_all_ids_and_zero_are_refused_though_their_form_is_good(monkeypatch):
    monkeypatch.setattr(seal, "CHECK", 0)
    public = PublicIds(KEY)
    for number in (0, MAX_ID + 1):
        with pytest.raises(InvalidId, match="or made with another key"):
            public.decode(base62.encode(number, len(public.encode(1))))


def test_texts_of_another_key_or_prefix_are_refused():
    public, bare = PublicIds(KEY), PublicIds(KEY, prefix="a")
    for id_ in range(1, 100):
        for strange in (PublicIds(OTHER).encode(id_), bare.encode(id_)[1:]):
            with pytest.raises(InvalidId, match="another key"):
                public.decode(strange)


def is_taken(public: PublicIds, text: str) -> bool:
    try:
        return 1 <= public.decode(text) <= MAX_ID
    except InvalidId:
        return False


@pytest.mark.parametrize(("check", "low", "high"), [(0, 1000, 1000), (4, 30, 100), (12, 0, 4)])
def test_with_a_check_of_n_bits_one_wrong_text_in_2_to_the_n_is_taken(check, low, high, monkeypatch):
    """One of 4 bits lets about one in 16 pass, and without any every text of another key is taken."""
    monkeypatch.setattr(seal, "CHECK", check)
    ours, theirs = PublicIds(KEY), PublicIds(OTHER)
    assert low <= sum(is_taken(ours, theirs.encode(id_)) for id_ in range(1, 1001)) <= high


def test_old_keys_are_read_and_the_new_one_writes():
    before, after = PublicIds(OTHER), PublicIds(KEY, old_keys=[b"k" * 16, OTHER])

    assert all(after.decode(before.encode(id_)) == id_ for id_ in range(1, 50))
    assert after.encode(7) == PublicIds(KEY).encode(7)
    for reads, writes in ((before, after), (after, PublicIds(b"x" * 16))):
        with pytest.raises(InvalidId):
            reads.decode(writes.encode(7))


@pytest.mark.parametrize("bad", [0, MAX_ID + 1, 2**70, True, "1", None])
def test_what_is_no_id_is_refused(bad):
    with pytest.raises(InvalidId, match="an id must be"):
        PublicIds(KEY).encode(bad)


def test_a_setting_that_cannot_be_is_refused_with_one_sentence(subtests):
    for settings_, sentence in [
        ({"key": b"k" * 65}, "16 to 64 bytes, got 65"),
        ({"key": "ab" * 15}, "16 to 64 bytes, got 15"),
        ({"key": "correct horse battery"}, "21 characters that are not"),
        ({"key": KEY.hex().encode()}, "64 hexadecimal digits as bytes; pass the digits as str, or decode them"),
        ({"key": KEY, "old_keys": [OTHER.hex().encode()]}, "64 hexadecimal digits as bytes"),
        ({"key": None}, "got NoneType"),
        ({"prefix": "ord/"}, "prefix must be up to 32"),
        ({"prefix": "é"}, "prefix must be up to 32"),
        ({"old_keys": OTHER}, "old_keys must be a list of keys, got bytes"),
        ({"old_keys": [b"short"]}, "16 to 64 bytes, got 5"),
    ]:
        with subtests.test(settings_=settings_):
            with pytest.raises(InvalidSetting) as refused:
                PublicIds(**{"key": KEY, **settings_})

            assert sentence in str(refused.value)
            assert refused.value.__cause__ is None


def test_the_key_is_never_shown():
    secret = "c0ffee" * 8
    public = PublicIds(secret, prefix="ord_", old_keys=[secret.replace("c", "d")])
    shown = [repr(public), str(public), repr(public._seal), f"{public}"]
    for call in (lambda: PublicIds(secret + "0"), lambda: PublicIds(secret * 4), lambda: public.decode("ord_x")):
        with pytest.raises((InvalidId, InvalidSetting)) as refused:
            call()
        shown += [str(refused.value), repr(refused.value.__context__)]

    assert repr(public) == "<PublicIds ord_…, 20 characters>"
    assert not [text for text in shown if "ffee" in text or str(bytes.fromhex(secret))[2:-1] in text]
    assert not hasattr(public, "__dict__")


def test_a_key_as_text_is_the_same_as_its_bytes():
    """Bytes that are no key in digits are one as they are; and a key in digits may have bytes that are digits."""
    for key in [KEY, b"ab" * 17, b"ab" * 31 + b"no", b"ab" * 15 + b"a\n"]:
        assert PublicIds(key.hex()).encode(1) == PublicIds(key).encode(1) == PublicIds(key.hex().upper()).encode(1)
    assert PublicIds((b"ab" * 16).hex()).encode(1)
    made = {PublicIds.new_key() for _ in range(5)}
    assert {len(bytes.fromhex(key)) for key in made} == {32}
    assert len({PublicIds(key).encode(1) for key in made}) == 5


def test_every_process_writes_the_same_and_needs_no_database_and_no_pydantic():
    code = (
        "import sys; sys.modules['pydantic_core'] = None; from allocator import PublicIds; "
        "print(PublicIds(bytes(range(32)), prefix='ord_').encode(1)); "
        "print(*{'sqlalchemy', 'asyncio', 'click'} & sys.modules.keys())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}

    assert output(code, env=environment).split("\n")[:2] == ["ord_I9UOBqekNF7q8zln", ""]


def test_a_secret_key_is_not_pickled():
    with pytest.raises(NotCopyable, match="holds a secret key"):
        pickle.dumps(PublicIds(b"k" * 16))


# -- the permutation behind public ids: one to one, keyed, and without order


limits = st.one_of(st.sampled_from([MAX_ID, JAVASCRIPT_MAX_ID]), st.integers(1, MAX_ID))


def test_every_number_up_to_the_limit_is_that_of_one_id():
    for limit in [*range(1, 70), 127, 128, 255, 256, 257, 511, 1000, 1023, 1024, 1025, 4095]:
        permutation = Permutation(KEY, limit)
        numbers = [permutation.forward(id_) for id_ in range(1, limit + 1)]

        assert sorted(numbers) == list(range(1, limit + 1)), limit
        assert [permutation.back(number) for number in numbers] == list(range(1, limit + 1)), limit


@settings(max_examples=150)
@given(st.binary(min_size=16, max_size=64), limits, st.data())
def test_back_is_the_inverse_of_forward(key: bytes, limit: int, data: st.DataObject):
    permutation = Permutation(key, limit)
    id_ = data.draw(st.integers(1, limit))
    number = permutation.forward(id_)

    assert 1 <= number <= limit
    assert permutation.back(number) == id_
    assert permutation.forward(permutation.back(id_)) == id_


@pytest.mark.parametrize("limit", [MAX_ID, JAVASCRIPT_MAX_ID])
def test_each_bit_of_an_id_or_of_the_key_changes_half_of_the_number(limit):
    bits, ids = limit.bit_length(), range(1000, 1040)
    one, other = Permutation(KEY, limit), Permutation(bytes([1, *KEY[1:]]), limit)
    by_bit = [one.forward(id_) ^ one.forward(id_ ^ 1 << bit) for id_ in ids for bit in range(0, bits - 1, 5)]
    by_key = [one.forward(id_) ^ other.forward(id_) for id_ in ids]
    for changed in (by_bit, by_key):
        assert 0.45 < sum(map(int.bit_count, changed)) / (bits * len(changed)) < 0.55


# -- public ids as types of Pydantic and FastAPI: text outside, the id or the checked text inside


orders = PublicIds(bytes(range(32)), prefix="ord_")
OrderId = Annotated[int, orders]
ONE, MISTYPED, SHORT = orders.encode(1), "ord_I9UOBqekNF7q8z1n", "ord_I9UOBqekNF7q8z"
WRONG = [MISTYPED, SHORT, "1", "", 1, True, None, 1.0, PublicIds(bytes(32), prefix="ord_").encode(1)]


class Order(BaseModel):
    id: OrderId
    before: OrderId | None = None


def test_an_int_is_the_id_inside_and_text_in_json():
    order = Order.model_validate_json(json.dumps({"id": ONE, "before": orders.encode(7)}))

    assert order.model_dump() == {"id": 1, "before": 7}
    assert json.loads(order.model_dump_json()) == {"id": ONE, "before": orders.encode(7)}
    assert json.loads(Order(id=ONE).model_dump_json()) == {"id": ONE, "before": None}  # type: ignore[arg-type]


def test_what_encode_never_makes_is_refused_and_the_schema_says_its_length():
    """Plain numbers too, or else whoever sends a request could count."""
    adapter: TypeAdapter[int] = TypeAdapter(OrderId)
    for wrong in WRONG:
        for validate, value in ((adapter.validate_python, wrong), (adapter.validate_json, json.dumps(wrong))):
            with pytest.raises(ValidationError):
                validate(value)
    with pytest.raises(ValidationError, match=f"'{MISTYPED}' was altered or mistyped, or made with another key"):
        adapter.validate_python(MISTYPED)
    for mode in ("validation", "serialization"):
        assert adapter.json_schema(mode=mode) == {"type": "string", "minLength": 20, "maxLength": 20}


def test_any_other_type_is_refused_when_the_model_is_made():
    with pytest.raises(InvalidSetting, match=r"must be Annotated\[int, …\], got <class 'float'>"):
        TypeAdapter(Annotated[float, orders])


app = FastAPI()


@app.get("/orders/{id_}")
async def read(id_: OrderId, after: OrderId | None = None) -> list[int | None]:
    return [id_, after]


@pytest.mark.parametrize(
    ("path", "query", "answer"),
    [(ONE, f"after={orders.encode(9)}", [1, 9]), (MISTYPED, "", None), ("1", "", None), (ONE, "after=1", None)],
)
def test_fastapi_reads_ids_out_of_paths_and_queries_and_answers_422(path, query, answer):
    status, body = asyncio.run(ask(app, "GET", f"/orders/{path}", query))
    assert (status, answer and body) == (200 if answer else 422, answer)

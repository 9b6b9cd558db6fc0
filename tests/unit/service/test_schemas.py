"""What a query and a body may hold."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from allocator.errors import AllocatorError, InvalidCount, InvalidSetting, InvalidTag
from allocator.schemes.shared.residues import Residue
from allocator.service import schemas
from allocator.service.dispatch import refusal_of


def read(form: type[schemas.Form], value: Any) -> dict[str, Any]:
    try:
        return form.model_validate(value).given()
    except ValidationError as error:
        found: list[Any] = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise refusal_of(RequestValidationError(found)) from None


def test_fields_are_read_as_what_they_are():
    for form, value, found in [
        (schemas.Count, {"count": "3"}, {"count": 3}),
        (schemas.Wanted, {"seen": "1.2.3", "exact": "true"}, {"seen": {Residue(1, 2): 3}, "exact": True}),
        (
            schemas.Settings,
            {"limit": "9223372036854775807", "failover_gap": "5"},
            {"limit": 2**63 - 1, "failover_gap": 5},
        ),
        (schemas.Settings, {"failover_gap": "auto"}, {"failover_gap": "auto"}),
        (schemas.Settings, {}, {}),
    ]:
        assert read(form, value) == found


def test_what_cannot_be_is_refused_by_its_name(subtests):
    for form, value, kind, sentence in [
        (schemas.Count, {"count": "0"}, InvalidCount, "^count must be 1 to 1000, got 0$"),
        (schemas.Count, {"count": "1001"}, InvalidCount, "^count must be 1 to 1000, got 1001$"),
        (schemas.Count, {"count": "9" * 5000}, InvalidCount, "^count: .* got '9{1,80}$"),
        (schemas.Count, {"count": "two"}, InvalidCount, "^count: .* got 'two'$"),
        (schemas.Wanted, {"size": "1000000000"}, InvalidCount, "^size: .* got '1000000000'$"),
        (schemas.Settings, {"failover_gap": "often"}, InvalidSetting, '^failover_gap must be "auto", "refuse" or a n'),
        (schemas.Settings, {"failover_gap": -1}, InvalidSetting, "^failover_gap must be 0 to [0-9]{19}, got -1$"),
        (schemas.Settings, {"failover_gap": None}, InvalidSetting, "^failover_gap must be .*got None$"),
        (schemas.Settings, {"step": 5.0}, InvalidSetting, "^step: .* got 5.0$"),
        (schemas.Settings, {"step": True}, InvalidSetting, "^step: .* got True$"),
        (schemas.Settings, {"step": "5"}, InvalidSetting, "^step: .* got '5'$"),
        (schemas.Settings, {"limit": " 5"}, InvalidSetting, "^limit must be a whole number .*, got ' 5'$"),
        (schemas.NumberWanted, {"now": 1, "seconds": "60"}, InvalidSetting, "^seconds: .* got '60'$"),
        (schemas.NumberWanted, {"now": 1, "seconds": 60, "host": ""}, InvalidSetting, "^host: .* got ''$"),
        (schemas.Wanted, {"seen": "1"}, InvalidSetting, "seen must be offset.step.id"),
        (schemas.Pages, {"after": "a b"}, InvalidTag, "a tag is 1 to 64"),
        (schemas.Format, {"scheme": "c"}, InvalidSetting, "^scheme: .*'meteor'"),
        (schemas.Settings, {"step": 5, "stepp": 1}, InvalidSetting, "unknown parameter 'stepp'"),
        (schemas.LeaseWanted, {"layout": "1/41/5/5/12", "epoch": 1, "now": 1}, InvalidSetting, "until is missing"),
        (schemas.LeaseWanted, {"layout": "x", "epoch": 1, "now": 1, "until": 2}, InvalidSetting, "layout"),
        (schemas.Settings, [1], AllocatorError, "the body must be a JSON object"),
    ]:
        with subtests.test(sentence=sentence), pytest.raises(kind, match=sentence):
            read(form, value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
BODIES = [schemas.Settings, schemas.Renewal, schemas.NumberWanted]
QUERIES = [schemas.Count, schemas.Wanted, schemas.Pages, schemas.Format]


def some(forms: list[type[schemas.Form]], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = sorted({name for form in forms for name in form.model_fields})
    given = st.dictionaries(st.sampled_from(names) | st.text(max_size=5), values, max_size=4)
    return st.tuples(st.sampled_from(forms), given)


@given(some(BODIES, json_values) | some(QUERIES, st.text(max_size=30)))
def test_whatever_comes_is_read_or_refused_in_a_line(request_of):
    sentence = ""
    try:
        read(*request_of)
    except AllocatorError as error:
        sentence = str(error)
    assert "\n" not in sentence

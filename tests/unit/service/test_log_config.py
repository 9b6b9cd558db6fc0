"""What the service writes into its log, and what never."""

from __future__ import annotations

import logging
from logging.config import dictConfig

import pytest

from allocator.rules.token import PREFIX
from allocator.service.log_config import Caller, caller_of, config_of, masked

SECRET = PREFIX + "Ab-_9" * 8 + "xyz"


def test_a_token_is_masked_wherever_it_stands():
    for text in ["/v1/tags/{}/ids", "token={}&x=1", "got '{}'", '{{"detail": "{}"}}', "{}"]:
        assert masked(text.format(SECRET)) == text.format("allocator_***"), text


def test_one_that_was_cut_off_is_masked_and_names_of_tables_are_not():
    assert masked(f"got '{SECRET[:36]}") == "got 'allocator_***"
    for name in (
        "allocator_schema_version",
        "allocator_number_void_pkey",
        "postgresql://u@h/allocator_test_25310_page001",
    ):
        assert masked(name) == name


@pytest.mark.parametrize("form", ["json", "text"])
def test_both_forms_mask(form, capsys, monkeypatch):
    dictConfig(config_of(form))
    logging.getLogger("allocator.service").info("said %s", SECRET, extra={"path": SECRET})
    try:
        raise ValueError(SECRET)
    except ValueError:
        logging.getLogger("of.the.server").exception("failed")

    said = capsys.readouterr().err
    assert "said allocator_***" in said
    assert "ValueError: allocator_***" in said
    assert SECRET not in said


def test_a_caller_is_an_address_and_the_number_of_a_token():
    assert str(Caller("192.0.2.7", 3)) == "192.0.2.7, token 3"
    assert str(Caller("192.0.2.7", None)) == "192.0.2.7"
    assert caller_of({"client": ("a\nb" + "x" * 99, 0)}).address == "a\\nb" + "x" * 60
    assert caller_of({"client": None}).address == "this machine"

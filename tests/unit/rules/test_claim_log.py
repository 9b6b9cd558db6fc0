"""The log of claims: what is written is found again, in any log."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from allocator.rules.claim_log import Claimed, claim_in

AT = datetime(2026, 11, 22, 15, 4, 5, tzinfo=UTC)
CLAIM = Claimed("order", range(3, 31, 3), "web-1", 4711, AT, "sqlite:///ids.db")


def test_a_claim_is_found_in_a_line():
    for line in [
        "{}",
        "2026-11-22 15:04:05,123 DEBUG allocator.claims {}\n",
        '{{"level": "DEBUG", "message": "{}", "logger": "allocator.claims"}}',
    ]:
        assert claim_in(line.format(CLAIM)) == CLAIM, line


def test_what_a_log_may_escape_is_replaced():
    odd = CLAIM._replace(host='a "b\\c\u00e9')

    assert claim_in(json.dumps({"message": str(odd)})) == CLAIM._replace(host="a??b?c?")


def test_any_other_line_is_passed_over():
    for line in [
        "",
        "claimed tag=order",
        str(CLAIM).replace("2026-11", "2026-99"),
        str(CLAIM).replace("step=3", "step=0"),
    ]:
        assert claim_in(line) is None, line

"""What a form changes."""

from __future__ import annotations

from allocator.service.console.actions import settings_of


def test_only_what_was_filled_in_and_changed_is_set():
    form = {
        "step": "5",
        "was_step": "5",
        "limit": "7",
        "was_limit": "9",
        "failover_gap": "",
        "start_after": "3",
        "proof": "x",
    }

    assert settings_of(form) == {"limit": 7, "start_after": 3}

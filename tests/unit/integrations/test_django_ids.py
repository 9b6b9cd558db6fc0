"""The allocator of a process, and where a tag goes on for a table that holds ids already: above them."""

import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from support.processes.threads import draw_on_threads

from allocator import Allocator, Tag
from allocator.errors import AccessDenied, InvalidSetting
from allocator.schemes.tag_column import Column

pytest.importorskip("django")

from allocator.integrations.django import ids as django_ids
from allocator.integrations.django.ids import settle

BIGINT = Column()


def test_a_tag_is_raised_above_what_a_table_holds_and_never_lowered():
    with Allocator("sqlite://") as ids:
        assert settle(ids, "order", BIGINT, 0) == 0
        assert ids.tags.list() == []
        assert settle(ids, "order", BIGINT, 500) == 500
        assert ids.next_id("order") == 501
        assert settle(ids, "order", BIGINT, 20) == 20
        assert ids.next_id("order") == 502
        ids.tags.create("small", limit=100)
        with pytest.raises(InvalidSetting, match="500"):
            settle(ids, "small", BIGINT, 500)


def refusing(error: Exception, *claimed: int) -> SimpleNamespace:
    """An allocator that refuses to raise a tag, which is found claimed so far, one time after the other."""
    found = [Tag("order", value) for value in claimed]
    return SimpleNamespace(tags=Mock(**{"get.side_effect": found, "set.side_effect": error}))


def test_another_process_may_raise_it_first():
    assert settle(refusing(InvalidSetting("it was changed"), 10, 600), "order", BIGINT, 500) == 500
    with pytest.raises(InvalidSetting):
        settle(refusing(InvalidSetting("it was changed"), 10, 499), "order", BIGINT, 500)
    # A token that is good for drawing alone leaves the tag to whoever made it.
    assert settle(refusing(AccessDenied("no"), 10), "order", BIGINT, 500) == 0


# -- one allocator for a process: made once, lent, closed


@pytest.fixture
def made(monkeypatch):
    """The allocators that the setting made."""
    found: list[Mock] = []
    monkeypatch.setattr(django_ids, "made", {})
    monkeypatch.setattr(django_ids, "make_allocator", lambda: found.append(Mock()) or found[-1])
    return found


def test_of_two_that_are_made_at_once_one_is_kept_and_the_other_closed(made, monkeypatch):
    make, both = django_ids.make_allocator, threading.Barrier(2)
    monkeypatch.setattr(django_ids, "make_allocator", lambda: (make(), both.wait(10))[0])
    [one], [other] = draw_on_threads(django_ids.allocator, threads=2, each=1)

    assert one is other is django_ids.allocator()
    assert [fresh.close.called for fresh in made] == [fresh is not one for fresh in made]
    assert len(made) == 2


def test_another_is_lent_and_left_open_and_the_own_one_closed_at_the_end(made):
    own, other = django_ids.allocator(), Mock()
    with django_ids.use(other):
        assert django_ids.allocator() is other
    assert django_ids.allocator() is own
    assert not other.close.called

    django_ids.on_setting(setting=django_ids.SETTING)
    second = django_ids.allocator()
    assert second is not own
    assert not second.close.called
    django_ids.close()
    assert (own.close.called, second.close.called) == (False, True)

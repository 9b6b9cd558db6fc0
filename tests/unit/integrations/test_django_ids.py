"""The allocator of a process, and where a tag goes on for a table that holds ids already: above them."""

import threading
from types import SimpleNamespace

import pytest
from support.processes.threads import draw_on_threads

from allocator import Allocator, PublicIds, Tag
from allocator.errors import AccessDenied, InvalidSetting
from allocator.schemes.tag_column import Column

pytest.importorskip("django")

from allocator.integrations.django import ids as django_ids
from allocator.integrations.django import public_id_converter
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


def test_a_table_beyond_the_limit_of_its_tag_is_refused():
    with Allocator("sqlite://") as ids:
        ids.tags.create("order", limit=100)
        with pytest.raises(InvalidSetting, match="500"):
            settle(ids, "order", BIGINT, 500)


def refusing(error: Exception, *claimed: int) -> SimpleNamespace:
    """An allocator that refuses to raise a tag, which is found claimed so far, one time after the other."""
    found = iter(claimed)

    def get(tag: str) -> Tag:
        return Tag(tag, next(found))

    def refuse(tag: str, start_after: int) -> None:
        raise error

    return SimpleNamespace(tags=SimpleNamespace(get=get, set=refuse))


def test_another_process_may_raise_it_first():
    assert settle(refusing(InvalidSetting("it was changed"), 10, 600), "order", BIGINT, 500) == 500
    with pytest.raises(InvalidSetting):
        settle(refusing(InvalidSetting("it was changed"), 10, 499), "order", BIGINT, 500)


def test_a_token_that_is_good_for_drawing_alone_leaves_the_tag_to_whoever_made_it():
    assert settle(refusing(AccessDenied("no"), 10), "order", BIGINT, 500) == 0


# -- one allocator for a process: made once, lent, closed


class Fake:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def made(monkeypatch):
    """The allocators that the setting made."""
    found: list[Fake] = []
    monkeypatch.setattr(django_ids, "made", {})
    monkeypatch.setattr(django_ids, "make_allocator", lambda: found.append(Fake()) or found[-1])
    return found


def test_of_two_that_are_made_at_once_one_is_kept_and_the_other_closed(made, monkeypatch):
    make, both = django_ids.make_allocator, threading.Barrier(2)

    def make_at_once() -> Fake:
        fresh = make()
        both.wait(10)
        return fresh

    monkeypatch.setattr(django_ids, "make_allocator", make_at_once)
    [one], [other] = draw_on_threads(django_ids.allocator, threads=2, each=1)

    assert one is other is django_ids.allocator()
    assert [fresh.closed for fresh in made] == [fresh is not one for fresh in made]
    assert len(made) == 2


def test_another_is_lent_and_left_open(made):
    own, other = django_ids.allocator(), Fake()
    with django_ids.use(other):
        assert django_ids.allocator() is other

    assert django_ids.allocator() is own
    assert not other.closed


def test_it_is_forgotten_open_and_closed_at_the_end(made):
    first = django_ids.allocator()
    django_ids.on_setting(setting=django_ids.SETTING)
    second = django_ids.allocator()

    assert second is not first
    assert [first.closed, second.closed] == [False, False]

    django_ids.close()

    assert [first.closed, second.closed] == [False, True]


# -- public ids in Django: what a path converter takes


PUBLIC = PublicIds(bytes(range(32)), prefix="ord_")


def test_a_path_has_the_text_and_the_view_the_number():
    converter = public_id_converter(PUBLIC)()

    assert converter.to_url(1_001) == PUBLIC.encode(1_001)
    assert converter.to_python(PUBLIC.encode(1_001)) == 1_001


def test_what_is_no_public_id_matches_no_path():
    for text in ["1", "ord_I9UOBqekNF7q8z1n"]:
        from django.urls import path, register_converter

        register_converter(public_id_converter(PUBLIC), "bill" + text)
        route = path(f"bills/<bill{text}:number>", print)

        assert route.resolve(f"bills/{PUBLIC.encode(1_001)}").kwargs == {"number": 1_001}, text
        assert route.resolve(f"bills/{text}") is None, text

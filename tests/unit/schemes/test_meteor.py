"""Meteor, bit for bit."""

from itertools import islice

import pytest
from support.distinct import distinct
from support.processes.threads import draw_on_threads
from support.rules import rule

from allocator import Layout, Meteor
from allocator.errors import Exhausted, InvalidSetting, NodeIdsExhausted
from allocator.schemes.meteor import METEOR, MeteorBlocks, MeteorSettings, check_node, xorshift
from allocator.schemes.snowflake import SNOWFLAKE

PUBLISHED = [585, 596, 600, 614, 616, 626, 635, 640, 651, 656]


def test_the_published_ids():
    ids = Meteor(node=0, second=292014, seed=1)

    assert [ids.next_id() for _ in range(10)] == [5016762319896000 + end for end in PUBLISHED]


@rule(10)
def test_the_sequence_wraps_into_the_next_second():
    ids = Meteor(node=0, second=292014, seed=1)
    drawn = [ids.next_id() for _ in range(2048)]

    assert drawn[2046:] == [5016762319912958, 5016779499765764]


def test_every_state_of_the_random_fields_comes_once_a_period():
    state, seen = 1, set()
    for _ in range(65535):
        seen.add(state)
        state = xorshift(state)

    assert (state, len(seen), 0 in seen) == (1, 65535, False)


def test_the_random_fields_are_those_of_the_textbook():
    state, ids = 12_345, Meteor(node=3, second=7, seed=12_345)
    for _ in range(5000):
        state = xorshift(state)
        assert METEOR.unpack(ids.next_id())["random"] == state % 7


def test_threads_get_every_id_once():
    drawn = draw_on_threads(Meteor(node=5, second=0).next_id, threads=8, each=2000)
    together = [number >> 3 for ids in drawn for number in ids]

    assert distinct(together) == 16_000
    assert all(ids == sorted(ids) for ids in drawn)


def test_the_field_ends_in_an_error_and_never_wraps():
    ids = Meteor(node=1, second=(1 << 29) - 1)
    last = [ids.next_id() for _ in range(2047)][-1]

    assert last < 2**63
    for _ in range(2):
        with pytest.raises(Exhausted, match="node 1 has used its last second, 2037-12-14 18:48:31"):
            ids.next_id()


def test_other_widths_and_epochs():
    layout = Layout(sign=1, second=31, node=10, sequence=20, random=2)
    ids = Meteor(node=1023, second=9, seed=7, layout=layout)
    fields = [layout.unpack(ids.next_id()) for _ in range(500)]

    assert {(field["second"], field["node"]) for field in fields} == {(9, 1023)}
    assert {field["random"] for field in fields} == {0, 1, 2, 3}


def test_what_does_not_fit_is_refused(subtests):
    wrong = [{"node": node} for node in (-1, 1 << 20, None, True)]
    wrong += [{"second": 1 << 29}, {"second": -1}, {"seed": 0}, {"seed": 1 << 16}]
    wrong += [{"epoch": epoch} for epoch in (None, 2**40, 10**11)]
    wrong += [
        {"layout": layout} for layout in (SNOWFLAKE, None, Layout(sign=1, second=29, node=20, random=3, sequence=11))
    ]
    for settings_ in wrong:
        with subtests.test(settings_=settings_), pytest.raises(InvalidSetting, match="must"):
            Meteor(**{"node": 1} | settings_)


def test_node_numbers_warn_before_they_end():
    assert check_node(838_859, METEOR) == ""
    assert "80 % of the node numbers" in check_node(838_861, METEOR)
    with pytest.raises(NodeIdsExhausted, match="node 1048576 does not fit the layout 1/29/20/11/3"):
        check_node(1 << 20, METEOR)


def test_a_block_is_served_lazily():
    blocks = MeteorBlocks(0, 1, 1, MeteorSettings())

    assert len(list(islice(blocks.take(), 3))) == 3
    assert blocks.second == 2


def test_any_widths_give_unique_increasing_ids():
    for widths in [(29, 20, 11, 3), (40, 20, 1, 2), (20, 10, 20, 13), (10, 8, 5, 40), (29, 22, 11, 1)]:
        layout = Layout(**dict(zip(("sign", "second", "node", "sequence", "random"), (1, *widths), strict=True)))
        ids = Meteor(node=layout.limit("node"), second=3, layout=layout)
        drawn = [ids.next_id() for _ in range(5000)] if widths[0] > 10 else [ids.next_id() for _ in range(500)]

        assert distinct(number >> layout.widths["random"] for number in drawn)
        assert sorted(drawn) == drawn, widths
        assert {layout.unpack(number)["node"] for number in drawn} == {layout.limit("node")}, widths


def test_seconds_that_ended_before_the_start_are_an_error():
    with pytest.raises(Exhausted, match="the field second of layout 1/29/20/11/3 ended at 1987"):
        Meteor(node=1, epoch=0)
    with pytest.raises(InvalidSetting, match=r"the epoch, 2096-10-02 .*, must not be in the future; the clock says 2"):
        Meteor(node=1, epoch=4_000_000_000)

"""What a caller sees, on every database and through both faces."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from sqlalchemy import Engine, create_engine, text
from support.applications.shop import noting
from support.distinct import Duplicate, distinct
from support.kit import OF_THE_RULE, ON_TWO, database_of
from support.rules import rule
from support.servers.administrator import execute

from allocator import JAVASCRIPT_MAX_ID, Allocator, Tag
from allocator.database.store import Database
from allocator.database.verbs import segments
from allocator.errors import AllocatorClosed, Exhausted, InvalidCount, InvalidSetting, InvalidTag, TagExists, UnknownTag

MAX_ID = 2**63 - 1


def test_the_first_id_is_1_and_the_next_ones_follow(face, place, tag):
    ids = face(place)

    assert ids.next_id(tag) == 1
    assert ids.next_ids(tag, 3) == [2, 3, 4]
    sequence = ids.sequence(tag)
    assert sequence.next_id() == 5
    assert sequence.next_ids(2) == [6, 7]
    assert list(itertools.islice(sequence, 2)) == [8, 9]
    assert tag == sequence.tag


def test_a_reservation_is_one_block_of_its_own(face, place, tag):
    ids = face(place)
    assert ids.next_id(tag) == 1

    block = ids.reserve(tag, 100_000)
    assert range(11, 100_011) == block
    assert ids.next_id(tag) == 2
    assert range(100_011, 100_012) == ids.sequence(tag).reserve(1)


@rule(5)
def test_two_allocators_share_a_tag_without_an_id_twice(face, place, tag):
    """The row says 10; what they reserve is less and more."""
    one, two = face(place, step=10, max_step=10), face(place, step=7, max_step=7)
    drawn = []
    for _ in range(50):
        drawn += one.next_id(tag), *two.next_ids(tag, 3), *one.reserve(tag, 3), *two.reserve(tag, 25)

    assert distinct(drawn) == 50 * 32


@rule(3)
def test_claims_of_one_moment_have_no_id_in_common(url, tag):
    """And what was claimed is what the rows say, on eight connections that claim three tags in turns of their own."""
    names = [f"{tag}.{number}" for number in range(3)]
    ready = threading.Barrier(8)

    def run(number: int) -> list[tuple[str, range]]:
        with closing(Database(url, timeout=60)) as database:
            turned = names[number % 3 :] + names[: number % 3]
            for name in turned:
                database.open_segment(Tag(name), create=True)
            ready.wait()
            return [(name, database.claim_segment(name, 2, {})) for _ in range(12) for name in turned]

    with ThreadPoolExecutor(8) as pool:
        claimed = [one for found in pool.map(run, range(8)) for one in found]

    distinct([(name, one) for name, ids in claimed for one in ids])
    with Allocator(url) as ids:
        assert {name: ids.tags.get(name).max_value for name in names} == dict.fromkeys(names, 8 * 12 * 2)


@rule(1)
def test_what_is_left_at_the_end_is_not_given_back(face, place, tag):
    """Rule 1: it lies below what another one has claimed since."""
    one, two = face(place), face(place)
    drawn = [one.next_id(tag), two.next_id(tag)]
    claimed = two.tags.get(tag).max_value
    one.close()

    assert two.tags.get(tag).max_value == claimed
    assert face(place).next_id(tag) > max(drawn)


def test_tags_are_told_apart_byte_by_byte(face, place, tag):
    ids = face(place)
    for name in (tag, tag.upper(), f"{tag}.", f"{tag}-x"):
        assert ids.next_id(name) == 1


def test_an_unknown_tag_may_be_refused(face, place, tag):
    ids = face(place, create_missing=False)
    for call in (lambda: ids.next_id(tag), lambda: ids.next_ids(tag, 2), lambda: ids.reserve(tag, 2)):
        with pytest.raises(UnknownTag, match=f"tag '{tag}' does not exist; (create it with|similar tags): "):
            call()
    for call in (lambda: ids.tags.get(tag), lambda: ids.tags.set(tag, step=5)):
        with pytest.raises(UnknownTag):
            call()
    ids.tags.create(tag)
    for call in (lambda: ids.next_id(f"{tag}.x"), lambda: ids.tags.get(f"{tag}.x")):
        with pytest.raises(UnknownTag, match=rf"'{tag}\.x' does not exist; similar tags: .*\b{tag}\b"):
            call()

    assert ids.next_id(tag) == 1


@OF_THE_RULE
def test_an_odd_tag_or_count_is_refused_and_nothing_is_lost(face, place, tag):
    """What may be one is judged by the tests of the rule."""
    ids = face(place)
    with_tags = (lambda odd: ids.next_ids(odd, 1), lambda odd: ids.reserve(odd, 1))
    for call in (ids.next_id, ids.sequence, ids.tags.create, *with_tags):
        with pytest.raises(InvalidTag, match="a tag is 1 to 64 of"):
            call("a'; DROP TABLE allocator_segment; --")
    for call, count in ((ids.next_ids, 10**9), (ids.reserve, 10**14)):
        with pytest.raises(InvalidCount, match="(count|size) must be"):
            call(tag, count)

    assert ids.next_id(tag) == 1


@rule(6)
def test_the_last_id_is_exactly_the_limit_and_then_nothing_for_ever(face, place, tag):
    ids = face(place)
    for name, limit in ((tag, JAVASCRIPT_MAX_ID), (f"{tag}.max", MAX_ID)):
        ids.tags.create(name, limit=limit, start_after=limit - 1500)

        assert list(range(limit - 1499, limit + 1)) == ids.next_ids(name, 1500)
        for _ in range(2):
            with pytest.raises(Exhausted, match=f"has issued its last id, {limit}"):
                ids.next_id(name)
        with pytest.raises(Exhausted):
            face(place).reserve(name, 1)


def test_the_largest_reservation_may_end_near_the_greatest_id(ids):
    ids.tags.create("order", start_after=MAX_ID - 10**13 - 5)

    assert ids.reserve("order", 10**13)[-1] == MAX_ID - 5
    with pytest.raises(InvalidCount, match="count must be at most 5, the ids left of tag"):
        ids.reserve("order", 10**13)


# -- administration


def test_a_tag_is_made_as_asked_and_once(face, place, tag):
    ids = face(place)
    made = ids.tags.create(tag, step=20, max_step=40, limit=1000, start_after=500)

    assert Tag(tag, 500, 20, 40, 1000) == made == ids.tags.get(tag)
    assert made in ids.tags.list()
    with pytest.raises(TagExists, match="change it with: allocator tags set"):
        ids.tags.create(tag)
    assert ids.tags.get(tag) == made
    assert ids.next_id(tag) == 501
    assert ids.tags.get(tag).max_value == 520
    assert ids.tags.create(f"{tag}.low", limit=1_000_000).max_step == 488


def test_a_tag_is_changed_and_its_value_only_raised(face, place, tag):
    ids = face(place)
    ids.reserve(tag, 100)
    assert Tag(tag, 100, 5, 50, 5000) == ids.tags.set(tag, step=5, max_step=50, limit=5000)
    assert ids.tags.set(tag, start_after=3000).max_value == 3000
    for wrong in (dict(start_after=2999), dict(limit=2999), dict(step=51), dict(step=0), dict(start_after=5001)):
        with pytest.raises(InvalidSetting, match=rf"\b{next(iter(wrong.values()))}\b"):
            ids.tags.set(tag, **wrong)

    assert Tag(tag, 3000, 5, 50, 5000) == ids.tags.get(tag)
    assert ids.next_id(tag) == 3001


def test_a_change_writes_what_was_asked_for_and_no_more(ids, tag):
    """Two administrators at once: what one sets is not undone by the other."""
    ids.tags.create(tag)
    run = database_of(ids).run
    run(segments.change, tag, {"id_limit": 5000})
    run(segments.change, tag, {"step": 7})
    run(segments.change, tag, {"max_value": 100})
    run(segments.change, tag, {"max_value": 50})

    assert ids.tags.get(tag) == Tag(tag, 100, 7, 1_000_000, 5000)
    for wrong in ({"id_limit": 99}, {"max_value": 5001}, {"max_step": 6}):
        assert not run(segments.change, tag, wrong)


def test_a_tag_may_start_after_the_greatest_id_of_a_table(face, fresh, tag):
    execute(
        fresh,
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, name VARCHAR(20))",
        "CREATE TABLE empty_orders (id BIGINT PRIMARY KEY)",
        "INSERT INTO orders VALUES (17, 'x'), (4711, 'y'), (-3, 'z')",
    )
    ids = face(fresh)
    assert ids.tags.create(tag, start_after_column="orders.id").max_value == 4711
    assert ids.next_id(tag) == 4712
    assert ids.tags.create("higher", start_after_column="orders.id", start_after=9000).max_value == 9000
    assert ids.tags.create("empty", start_after_column="empty_orders.id").max_value == 0
    with pytest.raises(InvalidSetting, match="is no whole number"):
        ids.tags.create("named", start_after_column="orders.name")


WIDTHS = {
    "sqlite": {"INTEGER": MAX_ID},
    "postgres": {
        "integer GENERATED ALWAYS AS IDENTITY": 2**31 - 1,
        "bigint": MAX_ID,
        "numeric(10)": 10**10 - 1,
        "small_number": 2**15 - 1,
    },
    "mysql": {"INT": 2**31 - 1, "SMALLINT UNSIGNED": 2**16 - 1, "BIGINT UNSIGNED": MAX_ID, "DECIMAL(5, 0)": 10**5 - 1},
}
WIDTHS["mariadb"] = WIDTHS["mysql"]


def test_the_limit_of_a_tag_follows_its_column_unless_a_lower_one_is_said(ids, fresh, kind):
    if kind == "postgres":
        execute(fresh, "CREATE DOMAIN small_number AS smallint")
    columns = ", ".join(f"c{number} {one}" for number, one in enumerate(WIDTHS[kind]))
    execute(fresh, f"CREATE TABLE wide ({columns}, place {'point' if kind == 'postgres' else 'INT'})")
    create = ids.tags.create
    found = [create(f"c{number}", start_after_column=f"wide.c{number}").limit for number in range(len(WIDTHS[kind]))]

    assert found == list(WIDTHS[kind].values())
    assert [tag.limit for tag in ids.tags.list()] == found
    assert create("lower", limit=5000, start_after_column="wide.c0").limit == 5000
    with Allocator(fresh, limit=6000) as other:
        assert other.tags.create("template", start_after_column="wide.c0").limit == 6000
    with pytest.raises(InvalidSetting, match=f"start_after must be 0 to {found[-1]}, got {found[-1] + 1}"):
        create("greater", start_after=found[-1] + 1, start_after_column=f"wide.c{len(found) - 1}")
    if kind == "postgres":
        with pytest.raises(InvalidSetting, match=r"wide\.place holds no whole numbers"):
            create("none", start_after_column="wide.place")
    assert not create("none").limit_from


@OF_THE_RULE
def test_after_close_every_call_says_so(face, place, tag):
    ids = face(place)
    calls = (lambda: ids.next_id(tag), lambda: ids.reserve(tag, 1), lambda: ids.ticket(tag), ids.meteor, ids.snowflake)
    for call in calls:
        call()
    ids.close()
    for call in (*calls, ids.tags.list):
        with pytest.raises(AllocatorClosed):
            call()


@rule(4)
def test_the_users_transaction_and_its_rollback_are_none_of_ours(face, url, tag):
    """Rule 4: an engine of the user's is used to connect, and never a connection of it."""
    engine = create_engine(url)
    ids = face(engine, step=10, max_step=10)
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        drawn = ids.next_ids(tag, 35)
        assert (engine.pool.checkedout(), engine.pool.checkedin()) == (1, 0), "the user's, and none that was ours"
        connection.rollback()
    again = face(url).next_ids(tag, 35)
    assert distinct([*drawn, *again]) == 70
    engine.dispose()


@rule(4)
@ON_TWO
def test_control_a_claim_in_the_users_transaction_comes_again_after_its_rollback(url, tag):
    with Allocator(url) as ids:
        ids.tags.create(tag)
    engine, claim = create_engine(url), f"UPDATE allocator_segment SET max_value = max_value + 10 WHERE tag = '{tag}'"
    with engine.connect() as connection:
        ends = []
        for _ in range(2):
            ends.append(connection.scalar(text(f"{claim} RETURNING max_value")))
            connection.rollback()
    engine.dispose()

    assert ends == [10, 10]


@rule(5)
@ON_TWO
def test_control_a_size_that_the_row_says_gives_ids_twice(url, tag, monkeypatch):
    monkeypatch.setattr(segments, "CLAIM", segments.CLAIM.replace("(max_value + :skip + :span)", "(max_value + step)"))
    with Allocator(url) as one, Allocator(url) as two:
        one.tags.create(tag, step=10, start_after=100)
        claimed = [*one.reserve(tag, 25), *two.reserve(tag, 25)]

    with pytest.raises(Duplicate):
        distinct(claimed)


def test_whoever_listens_to_statements_hears_each_claim_and_ticket(url, tag):
    """For tracing and counting; then SQLAlchemy runs them, with the same result."""
    with Allocator(url) as ids:
        with noting(Engine, "before_cursor_execute") as told:
            assert ids.reserve(tag, 5) == range(1, 6)
            first = ids.ticket(tag)
            told.clear()
            assert ids.reserve(tag, 5) == range(6, 11)
            assert ids.ticket(tag) > first
        assert ids.reserve(tag, 5) == range(11, 16)

    said = [statement for _, _, statement, *_ in told]
    assert len([one for one in said if one.startswith(("UPDATE allocator_segment", "REPLACE INTO allocator_t"))]) == 2

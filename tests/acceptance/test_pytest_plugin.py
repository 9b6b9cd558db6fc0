"""The fixtures as an application's own tests use them: in runs of pytest of their own."""

import sys
from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

TESTS = """
    import asyncio

    import pytest

    from allocator import Allocator, AsyncAllocator, Sequence


    @pytest.mark.parametrize("run", [1, 2])
    def test_it_begins_at_1_in_each_test(memory_allocator, run):
        assert isinstance(memory_allocator, Allocator)
        assert isinstance(memory_allocator.sequence("order"), Sequence)
        assert memory_allocator.next_ids("order", 3) == [1, 2, 3]
        assert memory_allocator.tags.create("cart").max_value == 0


    def test_both_faces_are_one(memory_allocator):
        assert memory_allocator.next_id("order") == 1
        assert asyncio.run(AsyncAllocator(memory_allocator).next_id("order")) == 2


    def test_it_brings_no_database():
        import sys
        assert not {"sqlalchemy", "psycopg", "pymysql", "sqlite3"} & sys.modules.keys()
"""


ALONE = [
    word for found in entry_points(group="pytest11") if found.name != "allocator" for word in ("-p", f"no:{found.name}")
]
"""Without the plugins of others, of which none is for asyncio then, and some take seconds to load."""


def test_the_fixtures_work_without_a_warning_and_without_other_plugins(pytester: pytest.Pytester):
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_subprocess(*ALONE, "-W", "error", "-q")

    done.assert_outcomes(passed=4)


def test_pytest_may_be_started_by_a_program_that_has_imported_the_library(pytester: pytest.Pytester):
    """As by a runner of Django's tests. pytest rewrites what comes with plugins, and warns where that is too late.

    It knows what comes with them from the list of files that an installed wheel has, and a checkout has not.
    """
    installed = pytester.mkdir("installed-1.dist-info")
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1\n")
    (installed / "RECORD").write_text("allocator/__init__.py,,\nearly/__init__.py,,\n")
    (installed / "entry_points.txt").write_text("[pytest11]\nsome = allocator.errors\n")
    pytester.mkpydir("early")
    words = ["-W", "error", "-q", *ALONE]
    for imported, warned in (("allocator", False), ("allocator, early", True)):
        code = f"import {imported}, pytest; raise SystemExit(pytest.main({words}))"
        done = pytester.run(sys.executable, "-c", code)

        assert ("cannot be rewritten; early" in done.stderr.str()) is warned
        assert "cannot be rewritten; allocator" not in done.stderr.str()

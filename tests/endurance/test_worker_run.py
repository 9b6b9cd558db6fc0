"""64 pods over 16 numbers, killed and stopped, under a database that is killed and frozen: nobody holds a number while
another does, nor in a second that another used. `--minutes` for each database."""

import sys

import pytest
from support.distinct import none_twice
from support.faults.trouble import planned, troubled
from support.processes.pods import BITS, ENTRY, FAULTS, LEASE, Pods, judged

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs timers and prctl of Linux")

SEED = 21
EVERY = 1.0


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql"], indirect=True)
def test_no_number_is_held_by_two(kind, place, tmp_path, request, report):
    seconds = 60 * request.config.getoption("--minutes")
    url, trouble = place
    folder = tmp_path / "pods"
    with troubled(trouble, planned(SEED, seconds)) as (done, followed), Pods(url, folder, seed=SEED) as pods:
        pods.run(seconds, EVERY)
        if followed.done():
            followed.result()
    found = judged(folder)
    faults = ", ".join(f"{count} {what}" for what, count in sorted(pods.faults.items()))
    report(
        f"{kind}, {seconds / 60:g} minutes, 64 pods, lease {LEASE:g} s: {found}; {len(pods.ever)} attempts; {faults}; "
        f"server: {dict(done)}"
    )
    none_twice(found.together + found.seconds_twice, found)
    assert found.numbers == 1 << BITS
    assert found.holders > seconds / 10
    assert set(pods.faults) == set(FAULTS)


def test_control_two_at_once_are_found(tmp_path):
    def write(name: str, *entries: tuple[float, float]) -> None:
        (tmp_path / name).write_bytes(b"".join(ENTRY.pack(*entry) for entry in entries))

    write("held-3-1", (10.0, 1000.0), (11.0, 1001.0))
    write("held-3-2", (12.5, 1002.5), (13.0, 1003.0))
    write("held-4-3", (10.5, 1000.5))
    assert judged(tmp_path) == (3, 2, 0, 0)
    write("held-3-5", (12.9, 1003.9))
    assert judged(tmp_path) == (4, 2, 1, 1)

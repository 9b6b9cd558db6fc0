"""A real process whose wall clock is stepped by up to a second, back and forth, every 100 ms (by libfaketime).

So each time comes again and again; for whoever counts from 0 in each millisecond, so do the ids.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.rules import rule
from tqdm import tqdm

SECONDS = 20
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))

DRAWING = """
import select, sys, time
from allocator import Allocator, ObjectId, Snowflake, SnowflakeSettings
from allocator.errors import ClockWentBack
from support.distinct import Duplicate, distinct
url, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
alone, stepped, refused, last = Snowflake(1, 1), 0, 0, time.time()
leased, single, objects, naive = [], [], [], []
with Allocator(url, snowflake=SnowflakeSettings(lease=5.0)) as ids:
    while time.monotonic() < end:
        leased += [ids.snowflake() for _ in range(20)]
        objects += [bytes(ObjectId()) for _ in range(20)]
        try:
            single += [alone.next_id() for _ in range(20)]
        except ClockWentBack:
            refused += 1
        now = time.time()
        naive += [(int(1000 * now), number) for number in range(20)] * (int(1000 * now) != int(1000 * last))
        stepped += now < last
        last = now
        select.select([], [], [], 0.001)  # libfaketime spoils time.sleep
for drawn in (leased, single, objects):
    assert distinct(drawn)
assert leased == sorted(leased)
try:
    assert not distinct(naive), "the control repeats ids"
except Duplicate:
    pass
assert stepped > float(sys.argv[2]) and len(leased) > 1000
print(len(leased), "leased snowflakes,", len(single), "alone,", len(objects), "ObjectIds; the clock went back", stepped)
print("times, the one alone refused", refused, "times")
"""


@rule(10)
@pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed (Debian's package faketime)")
def test_a_clock_that_is_stepped_repeats_nothing(new_database, tmp_path, report):
    offset = tmp_path / "offset"
    offset.write_text("+0")
    environment = {
        **os.environ,
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    command = [sys.executable, "-c", DRAWING, new_database("sqlite"), str(SECONDS)]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    rnd = random.Random(20261121)
    for _ in tqdm(range(SECONDS * 10), desc="steps of the clock"):
        if child.poll() is not None:
            break
        fresh = tmp_path / "next"
        fresh.write_text(f"{rnd.choice([-1, 1]) * rnd.uniform(0.05, 1):+.3f}")
        fresh.replace(offset)
        time.sleep(0.1)
    said, errors = child.communicate(timeout=60)

    assert child.returncode == 0, errors
    report(" ".join(said.split()))

"""The command of a pod: draws ids with a library under its number, and writes down each, a hundred a second.

Run alone, to start quickly: python -I -S holder.py FOLDER LIBRARY PACKAGES
"""

import os
import struct
import sys
import time

ENTRY = struct.Struct("=ddQ")
"""Seconds by the clock that counts sleep, and by the wall clock; the id, or 0 while the library is not loaded yet."""
EACH = 0.01


def snowflake(worker):
    """snowflake-id: it counts milliseconds, and has no id when the clock goes back."""
    from snowflake import SnowflakeGenerator

    ids = SnowflakeGenerator(worker)
    return lambda: next(ids) or 0


def sonyflake(worker):
    """sonyflake, counting seconds: two that use one number in one second begin with the same id."""
    from datetime import UTC, datetime, timedelta

    from sonyflake import Sonyflake

    begin = datetime(2025, 1, 1, tzinfo=UTC)
    return Sonyflake(machine_id=worker, start_time=begin, time_unit=timedelta(seconds=1)).next_id


LIBRARIES = {"snowflake": snowflake, "sonyflake": sonyflake}


def hold(path, library, worker):
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND)
    write(file, 0)
    next_id = LIBRARIES[library](worker)
    while True:
        write(file, next_id())
        time.sleep(EACH)


def write(file, value):
    os.write(file, ENTRY.pack(time.clock_gettime(time.CLOCK_BOOTTIME), time.time(), value))


if __name__ == "__main__":
    folder, name, packages = sys.argv[1:]
    sys.path.append(packages)
    number = os.environ["WORKER_ID"]
    hold(f"{folder}/held-{name}-{number}-{time.time_ns()}-{os.getpid()}", name, int(number))

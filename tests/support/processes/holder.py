"""The command of a pod: writes down each hundredth of a second that it uses its number.

Run alone, to start quickly: python -I -S holder.py FOLDER
"""

import os
import struct
import sys
import time

ENTRY = struct.Struct("=dd")
"""Seconds by the clock that counts sleep, and by the wall clock."""
EACH = 0.01


def hold(path: str) -> None:
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND)
    while True:
        os.write(file, ENTRY.pack(time.clock_gettime(time.CLOCK_BOOTTIME), time.time()))
        time.sleep(EACH)


if __name__ == "__main__":
    hold(f"{sys.argv[1]}/held-{os.environ['WORKER_ID']}-{time.time_ns()}-{os.getpid()}")

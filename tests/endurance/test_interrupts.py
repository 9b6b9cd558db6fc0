"""Signal handlers that raise, and exceptions sent to the threads of the pool, for a minute: never an id twice."""

import json
import subprocess
import sys

from support.distinct import none_twice

STORM = """
import ctypes, json, os, random, signal, sys, threading, time
from allocator import Allocator
from allocator.errors import AllocatorError

class Soft(Exception): pass
class Hard(BaseException): pass

url, tag, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
kinds = [Soft, Hard, KeyboardInterrupt, TimeoutError, MemoryError]
threading.excepthook = lambda _: None  # of a thread that a Hard has ended; another one takes its place
sys.unraisablehook = lambda _: None
ids, drawn, tickets, said = Allocator(url, timeout=5), [], [], {"interrupted": 0, "sent": 0, "slowest": 0.0}
acts = [
    lambda: drawn.extend(ids.reserve(tag, 20)),
    lambda: tickets.append(ids.ticket(tag)),
    lambda: drawn.extend(ids.next_ids(tag, 700)),
    lambda: ids.tags.set(tag, step=random.randint(500, 900)),
]
def once():
    random.choice(acts)()

def handler(_, frame):
    while frame and frame.f_code is not once.__code__:
        frame = frame.f_back
    if frame:  # only where that is caught
        raise random.choice(kinds)

def send():
    while time.monotonic() < end:
        time.sleep(0.02)
        if victims := [one for one in threading.enumerate() if one.name == "allocator" and one.ident]:
            victim = ctypes.c_ulong(random.choice(victims).ident)
            said["sent"] += ctypes.pythonapi.PyThreadState_SetAsyncExc(victim, ctypes.py_object(random.choice(kinds)))

for act in acts: act()
signal.signal(signal.SIGALRM, handler)
end = time.monotonic() + seconds
threading.Thread(target=send, daemon=True).start()
while time.monotonic() < end:
    began = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, random.random() ** 2 * 0.03 + 1e-5)
        once()
    except AllocatorError:  # as of a claim whose thread was hit
        pass
    except BaseException:
        said["interrupted"] += 1
    said["slowest"] = max(said["slowest"], time.monotonic() - began)
time.sleep(0.1)
for act in acts: act()
repeated = len(drawn) - len(set(drawn)) + len(tickets) - len(set(tickets))
print(json.dumps(said | {"repeated": repeated, "ids": len(drawn) + len(tickets)}), flush=True)
os._exit(0)
"""
SECONDS, TIMEOUT = 60, 5


def test_a_minute_of_exceptions_repeats_nothing_and_each_next_call_works(url, kind, tag, report):
    command = [sys.executable, "-c", STORM, url, tag, str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 120, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    report(
        f"{kind}: {said['ids']:,} ids and tickets, {said['interrupted']:,} calls interrupted, {said['sent']:,} "
        f"exceptions sent to threads, slowest call {said['slowest']:.2f} s, {said['repeated']} duplicates"
    )

    none_twice(said["repeated"])
    assert min(said["interrupted"], said["sent"]) > 100
    assert said["slowest"] < TIMEOUT + 1

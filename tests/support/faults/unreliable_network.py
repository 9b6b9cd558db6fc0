"""A network that cannot be trusted, between workers and their server: late, cut in the middle, answers swallowed."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter

from sqlalchemy import make_url

from support.faults.tcp_proxy import Turn, Wire

COMMITTING = (b"UPDATE allocator_segment", b"COMMIT")
"""What a request holds whose answer is the answer to a commit."""

FAULTS = ("delay", "cut request", "cut answer", "swallow and cut", "swallow and hang")
HANG = 4.0
"""Seconds of silence; longer than the workers wait."""


class Proxy(Wire):
    """A `Wire` with a plan: of the messages that claim, one in `every` meets a fault, which one a seed says.

    Which message is the n-th is up to the processes: the seed repeats the plan, not the run.
    faults: how often each one has struck.
    """

    def __init__(self, url: str, seed: int, every: int = 40) -> None:
        self._rnd = random.Random(seed)
        self._every = every
        self._plan = threading.Lock()
        self.faults: Counter[str] = Counter()
        super().__init__(url)
        if make_url(url).get_driver_name() == "pymysql":  # which encrypts if it can, and then nothing can be told
            self.url = make_url(self.url).update_query_dict({"ssl_disabled": "true"}).render_as_string(False)

    def _hand_on(self, data: bytes, sink: socket.socket, asking: bool, turn: Turn) -> None:
        if asking:
            turn.commits = any(words in data for words in COMMITTING)
        fault = self._next(asking) if turn.commits else ""
        if not fault:
            sink.sendall(data)
        elif fault == "delay":
            time.sleep(self._rnd.expovariate(5))
            sink.sendall(data)
        else:
            if fault.startswith("cut"):
                sink.sendall(data[: len(data) // 2])
            elif fault.endswith("hang"):
                time.sleep(HANG)
            raise ConnectionError(fault)

    def _next(self, asking: bool) -> str:
        with self._plan:
            fault = self._rnd.choice(FAULTS) if self._rnd.randrange(self._every) == 0 else ""
            if not fault or (asking and fault not in {"delay", "cut request"}) or (not asking and "request" in fault):
                return ""
            self.faults[fault] += 1
            return fault

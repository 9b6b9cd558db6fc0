"""Clients of a service on connections that are kept alive."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from time import monotonic

import urllib3

PATIENCE = 15.0


class Load:
    """requests: how many were answered. longest: of which one took so long. wrong: what was no answer with ids."""

    def __init__(self) -> None:
        self.ids: list[tuple[str, str]] = []
        self.wrong: list[str] = []
        self.requests, self.longest, self.over = 0, 0.0, threading.Event()

    def draw(self, pool: urllib3.HTTPConnectionPool, tags: tuple[str, ...]) -> None:
        for number in count():
            began, tag = monotonic(), tags[number % len(tags)]
            try:
                answer = pool.urlopen("POST", f"/v1/tags/{tag}/ids?count=3", retries=False)
                if answer.status == 200:
                    self.ids += [(tag, one) for one in answer.json()["ids"]]
                else:
                    self.wrong.append(f"{answer.status} {answer.data.decode()[:300]}")
            except urllib3.exceptions.HTTPError as error:
                self.wrong.append(repr(error))
            self.requests += 1
            self.longest = max(self.longest, monotonic() - began)
            if self.over.wait(0.01):
                return


@contextmanager
def loaded(port: int, clients: int, *tags: str) -> Iterator[Load]:
    """Clients that draw meanwhile."""
    load = Load()
    pool = urllib3.HTTPConnectionPool("127.0.0.1", port, timeout=PATIENCE, maxsize=clients, block=True)
    with pool, ThreadPoolExecutor(clients) as threads:
        running = [threads.submit(load.draw, pool, tags) for _ in range(clients)]
        try:
            yield load
        finally:
            load.over.set()
        for one in running:
            one.result()

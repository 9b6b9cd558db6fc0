"""The pictures of docs/service.md, made anew: `make screenshots`. A service with traffic of its own, and a browser.

Pillow makes them small (pip install pillow); without it they stay as they come.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

from support.service.browser import DESKTOP, LIGHT, Visit, browser
from support.service.served import Served

from allocator.database.store import Database
from allocator.service.token_administration import Tokens

FIGURES = Path(__file__).parents[2] / "docs" / "figures"

BUSY = {
    "order": 420,
    "order-line": 1300,
    "payment": 160,
    "parcel": 35,
    "shipment": 90,
    "user": 12,
    "session": 700,
}
QUIET = (
    "address",
    "audit.event",
    "cart",
    "coupon",
    "customer",
    "export:daily",
    "refund",
    "review",
    "supplier",
    "ticket",
)
WARM_UP = 20
"""Seconds of traffic before the pictures, so that rates are known."""


class Traffic(threading.Thread):
    """Draws ids as callers would: in waves, with noise, some one by one and some in batches."""

    def __init__(self, service: Served, secret: str) -> None:
        super().__init__(daemon=True)
        self.service, self.secret = service, secret
        self.stopped = threading.Event()

    def run(self) -> None:
        noise = random.Random(7)
        while not self.stopped.is_set():
            began = time.monotonic()
            for number, (tag, rate) in enumerate(BUSY.items()):
                wave = 1 + 0.35 * math.sin(began / (9 + 2 * number) + number) + noise.uniform(-0.12, 0.12)
                for count in split(max(1, round(rate * wave / 5)), noise):
                    self.service.post(f"/v1/tags/{tag}/ids?count={count}", token=self.secret)
            self.service.post("/v1/snowflake?count=40", token=self.secret)
            self.stopped.wait(max(0.0, 0.2 - (time.monotonic() - began)))


def split(count: int, noise: random.Random) -> list[int]:
    first = noise.randint(1, count)
    return [first, count - first] if count > first else [first]


def demo(folder: str) -> tuple[Served, str]:
    """A service with tags, and a token that may do everything."""
    url = f"sqlite:///{folder}/ids.db"
    database = Database(url)
    database.upgrade_schema()
    secret, _ = Tokens(lambda: database).create("operations", verbs=("draw", "read", "administer"), tags=("*",))
    database.close()
    service = Served(url)
    for tag in QUIET:
        service.put(f"/v1/tags/{tag}", token=secret, json={"start_after": 10_000 * len(tag) ** 3})
    for tag in BUSY:
        start = {"start_after": 48_213_907 + 9_999_991 * len(tag), "step": 200, "max_step": 12_000}
        limit = {"limit": "210000000"} if tag == "session" else {}
        service.put(f"/v1/tags/{tag}", token=secret, json=start | limit)
    service.post("/v1/meteor", token=secret)
    return service, secret


def take(visit: Visit, path: str, name: str) -> None:
    visit.page.goto(path)
    points = "(document.querySelector('[data-series]') || {dataset: {points: 99}}).dataset.points"
    visit.until(f"+{points} > 20", 2 * 60_000)  # a point every two seconds
    visit.page.wait_for_timeout(600)
    target = FIGURES / f"{name}.png"
    visit.page.screenshot(path=target)
    shrink(target)
    print(f"{target.name}: {target.stat().st_size / 1024:.0f} KiB")


def shrink(path: Path) -> None:
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def main(warm_up: float) -> None:
    with tempfile.TemporaryDirectory() as folder, browser() as found:
        service, secret = demo(folder)
        traffic = Traffic(service, secret)
        traffic.start()
        time.sleep(warm_up)
        for path, name in (("/?sort=rate", "console-tags"), ("/console/tags/order-line", "console-tag")):
            visit = Visit(found, service.address, DESKTOP, LIGHT)
            visit.sign_in(secret)
            take(visit, path, name)
            visit.close()
        traffic.stopped.set()
        traffic.join()
        service.close()


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else WARM_UP)

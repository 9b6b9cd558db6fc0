"""The pictures of docs/service.md, made anew: `make screenshots`. A service with traffic of its own, and a browser.

Pillow makes them small (pip install pillow); without it they stay as they come.
"""

import math
import random
import tempfile
import threading
import time
from pathlib import Path

from support.service.browser import DESKTOP, HURRIED, LIGHT, Visit, browser
from support.service.served import Guarded, Served

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
HURRY = 10
"""Times sooner the plots are full, and smaller the rates are."""
WARM_UP = 600 / HURRY + 5
"""Seconds of traffic before the pictures, so that they are."""


PAGES = {"console-tags": "/", "console-tag": "/console/tags/order-line"}


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
                for count in split(max(1, round(HURRY * rate * wave / 10)), noise):
                    self.service.post(f"/v1/tags/{tag}/ids?count={count}", token=self.secret)
            self.service.post("/v1/snowflake?count=100", token=self.secret)
            self.stopped.wait(max(0.0, 0.1 - (time.monotonic() - began)))


def split(count: int, noise: random.Random) -> list[int]:
    """Requests for so many ids in all, of at most a thousand each."""
    parts = []
    while count:
        parts.append(min(count, noise.randint(1, 1000)))
        count -= parts[-1]
    return parts


def make_tags(service: Served, secret: str) -> None:
    for tag in QUIET:
        service.put(f"/v1/tags/{tag}", token=secret, json={"start_after": 10_000 * len(tag) ** 3})
    for tag in BUSY:
        start = {"start_after": 48_213_907 + 9_999_991 * len(tag), "step": 2_000, "max_step": 40_000}
        limit = {"limit": "900000000"} if tag == "session" else {}
        service.put(f"/v1/tags/{tag}", token=secret, json=start | limit)
    service.post("/v1/meteor", token=secret)


def shrink(path: Path) -> None:
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as home, browser() as found:
        guarded = Guarded(home, program=("-c", HURRIED.format(HURRY)))
        make_tags(guarded.service, guarded.admin)
        traffic = Traffic(guarded.service, guarded.admin)
        traffic.start()
        time.sleep(WARM_UP)
        for name, path in PAGES.items():
            visit = Visit(found, guarded.service.address, guarded.admin, DESKTOP, LIGHT)
            visit.go(path)
            visit.page.wait_for_timeout(600)
            visit.page.screenshot(path=(target := FIGURES / f"{name}.png"), full_page=True)
            visit.close()
            shrink(target)
            print(f"{target.name}: {target.stat().st_size / 1024:.0f} KiB")
        traffic.stopped.set()
        traffic.join()
        guarded.close()


if __name__ == "__main__":
    main()

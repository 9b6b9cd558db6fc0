"""The pictures of docs/service.md, made anew: `make screenshots`. A service with traffic of its own, and a browser.

Pillow makes them small (pip install pillow); without it they stay as they come.
"""

import math
import random
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from support.service.browser import DESKTOP, HURRIED, LIGHT, Visit, browser
from support.service.served import Guarded

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
PAGES = {"console-tags": "/", "console-tag": "/console/tags/order-line"}
BUSY = {"order": 420, "order-line": 1300, "payment": 160, "parcel": 35, "shipment": 90, "user": 12, "session": 700}
"""The tags that are drawn from, with how many ids a second."""
QUIET = ("address", "audit.event", "cart", "coupon", "customer", "export:daily", "refund", "review", "supplier")
HURRY = 10
"""Times sooner the plots are full, and smaller the rates are."""
WARM_UP = 600 / HURRY + 5
"""Seconds of traffic before the pictures, so that they are."""
MOST = 1000
"""Ids of a request."""


def make_tags(guarded: Guarded) -> None:
    for tag in QUIET:
        guarded.service.put(f"/v1/tags/{tag}", token=guarded.admin, json={"start_after": 10_000 * len(tag) ** 3})
    for tag in BUSY:
        start = {"start_after": 48_213_907 + 9_999_991 * len(tag), "step": 2_000, "max_step": 40_000}
        limit = {"limit": "900000000"} if tag == "session" else {}
        guarded.service.put(f"/v1/tags/{tag}", token=guarded.admin, json=start | limit)
    guarded.service.post("/v1/meteor", token=guarded.admin)


def draw(guarded: Guarded, stopped: threading.Event) -> None:
    """As callers would: in waves, with noise."""
    noise = random.Random(7)
    while not stopped.wait(0.1):
        for number, (tag, rate) in enumerate(BUSY.items()):
            wave = 1 + 0.35 * math.sin(time.monotonic() / (9 + 2 * number) + number) + noise.uniform(-0.12, 0.12)
            wanted = max(1, round(HURRY * rate * wave / 10))
            for drawn in range(0, wanted, MOST):
                guarded.service.post(f"/v1/tags/{tag}/ids?count={min(MOST, wanted - drawn)}", token=guarded.admin)
        guarded.service.post("/v1/snowflake?count=100", token=guarded.admin)


def shrink(path: Path) -> None:
    with suppress(ImportError):
        from PIL import Image

        with Image.open(path) as image:
            small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        small.save(path, optimize=True)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as home,
        browser() as found,
        Guarded(home, program=("-c", HURRIED.format(HURRY))) as guarded,
    ):
        make_tags(guarded)
        stopped = threading.Event()
        threading.Thread(target=draw, args=(guarded, stopped), daemon=True).start()
        time.sleep(WARM_UP)
        for name, path in PAGES.items():
            visit = Visit(found, guarded.service.address, guarded.admin, DESKTOP, LIGHT)
            visit.go(path)
            visit.page.wait_for_timeout(600)
            visit.page.screenshot(path=(target := FIGURES / f"{name}.png"), full_page=True)
            visit.close()
            shrink(target)
            print(f"{target.name}: {target.stat().st_size / 1024:.0f} KiB")
        stopped.set()


if __name__ == "__main__":
    main()

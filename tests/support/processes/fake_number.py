"""`allocator worker run` with a number that no database holds: what is left of it is said by the test.

python -m support.processes.fake_number LEASE LEFT LOG COMMAND…

LEFT is how many seconds of the lease are left once the command has written the file `started`, and nothing renews it;
"renewed": all of it, always; "lost": it is lost when the command has started. The log says until when the number may be
used, by the clock that counts sleep, once the kernel knows it; when the number was given back; and whether the process
in the file `other` had ended then.
"""

import sys
import threading
import time
from pathlib import Path
from typing import Any

from allocator.cli.worker_run import KillTimer, Wrapper, wake
from support.processes.children import runs
from support.processes.patience import until

NUMBER = 5


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class FakeNumber:
    number = NUMBER

    def __init__(self, lease: float, left: str, log: Path) -> None:
        self.lost = False
        self._lease, self._log = lease, log
        self._after = None if left in ("renewed", "lost") else float(left)
        self._until: float | None = None
        self._said = False

    def left(self) -> float:
        if self._after is None or not self.started():
            return self._lease
        if self._until is None:
            self._until = now() + self._after
        return self._until - now()

    def started(self) -> bool:
        return self._log.with_name("started").exists()

    def was_told(self) -> None:
        """The kernel knows what `left` said last."""
        if self._until is not None and not self._said:
            self._said = True
            self.say("until", self._until)

    def say(self, what: str, value: float) -> None:
        with self._log.open("a") as file:
            file.write(f"{what} {float(value)}\n")


def main(lease: float, left: str, log: Path, command: tuple[str, ...]) -> int:
    held, set_timer = FakeNumber(lease, left, log), KillTimer.set

    def set_and_say(*order: Any) -> None:
        set_timer(*order)
        held.was_told()

    KillTimer.set = set_and_say  # type: ignore[method-assign]
    wrapper = Wrapper(command, lease, "WORKER_ID")
    if left == "lost":
        threading.Thread(target=lose, args=(held,), daemon=True).start()
    code = wrapper.run(held)
    held.say("back", now())
    if (other := log.with_name("other")).exists():
        held.say("ended", until(lambda: not runs(int(other.read_text())), 10))
    return code


def lose(held: FakeNumber) -> None:
    while not held.started():
        time.sleep(0.01)
    held.say("lost", now())
    held.lost = True
    wake()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), tuple(sys.argv[4:])))

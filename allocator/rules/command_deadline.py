"""When `allocator worker run` stops its command, and with which exit code it ends itself.

A number may be used for `left` more seconds, by the clock of its holder. Renewals raise that to the whole lease again.
Where they fail the command gets a signal while 30 % of the lease is left, and SIGKILL while 10 % is: it has ended
before the lease has. If the number is lost, another process may have it already: SIGKILL at once. If the guard was
killed, the command is stopped too, while the wrapper is still there to do it.
"""

from __future__ import annotations

from enum import Enum

SIGNAL_LEFT = 0.3
"""The second renewal begins when a third of the lease is left, so one failed renewal does not stop the command."""
KILL_LEFT = 0.1
"""The share of the lease in which a busy machine must end the killed processes."""
LOOKS = 20
"""Looks in one lease: the command is stopped at most a twentieth of a lease late. Signals wake the wrapper anyway."""


OWN_FAILURE = 125
"""The exit code of the wrapper's own failures, as of `env` and `docker run`; 126 and 127: cannot start the command."""


class Step(Enum):
    RUN = "run"
    SIGNAL = "signal"
    KILL = "kill"


def next_step(left: float, lease: float, *, lost: bool, guarded: bool, signalled: bool) -> Step:
    if lost or left <= lease * KILL_LEFT:
        return Step.KILL
    if (left <= lease * SIGNAL_LEFT or not guarded) and not signalled:
        return Step.SIGNAL
    return Step.RUN


def until_killed(left: float, lease: float) -> float:
    """The seconds after which the guard kills the command, if it hears of no renewal."""
    return max(0.0, left - lease * KILL_LEFT)


def until_next_look(left: float, lease: float, *, signalled: bool) -> float:
    next_limit = lease * (KILL_LEFT if signalled else SIGNAL_LEFT)
    # Never 0, with which `setitimer` sets no timer.
    return min(max(left - next_limit, lease / LOOKS / 10), lease / LOOKS)


def exit_code(code: int, *, stopped: bool) -> int:
    """The wrapper's exit code. `code` is that of the command, or minus the signal that ended it.

    A command that was stopped for its number has not succeeded, whatever it says: else nobody would start it again.
    """
    if code < 0:
        return 128 - code
    return OWN_FAILURE if stopped and code == 0 else code

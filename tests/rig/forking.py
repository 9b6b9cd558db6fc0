"""Children of this process: forked by Python, which tells its at-fork hooks, and by C, which does not."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from typing import Any


def fork_in_c() -> int:
    """As uWSGI forks, with the GIL held."""
    return int(ctypes.PyDLL(None).fork())


def in_child(work: Callable[[], object], fork: Callable[[], int] = os.fork) -> str:
    """Run `work` in a forked child and return what it said, or the error that it ended with."""
    reader, writer = os.pipe()
    if (child := fork()) == 0:
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said_there:
        text = said_there.read()
    os.waitpid(child, 0)
    return text


def found_in_child(work: Callable[[], object], fork: Callable[[], int] = os.fork) -> Any:
    """What `work` returns in a forked child; an error there is one here."""
    said = in_child(lambda: json.dumps(work()), fork)
    try:
        return json.loads(said)
    except ValueError:
        raise AssertionError(said) from None

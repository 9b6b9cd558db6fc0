"""Something happens in the middle of a call, before a verb of the package, as another process does it or a kill."""

from collections.abc import Callable

import pytest


def meanwhile(
    patch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    act: Callable[..., object],
    when: Callable[..., object] = lambda *given: True,
) -> None:
    """Once, before the first call of this verb that is meant; where acting raises, it is not called."""
    verb = getattr(owner, name)

    def interrupted(*given: object, **more: object) -> object:
        if when(*given):
            patch.setattr(owner, name, verb)
            act(*given)
        return verb(*given, **more)

    patch.setattr(owner, name, interrupted)


def die(*_: object) -> None:
    raise KeyboardInterrupt

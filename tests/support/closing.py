"""What the end of its `with` block closes."""

from typing import Self


class Closing:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError

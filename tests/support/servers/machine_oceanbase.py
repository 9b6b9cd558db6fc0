"""OceanBase as one node, by the server in the wheel `pylibseekdb`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Self

from support.servers import fetched
from support.servers.machines import Machine

SMALL = ("memory_limit=1G", "log_disk_size=2G", "datafile_size=256M")


class OceanBase(Machine):
    kind = "oceanbase"

    @classmethod
    def new(cls) -> Self:
        machine = cls(fetched.oceanbase(), Path(tempfile.mkdtemp(prefix=f"allocator-{cls.kind}-")))
        machine.data.mkdir()
        machine.start()
        return machine

    @property
    def url(self) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/test"

    def command(self) -> list[object]:
        """It makes its data itself."""
        sizes = [word for size in SMALL for word in ("--parameter", size)]
        return [self.program, "--nodaemon", "--port", self.port, "--base-dir", self.data, *sizes]

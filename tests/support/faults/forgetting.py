"""Databases that forget what they had committed: one story, `part` and `strike`, for each way in which it happens."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self

from support.faults.wire import Wire
from support.servers.databases import with_schema
from support.servers.machines import Machine, Templates, until


class Forgetful:
    """A database with the schema, for processes that find it by `url`, before and after.

    part: everything so far is kept; from here on, all that is committed will be forgotten.
    strike: it is forgotten, and the database is there again.
    fragile: nobody may write just then, or what comes of it is neither the old nor the new.
    """

    url: str
    fragile = False

    @abstractmethod
    def part(self) -> None: ...

    @abstractmethod
    def strike(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Served(Forgetful):
    """A server behind an address that can lead to another one."""

    def __init__(self, templates: Templates, machine: Machine) -> None:
        self.templates, self.machine = templates, machine
        self.machines = [machine]
        machine.start()
        self.wire = Wire(machine.url)
        self.url = self.wire.url

    def add(self, machine: Machine) -> Machine:
        self.machines.append(machine)
        return machine

    def close(self) -> None:
        with suppress(AttributeError):  # of one that did not start
            self.wire.close()
        for machine in self.machines:
            machine.close()


class Promoted(Served):
    """The primary is killed with commits that its asynchronous standby has not received, and that is promoted."""

    def __init__(self, templates: Templates, machine: Machine) -> None:
        untouched = machine.copy()
        super().__init__(templates, machine)
        self.standby = self.add(untouched)
        self.standby.follow(machine)
        with_schema(machine.url)

    def part(self) -> None:
        until(lambda: self.standby.has_all_of(self.machine), "the standby has all")
        self.standby.unfollow()
        until(self.standby.is_cut_off, "the standby is cut off")

    def strike(self) -> None:
        self.machine.kill()
        self.standby.promote()
        self.wire.lead_to(self.standby.url)


class Restored(Served):
    """An older copy of the server's files is put back, in their place or in another one.

    elsewhere: in another place, as another server, while the old one is gone.
    stopped: the copy is that of a server at rest, which is started again then; otherwise that of one which stands
        still for a moment, as the snapshot of a disk.
    """

    def __init__(self, templates: Templates, machine: Machine, *, elsewhere: bool = False, stopped: bool) -> None:
        super().__init__(templates, machine)
        self.elsewhere, self.stopped = elsewhere, stopped
        with_schema(machine.url)

    def part(self) -> None:
        if not self.stopped:
            with self.machine.frozen():
                self.backup = self.add(self.machine.copy())
            return
        self.machine.stop()
        self.backup = self.add(self.machine.copy())
        self.machine.start()
        self.wire.cut()

    def strike(self) -> None:
        self.machine.kill()
        if self.elsewhere:
            self.backup.start()
            self.wire.lead_to(self.backup.url)
        else:
            self.machine.take(self.backup.data)
            self.machine.start()
            self.wire.cut()

"""The collectives of a compiled program that a device runs as a whole: numbered and recorded at each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...devices.device import Device
from ...errors import DistributedError
from .records import Record

if TYPE_CHECKING:
    from .connection import Connection
    from .group import ProcessGroup


class CapturedCollectives:
    """Those of one group in one capture, in order; ``asked`` says what all ranks ask for alike."""

    def __init__(self, group: ProcessGroup, connection: Connection, device: Device) -> None:
        self.asked: list[str] = []
        self._group, self._connection, self._device = group, connection, device
        self._record: Any = None

    def begin(self) -> None:
        """Number the collectives, and put one record of all of them into the ring, before they are queued.

        Raises what the group has failed by.
        """
        group, connection = self._group, self._connection
        group.check("a compiled program")
        connection.check()
        group.follow()
        record = self._record = Record(
            group.label, 0, "program", (), "", str(self._device), needs=group.ranks
        )
        group.world.records.add(record)
        connection.start_program(record, self.asked)
        group.agreements.begin(record, self._device.type)

    def end(self, error: BaseException | None) -> None:
        """Note that the program has been queued, or that it could not be."""
        record, self._record = self._record, None
        if error is None:
            self._connection.leave(record, self._device)
        else:
            self._connection.stop(record, error)
            if isinstance(error, DistributedError):
                self._connection.check()

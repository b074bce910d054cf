"""The places in the user's code where a capture met what stops it, and where ops were recorded.

A place is a position in a code object, one for each of the user's frames on the stack: the innermost has what
stopped the capture, the others the calls that led there.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable
from itertools import islice
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from ...devices.device import Device
from ..state.code_origin import is_own, is_standard

CAPTURING_CODE: Final[set[int]] = set()
"""The ids of the code that calls a captured function: frames outside of it are no part of a capture."""


class Position(NamedTuple):
    """A part of a source file, as instructions have it: lines from 1, columns in bytes of UTF-8 from 0."""

    line: int
    end_line: int
    column: int
    end_column: int

    @classmethod
    def of_instruction(cls, code: CodeType, offset: int) -> Position | None:
        """Return the part of the source that an instruction was compiled from."""
        line, end, column, end_column = next(islice(code.co_positions(), offset // 2, None), (None,) * 4)
        if line is None:
            return None
        if end is None or column is None or end_column is None:
            return cls(line, line, -1, -1)
        return cls(line, end, column, end_column)

    def covers(self, other: Position) -> bool:
        """Return whether another part lies in this one."""
        if other.column < 0:
            return self.line <= other.line and other.end_line <= self.end_line
        first, last = (self.line, self.column), (self.end_line, self.end_column)
        return first <= (other.line, other.column) and (other.end_line, other.end_column) <= last


Places = tuple[tuple[CodeType, int], ...]
"""Code of the user's on the stack with the instructions that it was at, the innermost first."""


class BreakSites:
    """The places of one capture: ``breaks``, and those of calls that lead to one; ``ops`` that it recorded.

    Both are by the id of a code object, which ``codes`` has, and the offsets of instructions. ``loops`` are
    those that repeat too often to be unrolled; ``repeats``: so does something that cannot be divided.
    ``asks_cache``: a function with a cache was asked about its cache, whose hits a program does not count.
    """

    def __init__(self) -> None:
        self.codes: dict[int, CodeType] = {}
        self.breaks: dict[int, dict[int, bool]] = {}
        """Whether the break is in a function that is called there."""
        self.ops: dict[int, set[int]] = {}
        self.loops: dict[int, set[Position]] = {}
        self.late: list[tuple[int | None, Device, Places]] = []
        """The reads that were put off on a device with late errors: places of the copies and of the lines."""
        self.devices: set[Device] = set()
        """The devices with work that a break had to be waited for."""
        self.given_up: CodeType | None = None
        """The code of a segment that Python runs from now on."""
        self.opaque: CodeType | None = None
        """The code that names what cannot be looked into, if nothing breaks: it may show something on it."""
        self.asks_cache = self.repeats = False
        self.last_op: Places = ()
        self.reached: Container[int] = ()
        """The ids of the objects that the function reaches."""
        self.nodes: dict[tuple[Any, int], Places] = {}
        """The places of the user's that made a node, by device and place in the trace."""

    def note_break(self, frame: FrameType | None = None, devices: Iterable[Device] = ()) -> None:
        """Note a break at the innermost line of the user's, where work of ``devices`` is waited for."""
        self.devices.update(devices)
        self._note_break(_user_places(frame or sys._getframe(1)))

    def _note_break(self, places: Iterable[tuple[CodeType, int]]) -> None:
        leads = False
        for code, offset in places:
            self.codes[id(code)] = code
            known = self.breaks.setdefault(id(code), {})
            known[offset] = known.get(offset, False) or leads
            leads = True

    def note_late_read(self, place: int | None, device: Device) -> None:
        """Note a read that was put off, of the copy at a place of the trace; None: of an input."""
        self.late.append((place, device, tuple(_user_places(sys._getframe(1)))))

    def divide_at_late_reads(self) -> None:
        """Note breaks where reads were put off."""
        for *_, places in self.late:
            self._note_break(places)

    def note_opaque(self, code: CodeType | None) -> None:
        """Note that code depends on what cannot be looked into."""
        self.opaque = None if self.breaks or self.loops else code

    def note_op(self) -> None:
        """Note that an op is recorded."""
        self.last_op = places = tuple(_user_places(sys._getframe(1)))
        for code, offset in places:
            self.codes[id(code)] = code
            self.ops.setdefault(id(code), set()).add(offset)

    def note_node(self, device: Any, place: int) -> None:
        """Note the place in the trace of the op that was noted last."""
        if self.last_op:
            self.nodes.setdefault((device, place), self.last_op)

    def note_loop(self, code: CodeType, loop: Position, callers: Places) -> None:
        """Note a loop of a function that ``callers`` lead to."""
        self.codes[id(code)] = code
        self.loops.setdefault(id(code), set()).add(loop)
        for caller, offset in callers:
            self.codes[id(caller)] = caller
            self.breaks.setdefault(id(caller), {})[offset] = True


def _user_places(frame: FrameType | None) -> list[tuple[CodeType, int]]:
    places = []
    while frame is not None and id(frame.f_code) not in CAPTURING_CODE:
        file = frame.f_code.co_filename
        if not is_own(file) and not is_standard(file):
            places.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return places

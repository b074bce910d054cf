"""Graph breaks: where and why a graph ends before the function does."""

from __future__ import annotations

import linecache
from dataclasses import dataclass

from ...system.user_frame import user_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBreak:
    """A line of the user's where the graph ends because Python needs values, and the reason."""

    reason: str
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text or '?'}  ({self.reason})"


def locate_break(reason: str) -> GraphBreak:
    """Return the innermost line of the user's on the stack."""
    frame, _ = user_frame()
    file, line = frame.f_code.co_filename, frame.f_lineno
    return GraphBreak(reason=reason, file=file, line=line, text=linecache.getline(file, line).strip())

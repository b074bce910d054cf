"""Finds programs that unpack values and indices, as PyTorch returns both, where one tensor is returned.

``v, i = x.max(1)`` would assign two rows to the names without a word, where there are two.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType, FrameType
from typing import Final

PAIRS: Final = {
    "max": "max_with_indices(x, axis) or topk", "min": "min_with_indices(x, axis) or topk",
    "median": "kthvalue", "nanmedian": "kthvalue", "sort": "sort and tensorbus.argsort",
}  # fmt: skip
"""Functions that return values and indices in PyTorch, and what does so here."""
_UNPACK: Final = dis.opmap.get("UNPACK_SEQUENCE", -1)


def hint(frame: FrameType) -> str | None:
    """Return what to write instead where ``frame`` unpacks two values of a call of ``PAIRS``; None if not.

    A call that names ``axis`` is in the array API standard's words and gives one tensor there too. Found by
    the frame's instructions: without places in the source (``python -X no_debug_ranges``) nothing is.
    """
    code, offset = frame.f_code, frame.f_lasti
    if offset < 0 or code.co_code[offset] != _UNPACK or code.co_code[offset + 1] != 2:
        return None
    name = _called(code, offset)
    if name is None:
        return None
    return f"{name} returns one tensor here; values and indices come from tensorbus.{PAIRS[name]}."


@lru_cache(maxsize=256)
def _called(code: CodeType, offset: int) -> str | None:
    """Return the name of ``PAIRS`` whose result is unpacked at ``offset``."""
    before = [i for i in dis.get_instructions(code) if i.offset < offset and i.opname != "CACHE"]
    call = before.pop() if before else None
    place = None if call is None else call.positions
    if call is None or not call.opname.startswith("CALL") or place is None or place.lineno is None:
        return None
    start = (place.lineno, place.col_offset)
    end = (place.end_lineno or 0, place.end_col_offset or 0)
    name, furthest = None, (0, 0)
    for step in reversed(before):
        at = step.positions
        if at is None or at.lineno is None or (at.lineno, at.col_offset or 0) < (start[0], start[1] or 0):
            break
        value = code.co_consts[step.arg or 0] if step.opname == "KW_NAMES" else step.argval
        if isinstance(value, tuple) and "axis" in value:
            return None
        ends = (at.end_lineno or 0, at.end_col_offset or 0)
        if (at.lineno, at.col_offset) == start and furthest < ends < end and isinstance(step.argval, str):
            name, furthest = step.argval, ends
    return name if name in PAIRS else None

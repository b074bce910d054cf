"""Whose line it is: the innermost one on the stack that is not tensorbus's own.

Warnings and the places where graphs break tell of it, however many functions of tensorbus lie in between.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Final

_OWN: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")


def user_frame() -> tuple[FrameType, int]:
    """Return the frame of the user's line, and the ``stacklevel`` that names it to ``warnings.warn`` here.

    Where every frame is tensorbus's own (its command line) it is the outermost.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame, level = frame.f_back, level + 1
    return frame, level

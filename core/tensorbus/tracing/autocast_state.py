"""The dtype that autocast asks for: state of a thread or task, which ops, guards and ``amp`` read."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

autocast_dtype: Final[ContextVar[Any]] = ContextVar("tensorbus_autocast", default=None)
"""The dtype that products compute in here, of one type of device or of all; None: that of their operands."""

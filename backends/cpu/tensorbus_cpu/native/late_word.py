"""Words of a plan's bytecode that are computed from sizes by a function: how threads share the work."""

from __future__ import annotations

from typing import Any


class LateWord:
    """Number ``part`` of what ``function``, by its name in ``plan_words``, makes of sizes."""

    __slots__ = ("arguments", "function", "part")

    def __init__(self, function: str, arguments: tuple[Any, ...], part: int) -> None:
        self.function, self.arguments, self.part = function, arguments, part

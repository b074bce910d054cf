"""Functions of upper packages that lower ones call, imported when they are first called.

An import goes down only, so a lower package cannot name a function of an upper one; and importing the upper
one at the start, so that it registers itself, would cost every program what only some of them use. So the
lower package says that it calls a function (``LateFunction("compile")``), and the root package, which
stands above all others, says once which function that is (``provide``).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

_targets: Final[dict[str, str]] = {}


def provide(**targets: str) -> None:
    """Say which functions late-bound names stand for, each as ``"module:function"``."""
    _targets.update(targets)


def provided() -> dict[str, str]:
    """Return the functions that late-bound names stand for, by the names that the callers know them by."""
    return dict(_targets)


class LateFunction:
    """A function of an upper package by the name that ``provide`` gives it."""

    __slots__ = ("_function", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._function: Callable[..., Any] | None = None

    def load(self) -> Callable[..., Any]:
        """Return the function itself, importing its module if need be."""
        if self._function is None:
            module, _, function = _targets[self._name].partition(":")
            self._function = getattr(importlib.import_module(module), function)
        assert self._function is not None
        return self._function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return (self._function or self.load())(*args, **kwargs)

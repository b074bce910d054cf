"""Hooks that lay out what goes into a module and what comes out: parts of this program, that no file has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import StateError


class MeshHook:
    """A hook of a module that is laid out on a mesh, which calls ``function``.

    Copies of the module share it, as they do functions.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        """Return what ``function`` makes of a module's arguments or results."""
        return self.function(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> MeshHook:
        return self

    def __reduce__(self) -> Any:
        raise unpicklable("this module is split over the ranks of a mesh, by hooks of its own")


def unpicklable(why: str) -> StateError:
    """Return the error of a module that ``pickle`` was to write."""
    return StateError(
        f"pickle: {why}, and cannot be pickled. Every rank saves its state, as by"
        f" tensorbus.save(model.state_dict(), path). To go on, make the module anew, spread it, and call"
        f" model.load_state_dict(tensorbus.load(path))."
    )

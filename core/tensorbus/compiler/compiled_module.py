"""A compiled module: an instance of a derived class that shares all state with the original module.

Parameters, buffers, flags, attributes and hooks are those of the module itself, under the same names: it is
trained, saved, moved and put into other modules as that one is. Only its call differs: it is compiled.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from ..nn.module import Module

_REPORTED: Final = frozenset({"replays", "breaks", "reasons", "recompiles", "graphs", "notes"})


class CompiledModule(Module):
    """A module that ``compile`` returned: an instance of a class of its own, derived from the module's.

    Copies and pickles hold the module, and are compiled anew. ``replays``, ``breaks``, ``reasons``,
    ``recompiles``, ``graphs`` and ``notes`` are those of ``Compiled``, unless it has such an attribute.
    """

    _compiled: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Hide the derived class from base classes that register their subclasses."""

    def change_class(self, change: Callable[[Module], None]) -> None:
        """Let ``change`` give the module that is called another class, and derive this one's from it."""
        compiled = type(self)._compiled
        change(compiled.function)
        self.__class__ = type(share_state(compiled.function, compiled))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in _REPORTED:
                return getattr(type(self)._compiled, name)
            raise

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        compiled = type(self)._compiled
        return compiled.again(copy.deepcopy(compiled.function, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self)._compiled._recipe()


def share_state(module: Module, compiled: Callable[..., Any]) -> CompiledModule:
    """Return a module that shares the state of ``module``; its call is ``compiled``."""
    kind = type(module)

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        """Return a module that is not compiled: ``compiled`` is the call of this one alone."""
        return kind(*args, **kwargs)

    body = {
        "__new__": new, "__call__": staticmethod(compiled), "_compiled": compiled,
        "__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__,
    }  # fmt: skip
    make: Any = type(kind)
    shared: CompiledModule = object.__new__(make(kind.__name__, (CompiledModule, kind), body))
    object.__setattr__(shared, "__dict__", module.__dict__)
    return shared

"""Lazy modules: built without the size of their input, they become plain ones at the first call.

The call reads the size, draws the values and makes the module what it would have been: ``LazyLinear`` is a
``Linear`` then. The cells stay the same objects, so that an optimizer made before goes on with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .module import Module
from .uninitialized_parameter import UninitializedBuffer, UninitializedParameter, fill, is_lazy


def wait(module: Module, size: str) -> None:
    """Take the shapes of a module's cells away, and let its ``size`` be 0, until the first input comes."""
    for name, parameter in module._parameters.items():
        if parameter is not None:
            lazy = UninitializedParameter(parameter.requires_grad, parameter.device, parameter.dtype)
            module._parameters[name] = lazy
    for name, buffer in module._buffers.items():
        if buffer is not None and buffer.shape:
            module._buffers[name] = UninitializedBuffer(buffer.device, buffer.dtype)
    setattr(module, size, 0)


def become(module: Module, kind: type[Module], size: str, length: int, make: Callable[..., Module]) -> None:
    """Make a lazy module one of ``kind`` whose ``size`` is ``length``.

    ``make(device=, dtype=)`` returns a module with its first values; cells that were loaded keep theirs.
    """
    tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
    waiting = [cell for table in tables for cell in table.values() if is_lazy(cell)]
    if waiting:
        first: Any = waiting[0]
        built = make(device=first.device, dtype=first.dtype)
        others: tuple[dict[str, Any], ...] = (built._parameters, built._buffers)
        for table, other in zip(tables, others, strict=True):
            for name, cell in table.items():
                value = other[name]
                if cell is not None and value is not None and is_lazy(cell):
                    fill(cell, value)
    setattr(module, size, length)
    module.__class__ = kind

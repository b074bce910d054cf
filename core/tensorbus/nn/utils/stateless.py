"""A module called with other tensors than its own: weights of an inner loop, or of another model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...errors import ArgumentError, ShapeError, suggest
from ...tensor.tensor import Tensor
from ..module import Module

_TABLES = ("_parameters", "_buffers")


def functional_call(
    module: Module, parameters_and_buffers: Mapping[str, Tensor], args: Any = None,
    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True,
) -> Any:  # fmt: skip
    """Return what ``module`` makes of ``args`` with these tensors in the place of its own of the same names.

    What is not named stays as it is, and gradients flow to what is. Of a tensor that has several names one
    is enough, unless ``tie_weights`` is False. ``args`` is a tuple, or a single argument. Meanwhile the
    module is another for all threads. Raises ``ArgumentError`` for a name that the module does not have,
    and ``ShapeError`` for a tensor of another shape.

    >>> import tensorbus as tb
    >>> linear = tb.nn.Linear(2, 1)
    >>> twos = {"weight": tb.full((1, 2), 2.0), "bias": tb.zeros(1)}
    >>> tb.nn.utils.functional_call(linear, twos, tb.ones(2)).tolist()
    [4.0]
    """
    arguments = args if isinstance(args, tuple) else () if args is None else (args,)
    with _replaced(_places(module, parameters_and_buffers, tie_weights)):
        return module(*arguments, **(kwargs or {}))


def _parts(module: Module, path: str) -> Iterator[tuple[str, Module]]:
    """Yield a module and all below it, those that have several names by each of them."""
    yield path, module
    for name, part in module.__dict__["_modules"].items():
        if part is not None:
            yield from _parts(part, f"{path}.{name}" if path else name)


def _places(
    module: Module, tensors: Mapping[str, Tensor], tie_weights: bool
) -> list[tuple[dict[str, Any], str, Tensor]]:
    """Return the tables of the module and of its parts, with the names in them that get other tensors."""
    named = {
        f"{path}.{name}" if path else name: (part.__dict__[table], name)
        for path, part in _parts(module, "")
        for table in _TABLES
        for name, own in part.__dict__[table].items()
        if own is not None
    }
    replacements: dict[int, Tensor] = {}
    for name, x in tensors.items():
        if name not in named:
            kind = type(module).__name__
            raise ArgumentError(
                f"functional_call: {kind} has no parameter or buffer {name!r}.{suggest(name, named)}"
            )
        table, key = named[name]
        if table[key].shape != x.shape:
            raise ShapeError(f"functional_call: {name!r} has shape {table[key].shape}, got {x.shape}.")
        replacements[id(table[key])] = x
    return [
        (table, key, tensors[name] if name in tensors else replacements[id(table[key])])
        for name, (table, key) in named.items()
        if name in tensors or (tie_weights and id(table[key]) in replacements)
    ]


@contextmanager
def _replaced(places: list[tuple[dict[str, Any], str, Tensor]]) -> Iterator[None]:
    before = [(table, key, table[key]) for table, key, _ in places]
    try:
        for table, key, x in places:
            table[key] = x
        yield
    finally:
        for table, key, own in before:
            table[key] = own

"""Tensors in what goes into a module and comes out, and the same with others in their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

from ...dtypes.definition import DType
from ...tensor.tensor import Tensor


def tensors_in(tree: Any) -> list[Tensor]:
    """Return the tensors in what goes into a module or comes out."""
    tensors: list[Tensor] = []

    def note(x: Tensor) -> Tensor:
        tensors.append(x)
        return x

    _map_tensors(note, tree)
    return tensors


def converted(tree: Any, dtype: DType | None) -> Any:
    """Return arguments or results with floating-point tensors in ``dtype``."""
    if dtype is None:
        return tree
    return _map_tensors(lambda x: x.to(dtype) if x.dtype.is_floating else x, tree)


def _map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Return ``tree`` with ``function`` applied to its tensors, or itself where it changes none.

    Unlike trees of ``tree_map``, mappings keep their class, and dataclasses are trees too: they are what
    modules return.
    """
    if isinstance(tree, Tensor):
        return function(tree)
    data = is_dataclass(tree) and not isinstance(tree, type)
    if not (data or isinstance(tree, Mapping | tuple | list)):
        return tree
    if isinstance(tree, Mapping):
        old = dict(tree)
    else:
        old = {f.name: getattr(tree, f.name) for f in fields(tree)} if data else dict(enumerate(tree))
    new = {key: _map_tensors(function, part) for key, part in old.items()}
    if all(new[key] is part for key, part in old.items()):
        return tree
    if isinstance(tree, tuple | list):
        return type(tree)(*new.values()) if hasattr(tree, "_fields") else type(tree)(new.values())
    copied = copy(tree)
    for key, part in new.items():
        if isinstance(tree, Mapping):
            copied[key] = part
        else:
            object.__setattr__(copied, key, part)
    return copied

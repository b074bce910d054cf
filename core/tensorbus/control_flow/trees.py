"""Carried values: nested tensors with a name for each leaf, and the checks that a step keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..devices.device import Device
from ..dispatch.modes import base_device
from ..errors import ArgumentError, DeviceError, DtypeError, ShapeError
from ..func.pytree import tree_map
from ..interchange.host_array import asarray
from ..ops.creation.creation import full
from ..ops.definition import Spec
from ..tensor.tensor import Tensor
from ..tracing.sym_int import SymInt
from ..tracing.sym_number import SymNumber

_NUMBERS: Final = (bool, int, float, complex)


class TreeLeaf(NamedTuple):
    """A leaf of a tree, with the expression that finds it: ``carried[1]['h']``."""

    name: str
    value: Any


def named_leaves(tree: Any, name: str) -> list[TreeLeaf]:
    """Return the leaves of a tree in order. An empty container is a leaf: it is part of the structure."""
    return list(_walk(tree, name))


def _walk(tree: Any, name: str) -> Iterator[TreeLeaf]:
    steps, frames = [name], [iter([("", tree)])]
    above: dict[int, None] = {0: None}
    while frames:
        for step, value in frames[-1]:
            if isinstance(value, (Mapping, tuple, list)) and value:
                if id(value) in above:
                    raise ArgumentError(f"{name}: a {type(value).__name__} in it holds itself.")
                steps.append(step)
                above[id(value)] = None
                frames.append(_named_parts(value))
                break
            yield TreeLeaf("".join([*steps, step]), value)
        else:
            frames.pop()
            steps.pop()
            above.popitem()


def _named_parts(tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        return ((f"[{key!r}]", value) for key, value in tree.items())
    fields = getattr(tree, "_fields", None)
    return ((f"[{k}]" if fields is None else f".{fields[k]}", value) for k, value in enumerate(tree))


def rebuilt(tree: Any, values: Sequence[Any]) -> Any:
    """Return ``tree`` with these leaves, as many as it has tensors or numbers, in their order."""
    rest = iter(values)
    return tree_map(lambda x: next(rest) if is_value(x) else x, tree)


def is_value(x: Any) -> bool:
    """Return whether a leaf is a tensor (or its spec) or a number, and so carried; others stay."""
    return isinstance(x, (Tensor, Spec)) or type(x) in _NUMBERS


def values_of(tree: Any) -> list[Any]:
    """Return the leaves that are tensors or numbers."""
    return [leaf.value for leaf in named_leaves(tree, "") if is_value(leaf.value)]


def device_of(*trees: Any) -> Device | None:
    """Return the device of the first tensor in some trees."""
    return next((x.device for tree in trees for x in values_of(tree) if isinstance(x, Tensor)), None)


def as_tensors(tree: Any, device: Device | None) -> Any:
    """Return the tree with its numbers as tensors of the device that the others are on."""
    where = None if device is None else base_device(device)
    return tree_map(lambda x: _as_tensor(x, where), tree)


def _as_tensor(x: Any, device: Device | None) -> Any:
    if type(x) in _NUMBERS:
        return asarray(x, device=device)
    if type(x) is SymInt:
        x = x.number()
    if type(x) is not SymNumber:
        return x
    number: Any = x
    return full((), number, dtype=asarray(x.plain, device=device).dtype, device=device)


def same_values(who: str, function: str, before: Any, after: Any, name: str, device: Device | None) -> Any:
    """Return what ``function`` made of ``before``, in its structure, with numbers as tensors like those.

    ``before`` may hold specs in the places of tensors. Raises ``ArgumentError`` for another structure,
    ``ShapeError``, ``DtypeError`` and ``DeviceError`` for a leaf of another shape, dtype or device, which the
    message names.
    """
    old, new = named_leaves(before, name), dict(named_leaves(after, name))
    for leaf in old:
        if leaf.name not in new:
            raise ArgumentError(f"{who}: {function} returned no {leaf.name}, and must return all of {name}.")
    known = {leaf.name for leaf in old}
    for more in new:
        if more not in known:
            raise ArgumentError(f"{who}: {function} returned {more}, which is not there before.")
    values = iter([_same_value(who, function, leaf, new[leaf.name], device) for leaf in old])
    return tree_map(lambda _: next(values), before)


def _same_value(who: str, function: str, was: TreeLeaf, now: Any, device: Device | None) -> Any:
    old = was.value
    if not isinstance(old, (Tensor, Spec)):
        if is_value(now) or (now is not old and now != old):
            raise ArgumentError(
                f"{who}: {was.name} is {_text(old)}, and {function} returned {_text(now)} for it; only"
                " tensors and numbers may become others."
            )
        return now
    if type(now) in _NUMBERS:
        if old.shape:
            raise ShapeError(
                f"{who}: {was.name} has shape {old.shape}, and {function} returned the number {now!r} for it."
            )
        return full((), now, dtype=old.dtype, device=None if device is None else base_device(device))
    if not isinstance(now, Tensor):
        raise ArgumentError(
            f"{who}: {was.name} is {_text(old)}, and {function} returned {_text(now)} for it."
        )
    if tuple(now.shape) != tuple(old.shape):
        raise ShapeError(
            f"{who}: {was.name} has shape {tuple(old.shape)}, and {function} returned shape"
            f" {tuple(now.shape)} for it; the shape must stay."
        )
    if now.dtype is not old.dtype:
        raise DtypeError(
            f"{who}: {was.name} is {old.dtype}, and {function} returned {now.dtype} for it; the dtype must"
            f" stay: cast with .to({old.dtype})."
        )
    if isinstance(old, Tensor) and base_device(now.device) != base_device(old.device):
        raise DeviceError(
            f"{who}: {was.name} is on {base_device(old.device)}, and {function} returned a tensor on"
            f" {base_device(now.device)} for it; move it with .to()."
        )
    return now


def _text(x: Any) -> str:
    return f"a tensor {Spec(x.shape, x.dtype)}" if isinstance(x, Tensor) else f"{x!r}"

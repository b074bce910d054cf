"""One sample call of one op on one device: its arrays, the call, and the bytes of what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from tensorbus import Tensor, asarray, plugins
from tensorbus.dispatch.plan import Plan, plan
from tensorbus.dtypes.definition import DType
from tensorbus.eager.runner import operands_of
from tensorbus.errors import TensorbusError
from tensorbus.ops.definition import Op, table
from tensorbus.testing.sample import Fill, Sample

from .arrays import make
from .native import Array, native

HOST = "cpu"
"""The device that references and derivatives in float64 are worked out on."""


class ConformanceError(TensorbusError):
    """The kit itself cannot go on: a device that is not there, an op that nobody defined."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A call as op and kernels know it: operands, its plan, and the attributes that kernels see."""

    operands: list[Any]
    attrs: Mapping[str, Any]
    plan: Plan

    @property
    def outs(self) -> tuple[DType, ...]:
        """The dtype of each result."""
        return tuple(o.dtype for o in self.plan.outs or (self.plan.out,))


@dataclass(frozen=True, kw_only=True)
class Trial:
    """``place`` counts the samples of the op; with its name it decides what is drawn."""

    op: Op[...]
    device: str
    dtype: DType
    sample: Sample
    place: int

    @cached_property
    def fills(self) -> list[Fill]:
        """The tensors of the call, in order."""
        return list(_fills((self.sample.args, dict(self.sample.kwargs))))

    @cached_property
    def arrays(self) -> list[Array]:
        """An array for each tensor of the call."""
        return [make(f, self.dtype, f"{self.op.name} {self.place} {k}") for k, f in enumerate(self.fills)]

    @cached_property
    def worked_out(self) -> dict[str, Any]:
        """The findings of checks about the call that others ask for too, by name."""
        return {}

    @property
    def title(self) -> str:
        """The call, in a line."""

        def shown(x: Any) -> str:
            if isinstance(x, Fill):
                return f"{x.dtype or self.dtype}{list(x.shape)}"
            return "[" + ", ".join(map(shown, x)) + "]" if isinstance(x, list) else str(x)

        kwargs = [f"{k}={self.dtype if v is ... else shown(v)}" for k, v in self.sample.kwargs.items()]
        note = f" ({self.sample.note})" if self.sample.note else ""
        return f"{self.op.name}({', '.join([*map(shown, self.sample.args), *kwargs])}){note}"

    def over(self, arrays: list[Array]) -> Trial:
        """Return the same call of other arrays, of the same dtypes."""
        other = replace(self)
        other.__dict__["arrays"] = arrays
        return other

    def other(self) -> Trial:
        """Return the call of other arrays of the same kind: elements in another order, unless it matters."""
        return self.over([_other(a, f) for a, f in zip(self.arrays, self.fills, strict=True)])

    def tensors(self, device: str | None = None) -> list[Tensor]:
        """Return the arrays as tensors."""
        return [asarray(a, device=device or self.device) for a in self.arrays]

    def filled(self, tensors: Sequence[Any], device: str | None = None) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with ``tensors`` where they belong."""
        leaves = iter(tensors)
        args = [_filled(a, leaves) for a in self.sample.args]
        kwargs = {k: self.dtype if v is ... else _filled(v, leaves) for k, v in self.sample.kwargs.items()}
        if self.op.family == "creation":
            kwargs["device"] = device or self.device
        return args, kwargs

    def run(self, tensors: Sequence[Any], device: str | None = None) -> tuple[Tensor, ...]:
        """Call the op; return its results."""
        args, kwargs = self.filled(tensors, device)
        out = table.function(self.op.name)(*args, **kwargs)
        return tuple(out) if self.op.results else (out,)

    def bind(self, tensors: Sequence[Any], device: str | None = None) -> Bound:
        """Work out how the call runs, without running it. Raises what the call would raise."""
        operands, attrs = self.operands_of(tensors, device)
        kinds = [x._vtype if isinstance(x, Tensor) else type(x) for x in operands]
        shapes = None if self.op.broadcasts else [x.shape for x in operands]
        planned = plan(self.op, kinds, shapes, attrs)
        return Bound(operands=operands, attrs=planned.attrs, plan=planned)

    def operands_of(
        self, tensors: Sequence[Any], device: str | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return what the op's Python signature makes of the arguments."""
        args, kwargs = self.filled(tensors, device)
        return operands_of(self.op, args, kwargs)


def _fills(tree: Any) -> Iterator[Fill]:
    if isinstance(tree, Fill):
        yield tree
    elif isinstance(tree, dict):
        for part in tree.values():
            yield from _fills(part)
    elif isinstance(tree, (list, tuple)):
        for part in tree:
            yield from _fills(part)


def _other(a: Array, fill: Fill) -> Array:
    if fill.values:
        return a
    return 2 * a if fill.matrix else np.array(np.flip(a), order="C")


def _filled(tree: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(tree, Fill):
        return next(leaves)
    if isinstance(tree, (list, tuple)) and not hasattr(tree, "_fields"):
        return type(tree)(_filled(part, leaves) for part in tree)
    return tree


def raw(x: Tensor) -> bytes:
    """Return the bytes of a tensor's value, as the device gives them."""
    return bytes(plugins.backend(x.device.type).runtime.to_host(x._value, x.dtype, x.device.index))


def array(x: Tensor) -> Array:
    """Return the elements of a tensor, by their bytes. Raises ``ValueError`` for too many or too few."""
    data = raw(x)
    if len(data) != prod(x.shape) * x.dtype.itemsize:
        raise ValueError(
            f"the value has {len(data)} bytes, {x.dtype} of shape {x.shape} has"
            f" {prod(x.shape) * x.dtype.itemsize}"
        )
    return np.frombuffer(data, native(x.dtype)).reshape(x.shape)


def caught(call: Callable[[], Any]) -> Exception | None:
    """Return what ``call`` raises."""
    try:
        call()
    except Exception as error:
        return error
    return None

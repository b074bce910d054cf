"""``with_size``: a function of a size that no shape has, and that is known when the program runs.

How many elements a mask leaves, say: PyTorch calls such a size unbacked. Eagerly the function is called with
the integer. In a captured function its graph is an attribute of one op, with lengths that are open in the
size, and one program serves all sizes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..backend_interface.graph import SubGraph, Symbol
from ..dispatch.modes import base_device, is_value_mode, readable
from ..errors import CaptureError
from ..ops.definition import Shape, Spec
from ..tensor.tensor import Tensor
from ..tracing.plan_env import PlanEnv
from ..tracing.sym_int import ShapeEnv, SymInt, at, is_open, plain, substitute
from .operators import is_captured
from .rules import run
from .sized_runs import MIN_SIZE, check_size
from .subgraph import lengths_of, traced


def with_size(
    function: Callable[..., Sequence[Tensor]], size: Tensor, operands: Sequence[Tensor], most: int
) -> tuple[Tensor, ...]:
    """Return ``function(n, *operands)``, tensors, for the integer ``n`` that ``size`` holds.

    ``n`` lies between 2 and ``most``. In a captured function it is a ``SymInt``; the function must do nothing
    but return values, whose shapes do not depend on ``n``, and must decide nothing by ``n``: it is for
    lengths, and where a number is needed there is ``size``. Other lengths are those of its operands.

    Raises ``ArgumentError`` for a size beyond its limits, and ``CaptureError`` for a function that does not
    serve all sizes.

    >>> import tensorbus as tb
    >>> from tensorbus.control_flow import with_size
    >>> with_size(lambda n, x: (x[:n].sum(),), tb.asarray(2), [tb.asarray([1.0, 2.0, 4.0])], 3)[0].item()
    3.0
    """
    if not is_captured() and not is_value_mode((own := readable(size)).device.type):
        return tuple(function(check_size(int(own), plain(most)), *operands))
    lengths = _SizeEnv(most)
    graph, outside = traced(
        lambda *values: function(lengths.size, *values),
        [Spec(lengths.shape(x.shape), x.dtype) for x in operands],
        base_device(size.device),
        lengths.shape,
        lengths.symbols.values(),
        lengths.env,
    )
    lengths.check(graph)
    return run(
        "with_size", [size, *outside, *operands], body=graph, sizes=tuple(lengths.outside.items()), most=most
    )


class _SizeEnv:
    """Symbols of a graph: the size, and what is open outside, under the names that it has there."""

    def __init__(self, most: int) -> None:
        self.env = PlanEnv()
        self.symbols: dict[str, Symbol] = {}
        self.outside: dict[str, Any] = {}
        self._outer: ShapeEnv | None = None
        (limit,) = self.shape((most,))
        taken: set[str] = set() if self._outer is None else set(self._outer.symbols)
        name = next(name for k in range(len(taken) + 1) if (name := f"n{k}") not in taken)
        bound = limit if type(limit) is int else None
        self.size = self._symbol(name, max(plain(most) // 2, MIN_SIZE), MIN_SIZE, bound)
        self.env.know(self.size, limit)

    def _symbol(self, name: str, hint: int, least: int, most: int | None) -> SymInt:
        self.symbols[name] = name, hint, least, most
        return self.env.symbol(name, hint, least, most)

    def shape(self, shape: Sequence[Any]) -> Shape:
        """Return lengths from outside as those of the graph."""
        if not is_open(tuple(shape)):
            return tuple([int(n) for n in shape])
        for n in shape:
            if type(n) is SymInt:
                self._outer = n.env
                for name in re.findall(r"\b[a-z]\d+\b", n.text):
                    if name not in self.symbols:
                        hint = n.env.hints[name]
                        self.outside[name] = n.env.of_name(name)
                        self._symbol(name, hint, min(hint, MIN_SIZE), None)
        values: Any = {name: self.env.of_name(name) for name in self.symbols}
        opened: Shape = substitute(values)(tuple(shape))
        return opened

    def check(self, graph: SubGraph) -> None:
        """Put conditions on lengths from outside there. Raises ``CaptureError`` for those on the size."""
        own = re.compile(rf"\b{self.size.text}\b")
        for spec in graph.outputs:
            if any(own.search(n.text) for n in lengths_of(spec)):
                raise CaptureError(f"with_size: a result, {spec}, has a length that depends on the size.")
        for condition in self.env.conditions:
            if own.search(condition):
                raise CaptureError(f"with_size: the function holds only for sizes of which {condition}.")
            assert self._outer is not None, "a condition is on lengths that are open"
            self._outer.add_guard(condition)


def attrs_text(attrs: Mapping[str, Any], sizes: Mapping[str, Any]) -> str:
    """Return a text of a node's attributes, with lengths from outside as they are for ``sizes``.

    So it is the same of a graph that was traced with lengths and of one that was traced with ``sizes``.
    """
    body = attrs.get("body")
    if not isinstance(body, SubGraph) or not body.symbols:
        return repr(at(dict(attrs), sizes))
    env = PlanEnv()
    values = {**sizes, **{x[0]: env.symbol(*x) for x in body.symbols if x[0] not in sizes}}
    numbers = {node: k for k, node in enumerate(body.graph)}
    lines = [
        f"{node.op} {[numbers[x] for x in node.inputs]} {attrs_text(node.attrs, values)}"
        f" {at(node.shape, values)} {node.spec.dtype}"
        for node in numbers
    ]
    rest = {name: at(value, sizes) for name, value in attrs.items() if name not in ("body", "sizes")}
    return f"{rest} {lines} {[numbers[x] for x in body.graph.outputs]}"

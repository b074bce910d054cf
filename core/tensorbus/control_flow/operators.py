"""``cond``, ``while_loop`` and ``scan`` as users call them.

Eagerly they are what they would be in Python: functions are called, op by op, so that histories, transforms
and errors are those of any code. In a captured function the functions become graphs and the call one op.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..backend_interface.graph import SubGraph
from ..devices.device import Device, get_default_device
from ..dispatch.levels import levels
from ..dispatch.modes import base_device, has_history, readable, value_modes
from ..dtypes.definition import bool_
from ..errors import ArgumentError, ShapeError, TensorbusError
from ..func.pytree import tree_map
from ..ops.batching_rules import LoopWarning
from ..ops.call_errors import with_form
from ..ops.creation.creation import full
from ..ops.definition import Spec
from ..ops.elementwise.where_cast import where
from ..ops.movement.movement import moveaxis, stack
from ..tensor.grad_mode import is_grad_enabled
from ..tensor.tensor import Tensor
from ..tracing.active_modes import active_modes
from ..tracing.active_tracer import active_tracer
from . import rules
from .subgraph import BodyLevel, graph_of, plain_shape, run_graph, traced
from .trees import as_tensors, device_of, named_leaves, rebuilt, same_values, values_of

Function = Callable[..., Any]
_PREDICATE: Final = "one boolean: a bool, or a tensor of one element"


def cond(pred: Any, true_fn: Function, false_fn: Function, operands: Any = ()) -> Any:
    """Return ``true_fn(*operands)`` where ``pred`` holds, else ``false_fn(*operands)``.

    ``pred`` is a bool or a tensor of one boolean; both functions return trees of the same structure, shapes
    and dtypes. In a compiled function the call is one node of the program, which runs one of the two: there
    is no graph break. The functions must do nothing but return values, as both of them are called once then.
    Inside of ``vmap`` a ``pred`` that differs between examples computes both, and takes each example's own.

    Raises ``ArgumentError`` for a ``pred`` of more elements and for results of another structure,
    ``ShapeError`` and ``DtypeError`` for results that do not agree; eagerly only one of them is known.

    >>> import tensorbus as tb
    >>> x = tb.asarray([1.0, -2.0])
    >>> tb.cond(x.sum() > 0, lambda x: x * 2, lambda x: -x, (x,)).tolist()
    [-1.0, 2.0]
    """
    _check_functions("cond", true_fn=true_fn, false_fn=false_fn)
    if not isinstance(operands, (tuple, list)):
        raise ArgumentError(f"cond: operands must be a tuple of arguments, got {type(operands).__name__}.")
    if not isinstance(pred, Tensor):
        return (true_fn if _plain_bool("cond", "pred", pred) else false_fn)(*operands)
    pred = _scalar("cond", "pred", pred)
    if is_captured():
        result = _captured("cond", lambda: _captured_cond(pred, true_fn, false_fn, operands))
        if result is not NotImplemented:
            return result
    if _differs(pred):
        there = as_tensors(true_fn(*operands), pred.device)
        here = same_values("cond", "false_fn", there, false_fn(*operands), "result", pred.device)
        return _chosen(pred, there, here)
    return (true_fn if bool(pred) else false_fn)(*operands)


def while_loop(cond_fn: Function, body_fn: Function, carried: Any) -> Any:
    """Return ``carried`` after ``carried = body_fn(*carried)`` as long as ``cond_fn(*carried)`` holds.

    ``carried`` is a tuple or list of trees of tensors and numbers; ``cond_fn`` returns one boolean,
    ``body_fn`` a tuple like ``carried``, whose leaves keep their shapes and dtypes. In a compiled function
    the loop is one node of the program: nothing is unrolled, and Python is not asked whether it goes on. The
    functions must do nothing but return values, as they are called once then. Inside of ``vmap`` the loop
    goes on until no example wants another step; those that have ended keep their values.

    Gradients are those of the steps that were made, whose values are kept: memory grows with their number. A
    compiled function keeps none, as a program does not know how many there will be: where a gradient may be
    asked for, Python runs the loop. Tangents of forward mode are carried along, in constant memory.

    Raises ``ArgumentError`` for another structure, ``ShapeError`` and ``DtypeError`` for a leaf that becomes
    another, naming it.

    >>> import tensorbus as tb
    >>> n, total = tb.while_loop(lambda n, total: total < 100, lambda n, total: (n + 1, total * 2), (0, 1))
    >>> n.item(), total.item()
    (7, 128)
    """
    _check_functions("while_loop", cond_fn=cond_fn, body_fn=body_fn)
    if not isinstance(carried, (tuple, list)):
        raise ArgumentError(
            f"while_loop: carried must be a tuple of what is carried, got {type(carried).__name__}."
        )
    device = device_of(carried) or get_default_device()
    carried = as_tensors(carried, device)
    if is_captured() and not _wants_gradient(carried):
        result = _captured("while_loop", lambda: _captured_while(cond_fn, body_fn, carried))
        if result is not NotImplemented:
            return result
    while True:
        go = cond_fn(*carried)
        if not isinstance(go, Tensor):
            if not _plain_bool("while_loop", "what cond_fn returns", go):
                return carried
            go = None
        else:
            go = _scalar("while_loop", "what cond_fn returns", go)
            if not _any(go):
                return carried
        new = _as_carried(body_fn(*carried), carried)
        new = same_values("while_loop", "body_fn", carried, new, "carried", device)
        carried = _chosen(go, new, carried) if go is not None and _differs(go) else new


@with_form
def scan(
    f: Function, init: Any, xs: Any = None, *, length: int | None = None, reverse: bool = False, axis: int = 0
) -> tuple[Any, Any]:
    """Return ``(carry, ys)`` after ``carry, y = f(carry, x)`` for each ``x`` along ``axis`` of ``xs``.

    ``init`` and ``xs`` are trees of tensors; ``carry`` keeps the structure, shapes and dtypes of ``init``;
    each leaf of ``ys`` has the ``y`` of each step along ``axis``. ``length`` is the number of steps where
    ``xs`` is None; with ``reverse`` the last ``x`` comes first, and ``ys`` still lie as ``xs`` do. In a
    compiled function the loop is one node of the program: ``f`` is called once, must do nothing but return
    values, and compiling takes the same time for any length. Gradients, forward mode and ``vmap`` are loops
    as well; a gradient keeps what is carried at each step, and computes the rest again.

    Raises ``ShapeError`` for ``xs`` of different lengths and for a leaf that becomes another, naming it,
    ``DtypeError`` for one of another dtype, ``ArgumentError`` for another structure.

    >>> import tensorbus as tb
    >>> total, sums = tb.scan(lambda s, x: (s + x, s + x), tb.asarray(0.0), tb.asarray([1.0, 2.0, 3.0]))
    >>> total.item(), sums.tolist()
    (6.0, [1.0, 3.0, 6.0])
    """
    _check_functions("scan", f=f)
    device = device_of(init, xs) or get_default_device()
    init, xs = as_tensors(init, device), _leading(xs, axis)
    steps = _steps(xs, length)
    if is_captured():
        result: tuple[Any, Any] = _captured("scan", lambda: _captured_scan(f, init, xs, steps, reverse, axis))
        if result is not NotImplemented:
            return result
    carry, rows = init, list[Any]()
    for t in range(steps - 1, -1, -1) if reverse else range(steps):
        carry, y = _stepped(f, carry, tree_map(lambda x, t=t: x[t] if isinstance(x, Tensor) else x, xs))
        y = as_tensors(y, device)
        rows.append(same_values("scan", "f", rows[0], y, "y", device) if rows else y)
    if reverse:
        rows.reverse()
    if not rows:
        return init, _no_rows(f, init, xs, device, axis)
    return carry, tree_map(lambda x, *more: stack([x, *more], axis) if isinstance(x, Tensor) else x, *rows)


def is_captured() -> bool:
    """Return whether functions become graphs here: in a captured function, or in one that became a graph."""
    return bool(active_modes) and (
        active_tracer() is not None or any(isinstance(level, BodyLevel) for level in levels())
    )


def _check_functions(who: str, **functions: Any) -> None:
    for name, function in functions.items():
        if not callable(function):
            raise ArgumentError(f"{who}: {name} must be a function, got {type(function).__name__}.")


def _plain_bool(who: str, what: str, value: Any) -> bool:
    if not isinstance(value, (bool, int)):
        raise ArgumentError(f"{who}: {what} must be {_PREDICATE}; got {type(value).__name__}.")
    return bool(value)


def _scalar(who: str, what: str, x: Tensor) -> Tensor:
    """Return a predicate as a tensor without axes."""
    if x.size != 1 or x.dtype.is_complex:
        raise ArgumentError(f"{who}: {what} must be {_PREDICATE}; got {Spec(x.shape, x.dtype)}.")
    flag = x if x.dtype is bool_ else x != 0
    return flag.reshape(()) if x.shape else flag


def _differs(x: Tensor) -> bool:
    """Return whether a tensor stands for several values, as it does inside of ``vmap``."""
    return readable(x)._vtype.device.type in value_modes


def _any(x: Tensor) -> bool:
    """Return whether a predicate holds for any of the values that it stands for."""
    while (mode := value_modes.get(x._vtype.device.type)) is not None:
        x = mode.parts(x._value)[0]
    return bool(x.any()) if x.shape else bool(x)


def _chosen(pred: Tensor, there: Any, here: Any) -> Any:
    return tree_map(lambda a, b: where(pred, a, b) if isinstance(a, Tensor) else a, there, here)


def _wants_gradient(carried: Any) -> bool:
    return is_grad_enabled() and any(map(has_history, values_of(carried)))


def _as_carried(new: Any, carried: Sequence[Any]) -> Any:
    """Return what a body returned as the tuple or list that it must be: one value may stand for itself."""
    return (new,) if len(carried) == 1 and not isinstance(new, (tuple, list)) else new


def _leading(xs: Any, dim: int) -> Any:
    """Return what is scanned with the axis of the steps as axis 0."""
    for leaf in named_leaves(xs, "xs"):
        x = leaf.value
        if x is not None and not isinstance(x, Tensor) and x not in ((), [], {}):
            raise ArgumentError(f"scan: {leaf.name} must be a tensor, got {type(x).__name__}.")
        if isinstance(x, Tensor) and not -x.ndim <= dim < x.ndim:
            raise ShapeError(f"scan: {leaf.name} has shape {x.shape}, which has no axis {dim}.")
    return tree_map(lambda x: moveaxis(x, dim, 0) if isinstance(x, Tensor) and dim else x, xs)


def _steps(xs: Any, length: int | None) -> int:
    rows = [leaf for leaf in named_leaves(xs, "xs") if isinstance(leaf.value, Tensor)]
    lengths = {leaf.name: int(leaf.value.shape[0]) for leaf in rows}
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 0):
        raise ArgumentError(f"scan: length must be an integer of at least 0, got {length!r}.")
    if not lengths and length is None:
        raise ArgumentError("scan: xs has no tensor; length must say how many steps there are.")
    steps = next(iter(lengths.values())) if length is None else length
    for name, n in lengths.items():
        if n != steps:
            raise ShapeError(f"scan: {name} has {n} steps, and there are {steps}; all must agree.")
    return steps


def _stepped(f: Function, carry: Any, x: Any) -> tuple[Any, Any]:
    result = f(carry, x)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise ArgumentError(f"scan: f must return a pair (carry, y), got {type(result).__name__}.")
    return same_values("scan", "f", carry, result[0], "carry", device_of(carry)), result[1]


def _specs(tree: Any) -> list[Spec]:
    return [Spec(plain_shape(x.shape), x.dtype) for x in values_of(tree)]


class _Traced:
    """A function of trees, traced: its graph, what it reads from outside, and its result, with specs."""

    def __init__(self, function: Function, tree: Any, device: Device) -> None:
        self.result: Any = None

        def flat(*values: Tensor) -> list[Tensor]:
            result = as_tensors(function(rebuilt(tree, values)), device)
            self.result = tree_map(lambda x: Spec(x.shape, x.dtype) if isinstance(x, Tensor) else x, result)
            return values_of(result)

        self.graph, self.outside = traced(flat, _specs(tree), device)

    def reading(self, outside: Sequence[Tensor]) -> SubGraph:
        """Return the graph that takes these tensors first, among which are those that it reads."""
        places = [next(k for k, x in enumerate(outside) if x is own) for own in self.outside]
        own, count = self.graph, len(outside)
        specs = [Spec(plain_shape(x.shape), x.dtype) for x in outside]

        def function(device: Device, *values: Tensor) -> Sequence[Tensor]:
            return run_graph(own, [*[values[k] for k in places], *values[count:]], device)

        return graph_of(function, [*specs, *own.inputs[len(places) :]])


def _captured(who: str, make: Callable[[], Any]) -> Any:
    """Return what a captured function records of a call; ``NotImplemented`` where Python has to run it."""
    try:
        return make()
    except TensorbusError as error:
        if str(error).startswith(f"{who}: "):
            raise
        reason = error
    warnings.warn(
        f"{who}: the functions cannot be captured, and Python runs them step by step: {reason}",
        LoopWarning,
        stacklevel=4,
    )
    return NotImplemented


def _captured_cond(pred: Tensor, true_fn: Function, false_fn: Function, operands: Sequence[Any]) -> Any:
    device = base_device(pred.device)
    tree = as_tensors(list(operands), device)
    true = _Traced(lambda args: true_fn(*args), tree, device)

    def other(args: Any) -> Any:
        return same_values("cond", "false_fn", true.result, false_fn(*args), "result", device)

    false = _Traced(other, tree, device)
    outside = [*true.outside, *false.outside]
    outs = rules.run(
        "cond", [pred, *outside, *values_of(tree)], true=true.reading(outside), false=false.reading(outside)
    )
    return rebuilt(true.result, outs)


def _captured_while(cond_fn: Function, body_fn: Function, carried: Any) -> Any:
    device = base_device(device_of(carried) or get_default_device())

    def test(args: Any) -> Any:
        go = cond_fn(*args)
        return _scalar("while_loop", "what cond_fn returns", go) if isinstance(go, Tensor) else go

    def step(args: Any) -> Any:
        new = _as_carried(body_fn(*args), args)
        return same_values("while_loop", "body_fn", args, new, "carried", device)

    condition, body = _Traced(test, carried, device), _Traced(step, carried, device)
    if _wants_gradient(body.outside):
        return NotImplemented
    if len(condition.graph.outputs) != 1:
        got = type(condition.result).__name__
        raise ArgumentError(f"while_loop: what cond_fn returns must be {_PREDICATE}; got {got}.")
    values = values_of(carried)
    outs = rules.run(
        "while_loop",
        [*condition.outside, *body.outside, *values],
        condition=condition.graph,
        body=body.graph,
        layout=(len(condition.outside), len(body.outside), len(values)),
    )
    return rebuilt(carried, outs)


def _captured_scan(f: Function, init: Any, xs: Any, steps: int, reverse: bool, dim: int) -> Any:
    device = base_device(device_of(init, xs) or get_default_device())
    body = _Traced(lambda args: _stepped(f, *args), [init, _first_rows(xs)], device)
    values, rows = values_of(init), values_of(xs)
    outs = rules.run(
        "scan",
        [*body.outside, *values, *rows],
        body=body.graph,
        layout=(len(body.outside), len(values), len(rows)),
        length=steps,
        reverse=bool(reverse),
    )
    carry, ys = body.result
    lines = [moveaxis(y, 0, dim) if dim else y for y in outs[len(values) :]]
    return rebuilt(carry, outs[: len(values)]), rebuilt(ys, lines)


def _first_rows(xs: Any) -> Any:
    """Return the tree of what is scanned with tensors of the shapes of one step, whatever their values."""
    return tree_map(
        lambda x: (
            full(plain_shape(x.shape[1:]), 0, dtype=x.dtype, device=base_device(x.device))
            if isinstance(x, Tensor)
            else x
        ),
        xs,
    )


def _no_rows(f: Function, init: Any, xs: Any, device: Device, dim: int) -> Any:
    """Return the ``ys`` of no steps, of the shapes that they would have."""
    body = _Traced(lambda args: _stepped(f, *args), [init, _first_rows(xs)], base_device(device))
    count = len(values_of(init))
    empty = [
        full((0, *spec.shape), 0, dtype=spec.dtype, device=base_device(device))
        for spec in body.graph.outputs[count:]
    ]
    return rebuilt(body.result[1], [moveaxis(y, 0, dim) if dim else y for y in empty])

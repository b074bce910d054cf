"""The ops ``cond``, ``while_loop``, ``scan`` and ``with_size``.

Functions are attributes, what they read are operands. Their derivatives, forward and backward, and their
batching rules are the same ops of other graphs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ..backend_interface.graph import SubGraph
from ..dispatch.kernel_tables import register_program_kernels
from ..dispatch.modes import has_history
from ..dtypes import definition as dt
from ..errors import AutogradError, DtypeError, ShapeError
from ..ops.batching_rules import LoopWarning
from ..ops.creation.creation import full
from ..ops.definition import CONTROL_FLOW, Op, Spec, table
from ..ops.elementwise.where_cast import where
from ..ops.movement.movement import broadcast_to, moveaxis, reshape, stack
from ..tensor.grad_mode import grad_enabled
from ..tensor.tensor import Tensor
from ..tracing.sym_int import substitute
from .loops import LoopKernels
from .subgraph import graph_of, pullback, pushforward, run_graph, vectorized

Tensors = Sequence[Tensor]
Sizes = tuple[tuple[str, Any], ...]


def run(op: str, operands: Sequence[Any], **attrs: Any) -> tuple[Tensor, ...]:
    """Run one of the ops; a scan keeps its carries where a derivative may need them."""
    if op == "scan":
        attrs["keep"] = bool(grad_enabled.get()) and any(map(has_history, operands))
        outputs = table.run(op, operands, attrs)
        results: tuple[Tensor, ...] = tuple(outputs[: len(attrs["body"].outputs)])
        return results
    return tuple(table.run(op, operands, attrs))


def _check(who: str, inputs: Sequence[Spec], operands: Sequence[Spec]) -> None:
    for k, (needed, got) in enumerate(zip(inputs, operands, strict=True)):
        if tuple(needed.shape) != tuple(got.shape) or needed.dtype is not got.dtype:
            raise ShapeError(f"{who}: operand {k} is {got}, and its function takes {needed}.")


def _is_condition(who: str, spec: Spec) -> None:
    if spec.shape or not (spec.dtype is dt.bool_ or spec.dtype.is_integer):
        raise DtypeError(f"{who}: the condition is one boolean, of shape (); got {spec}.")


def _zeros(like: Tensor) -> Tensor:
    return full(like.shape, 0, dtype=like.dtype, device=like.device)


def _inexact(values: Sequence[Any], specs: Sequence[Spec]) -> list[Any]:
    return [x for x, spec in zip(values, specs, strict=True) if spec.dtype.is_inexact]


def _spread(values: Sequence[Any], specs: Sequence[Spec]) -> list[Any]:
    """Return a value for each spec: one of ``values`` where it is inexact, None elsewhere."""
    rest = iter(values)
    return [next(rest) if spec.dtype.is_inexact else None for spec in specs]


def _moving(operands: Tensors, tangents: Sequence[Tensor | None]) -> list[Tensor]:
    """Return the tangents of the operands that can have one, zeros where there is none."""
    pairs = [(x, t) for x, t in zip(operands, tangents, strict=True) if x.dtype.is_inexact]
    return [_zeros(x) if t is None else t for x, t in pairs]


def _all_batched(operands: Tensors, batched: Sequence[bool], count: int) -> list[Tensor]:
    return [
        x if b else broadcast_to(reshape(x, (1, *x.shape)), (count, *x.shape))
        for x, b in zip(operands, batched, strict=True)
    ]


def _count(operands: Tensors, batched: Sequence[bool]) -> int:
    return next(int(x.shape[0]) for x, b in zip(operands, batched, strict=True) if b)


def _selected(pred: Tensor, there: Tensors, here: Tensors) -> list[Tensor]:
    """Return for each example the first where its ``pred``, of one axis, is true, or else the second."""
    return [
        where(reshape(pred, (*pred.shape, *(1,) * (len(a.shape) - 1))), a, b)
        for a, b in zip(there, here, strict=True)
    ]


# cond


def _cond_specs(operands: Sequence[Spec], *, true: SubGraph, false: SubGraph) -> tuple[Spec, ...]:
    _is_condition("cond", operands[0])
    _check("cond", true.inputs, operands[1:])
    _check("cond", false.inputs, operands[1:])
    for k, (a, b) in enumerate(zip(true.outputs, false.outputs, strict=True)):
        if tuple(a.shape) != tuple(b.shape) or a.dtype is not b.dtype:
            raise ShapeError(f"cond: result {k} is {a} of true_fn, and {b} of false_fn; both must agree.")
    return true.outputs


def _cond_vjp(
    g: Tensors, pred: Tensor, operands: Tensors, true: SubGraph, false: SubGraph, wanted: Sequence[bool]
) -> tuple[Any, ...]:
    places = tuple([k for k, w in enumerate(wanted[1:]) if w and operands[k].dtype.is_inexact])
    seeds = _inexact(g, true.outputs)
    if not places or not seeds:
        return (None,) * len(wanted)
    backs = run("cond", [pred, *operands, *seeds], true=pullback(true, places), false=pullback(false, places))
    by_place = dict(zip(places, backs, strict=True))
    return (None, *[by_place.get(k) for k in range(len(operands))])


def _cond_jvp(
    pred: Tensor, operands: Tensors, operands_t: Sequence[Tensor | None], true: SubGraph, false: SubGraph
) -> list[Tensor | None]:
    moving = _moving(operands, operands_t)
    outs = run("cond", [pred, *operands, *moving], true=pushforward(true), false=pushforward(false))
    return _spread(outs[len(true.outputs) :], true.outputs)


def _cond_batch(operands: Tensors, batched: Sequence[bool], *, true: SubGraph, false: SubGraph) -> Any:
    pred, *rest = operands
    varies, count = tuple(batched[1:]), _count(operands, batched)
    if not batched[0]:
        there, here = (vectorized(graph, varies, count) for graph in (true, false))
        return run("cond", operands, true=there, false=here)
    device = pred.device
    outs = []
    for graph in (true, false):
        values = vectorized(graph, varies, count) if any(varies) else graph
        results = run_graph(values, rest, device)
        outs.append(results if any(varies) else _all_batched(results, (False,) * len(results), count))
    return tuple(_selected(pred if pred.dtype is dt.bool_ else pred != 0, *outs))


# while_loop


def _while_specs(
    operands: Sequence[Spec], *, condition: SubGraph, body: SubGraph, layout: tuple[int, int, int]
) -> tuple[Spec, ...]:
    asked, captured, carried = _parts(operands, layout)
    _check("while_loop", condition.inputs, [*asked, *carried])
    _check("while_loop", body.inputs, [*captured, *carried])
    _is_condition("while_loop", condition.outputs[0])
    return tuple(carried)


def _parts(values: Sequence[Any], layout: tuple[int, int, int]) -> tuple[list[Any], list[Any], list[Any]]:
    first, second, _ = layout
    return list(values[:first]), list(values[first : first + second]), list(values[first + second :])


def _while_vjp(g: Tensors, wanted: Sequence[bool]) -> tuple[Any, ...]:
    raise AutogradError(
        "while_loop: a program does not know how many steps a loop takes, so it keeps no values for a"
        " gradient. Use tb.scan where the number of steps is known, or cut the carried values off with"
        " .detach()."
    )


def _while_jvp(
    operands: Tensors, operands_t: Sequence[Tensor | None], condition: SubGraph, body: SubGraph,
    layout: tuple[int, int, int],
) -> list[Tensor | None]:  # fmt: skip
    asked, captured, carried = _parts(operands, layout)
    _, kept_t, carried_t = _parts(operands_t, layout)
    moving, kept_moving = _moving(carried, carried_t), _moving(captured, kept_t)
    forward, (n, m), c = pushforward(body), (len(captured), len(carried)), len(kept_moving)

    def step(device: Any, *values: Tensor) -> Sequence[Tensor]:
        consts, consts_t = values[:n], values[n : n + c]
        state, state_t = values[n + c : n + c + m], values[n + c + m :]
        return run_graph(forward, (*consts, *state, *consts_t, *state_t), device)

    def test(device: Any, *values: Tensor) -> Sequence[Tensor]:
        return run_graph(condition, values[: len(values) - len(moving)], device)

    specs_t = _inexact(body.outputs, body.outputs)
    of_consts = body.inputs[:n]
    outs = run(
        "while_loop",
        [*asked, *captured, *kept_moving, *carried, *moving],
        condition=graph_of(test, [*condition.inputs, *specs_t]),
        body=graph_of(step, [*of_consts, *_inexact(of_consts, of_consts), *body.inputs[n:], *specs_t]),
        layout=(len(asked), n + c, m + len(moving)),
    )
    return _spread(outs[m:], body.outputs)


def _while_batch(
    operands: Tensors, batched: Sequence[bool], *, condition: SubGraph, body: SubGraph,
    layout: tuple[int, int, int],
) -> Any:  # fmt: skip
    count = _count(operands, batched)
    asked, captured, carried = _parts(operands, layout)
    asked_b, kept_b, carried_b = _parts(batched, layout)
    everything = (True,) * len(carried)
    test = vectorized(condition, (*asked_b, *everything), count)
    step = vectorized(body, (*kept_b, *everything), count)
    n, m = len(asked), len(captured)

    def is_on(device: Any, *values: Tensor) -> Sequence[Tensor]:
        return [(run_graph(test, values, device)[0] != 0).any()]

    def masked(device: Any, *values: Tensor) -> Sequence[Tensor]:
        state = values[n + m :]
        on = run_graph(test, (*values[:n], *state), device)[0] != 0
        return _selected(on, run_graph(step, (*values[n : n + m], *state), device), state)

    of_test, of_step = test.inputs, step.inputs
    return run(
        "while_loop",
        [*asked, *asked, *captured, *_all_batched(carried, carried_b, count)],
        condition=graph_of(is_on, of_test),
        body=graph_of(masked, [*of_test[:n], *of_step]),
        layout=(n, n + m, len(carried)),
    )


# scan


def _scan_specs(
    operands: Sequence[Spec], *, body: SubGraph, layout: tuple[int, int, int], length: int, reverse: bool,
    keep: bool,
) -> tuple[Spec, ...]:  # fmt: skip
    captured, carried, rows = _parts(operands, layout)
    for k, spec in enumerate(rows):
        if not spec.shape or spec.shape[0] != length:
            raise ShapeError(f"scan: xs {k} is {spec}, and there are {length} steps along axis 0.")
    _check("scan", body.inputs, [*captured, *carried, *[Spec(x.shape[1:], x.dtype) for x in rows]])
    ys = [*body.outputs[len(carried) :], *(carried if keep else [])]
    return (*body.outputs[: len(carried)], *[Spec((length, *y.shape), y.dtype) for y in ys])


def _scan_vjp(
    g: Tensors, out: Tensors, operands: Tensors, body: SubGraph, layout: tuple[int, int, int], length: int,
    reverse: bool, keep: bool, wanted: Sequence[bool], used: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    """A scan the other way: it carries the gradients of what is carried, and sums of those of constants.

    What was kept of each step has a gradient where this derivative is differentiated itself.
    """
    captured, carried, rows = _parts(operands, layout)
    if not keep:
        raise AutogradError("scan: it was recorded without what its derivative needs.")
    n, m = len(captured), len(carried)
    specs = body.outputs
    inexact = [k for k in range(m) if specs[k].dtype.is_inexact]
    consts = [k for k in range(n) if wanted[k] and captured[k].dtype.is_inexact]
    of_rows = [k for k in range(len(rows)) if wanted[n + m + k] and rows[k].dtype.is_inexact]
    places = (*consts, *[n + k for k in inexact], *[n + m + k for k in of_rows])
    seeds_y = _inexact(g[m : len(specs)], specs[m:])
    states = out[len(specs) :]
    kept_g = [g[len(specs) + k] for k in inexact] if any(used[len(specs) :]) else []
    if not places:
        return (None,) * len(wanted)
    pull = pullback(body, places)
    a, b, ends = len(inexact), len(consts), m + len(rows) + len(seeds_y)

    def step(device: Any, *values: Tensor) -> Sequence[Tensor]:
        own, (gs, sums, rest) = values[:n], _parts(values[n:], (a, b, 0))
        state, xs, ys = rest[:m], rest[m : m + len(rows)], rest[m + len(rows) : ends]
        grads = run_graph(pull, (*own, *state, *xs, *gs, *ys), device)
        states_g = grads[b : b + a]
        if kept_g:
            states_g = [x + more for x, more in zip(states_g, rest[ends:], strict=True)]
        return [*states_g, *[s + d for s, d in zip(sums, grads, strict=False)], *grads[a + b :]]

    of = body.inputs
    operands_of = [
        *of[:n], *[of[n + k] for k in inexact], *[of[k] for k in consts], *of[n:],
        *_inexact(specs[m:], specs[m:]), *([of[n + k] for k in inexact] if kept_g else []),
    ]  # fmt: skip
    backs = run(
        "scan",
        [
            *captured, *[g[k] for k in inexact], *[_zeros(captured[k]) for k in consts],
            *states, *rows, *seeds_y, *kept_g,
        ],
        body=graph_of(step, operands_of), layout=(n, a + b, ends + len(kept_g)), length=length,
        reverse=not reverse,
    )  # fmt: skip
    order = [*[n + k for k in inexact], *consts, *[n + m + k for k in of_rows]]
    by_place = dict(zip(order, backs, strict=True))
    return tuple([by_place.get(k) for k in range(len(wanted))])


def _scan_jvp(
    operands: Tensors, operands_t: Sequence[Tensor | None], body: SubGraph, layout: tuple[int, int, int],
    length: int, reverse: bool, keep: bool,
) -> list[Tensor | None]:  # fmt: skip
    parts, parts_t = _parts(operands, layout), _parts(operands_t, layout)
    moving = [_moving(x, t) for x, t in zip(parts, parts_t, strict=True)]
    sizes, sizes_t = [len(x) for x in parts], [len(x) for x in moving]
    forward, m, specs = pushforward(body), sizes[1], body.outputs
    a = sizes_t[1]

    def step(device: Any, *values: Tensor) -> Sequence[Tensor]:
        rest = list(values)
        taken = [[rest.pop(0) for _ in range(k)] for k in _interleaved(sizes, sizes_t)]
        primals, tangents = [x for t in taken[::2] for x in t], [x for t in taken[1::2] for x in t]
        outs = run_graph(forward, (*primals, *tangents), device)
        ys, outs_t = outs[m : len(specs)], outs[len(specs) :]
        states = [*rows_of(primals, sizes), *rows_of(tangents, sizes_t)] if keep else []
        return [*outs[:m], *outs_t[:a], *ys, *outs_t[a:], *states]

    def rows_of(values: Sequence[Tensor], of: Sequence[int]) -> Sequence[Tensor]:
        return values[of[0] : of[0] + of[1]]

    of = _parts(body.inputs, layout)
    shapes = [s for x in of for s in (x, _inexact(x, x))]
    outs = run(
        "scan",
        [x for pair in zip(parts, moving, strict=True) for part in pair for x in part],
        body=graph_of(step, [s for part in shapes for s in part]),
        layout=(sizes[0] + sizes_t[0], m + a, sizes[2] + sizes_t[2]), length=length, reverse=reverse,
    )  # fmt: skip
    count_y = len(specs) - m
    ys_t = outs[m + a + count_y :]
    inexact_ys = len(_inexact(specs[m:], specs[m:]))
    tangents = [*_spread(outs[m : m + a], specs[:m]), *_spread(ys_t[:inexact_ys], specs[m:])]
    if keep:
        tangents += _spread(ys_t[inexact_ys + m :], specs[:m])
    return tangents


def _interleaved(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [k for pair in zip(first, second, strict=True) for k in pair]


def _scan_batch(
    operands: Tensors, batched: Sequence[bool], *, body: SubGraph, layout: tuple[int, int, int], length: int,
    reverse: bool, keep: bool,
) -> Any:  # fmt: skip
    count = _count(operands, batched)
    captured, carried, rows = _parts(operands, layout)
    kept_b, carried_b, rows_b = _parts(batched, layout)
    step = vectorized(body, (*kept_b, *(True,) * len(carried), *rows_b), count)
    outs = table.run(
        "scan",
        [
            *captured, *_all_batched(carried, carried_b, count),
            *[moveaxis(x, 0, 1) if b else x for x, b in zip(rows, rows_b, strict=True)],
        ],
        {"body": step, "layout": layout, "length": length, "reverse": reverse, "keep": keep},
    )  # fmt: skip
    m = len(carried)
    return (*outs[:m], *[moveaxis(y, 0, 1) for y in outs[m:]])


# with_size


def _sized_specs(operands: Sequence[Spec], *, body: SubGraph, sizes: Sizes, most: int) -> tuple[Spec, ...]:
    size = operands[0]
    if size.shape or not size.dtype.is_integer:
        raise DtypeError(f"with_size: the size is one integer, of shape (); got {size}.")
    close = substitute(dict(sizes))
    needed, results = (
        [Spec(close(x.shape), x.dtype) for x in specs] for specs in (body.inputs, body.outputs)
    )
    _check("with_size", needed, operands[1:])
    return tuple(results)


def _sized_vjp(
    g: Tensors, size: Tensor, operands: Tensors, body: SubGraph, sizes: Sizes, most: int,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    places = tuple([k for k, w in enumerate(wanted[1:]) if w and operands[k].dtype.is_inexact])
    seeds = _inexact(g, body.outputs)
    if not places or not seeds:
        return (None,) * len(wanted)
    backs = run("with_size", [size, *operands, *seeds], body=pullback(body, places), sizes=sizes, most=most)
    by_place = dict(zip(places, backs, strict=True))
    return (None, *[by_place.get(k) for k in range(len(operands))])


def _sized_jvp(
    size: Tensor, operands: Tensors, operands_t: Sequence[Tensor | None], body: SubGraph, sizes: Sizes,
    most: int,
) -> list[Tensor | None]:  # fmt: skip
    moving = _moving(operands, operands_t)
    outs = run("with_size", [size, *operands, *moving], body=pushforward(body), sizes=sizes, most=most)
    return _spread(outs[len(body.outputs) :], body.outputs)


def _sized_batch(
    operands: Tensors, batched: Sequence[bool], *, body: SubGraph, sizes: Sizes, most: int
) -> Any:  # fmt: skip
    count = _count(operands, batched)
    if not batched[0]:
        each = vectorized(body, tuple(batched[1:]), count)
        return run("with_size", operands, body=each, sizes=sizes, most=most)
    warnings.warn("with_size: examples of different sizes run one by one.", LoopWarning, stacklevel=2)
    rows = [
        run(
            "with_size", [x[k] if b else x for x, b in zip(operands, batched, strict=True)],
            body=body, sizes=sizes, most=most,
        )
        for k in range(count)
    ]  # fmt: skip
    return tuple([stack(results) for results in zip(*rows, strict=True)])


def _op(name: str, operands: tuple[str, ...], doc: str, **rules: Any) -> None:
    op: Op[...] = Op(
        name=name, family=CONTROL_FLOW, operands=operands, results=("*results",), method=False,
        arguments=lambda *tensors, **attrs: (tensors, attrs), dtypes=dt.ALL, doc=doc, **rules,
    )  # fmt: skip
    register_program_kernels(name, LoopKernels(name))
    table.add_unlisted(op, "tensorbus")


_op(
    "cond", ("pred", "*operands"), "One of two functions of the operands.",
    infer=_cond_specs, vjp=_cond_vjp, jvp=_cond_jvp, batch=_cond_batch,
)  # fmt: skip
_op(
    "while_loop", ("*operands",), "A function of what it returned, as long as a condition holds.",
    infer=_while_specs, vjp=_while_vjp, jvp=_while_jvp, batch=_while_batch,
)  # fmt: skip
_op(
    "scan", ("*operands",), "A function of what it returned and of each row in turn.",
    infer=_scan_specs, vjp=_scan_vjp, jvp=_scan_jvp, batch=_scan_batch,
)  # fmt: skip
_op(
    "with_size", ("size", "*operands"), "A function of the operands and a size that is known when it runs.",
    infer=_sized_specs, vjp=_sized_vjp, jvp=_sized_jvp, batch=_sized_batch,
)  # fmt: skip

"""Jacobians and Hessians: ``jacrev`` by rows, ``jacfwd`` by columns, ``hessian`` by both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ..errors import DtypeError
from ..ops.creation.creation import eye, full
from ..ops.definition import Shape
from ..ops.movement.movement import concat, reshape
from ..tensor.tensor import Tensor
from .derivatives import check_function, chosen, jvp, tensor_leaves, unflatten, vjp, with_aux
from .pytree import leaves
from .vectorize import vmap


def jacrev(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Return the function that computes the Jacobian of ``function``, row by row in reverse mode.

    That is for functions of few results; ``jacfwd`` is for those of few arguments. ``argnums`` says with
    respect to which positional arguments. The Jacobian has the shape of the result, then that of the
    argument; results or arguments that are trees, or a tuple of ``argnums``, give a tree of the results whose
    leaves are trees of the arguments. ``chunk_size`` limits how many rows are computed at once: memory for
    time. With ``has_aux`` the function returns ``(output, aux)``, and the result is ``(jacobian, aux)``.

    Raises ``DtypeError`` for complex results.

    >>> import tensorbus as tb
    >>> tb.func.jacrev(lambda x: x * x)(tb.asarray([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    check_function("jacrev", function)

    @wraps(function)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        places = chosen("jacrev", args, argnums)

        def of_chosen(*own: Any) -> Any:
            return with_aux("jacrev", function(*_replaced(args, places, own), **kwargs), has_aux)

        points = [args[k] for k in places]
        output, vjp_fn, aux = vjp(of_chosen, *points, has_aux=True)
        outs = tensor_leaves("jacrev", output)
        _check_real("jacrev", "results", outs)
        seeds = unflatten(output, _basis(outs))
        rows = leaves(list(vmap(vjp_fn, chunk_size=chunk_size)(seeds)))
        inputs = leaves(points)
        split = [
            _split(row, [x.shape for x in outs], x.shape, 0) for row, x in zip(rows, inputs, strict=True)
        ]
        tree = unflatten(output, [
            _as_chosen(unflatten(points, [parts[k] for parts in split]), argnums) for k in range(len(outs))
        ])  # fmt: skip
        return (tree, aux) if has_aux else tree

    return jacobian


def jacfwd(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
    randomness: str = "error", chunk_size: int | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Return the function that computes the Jacobian of ``function``, column by column in forward mode.

    What it returns is what ``jacrev`` returns. ``randomness`` says what numbers drawn inside are for the
    columns: see ``vmap``.

    Raises ``DtypeError`` for complex arguments.

    >>> import tensorbus as tb
    >>> tb.func.jacfwd(lambda x: x * x)(tb.asarray([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    check_function("jacfwd", function)

    @wraps(function)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        places = chosen("jacfwd", args, argnums)
        points = [args[k] for k in places]
        inputs = leaves(points)
        _check_real("jacfwd", "arguments", inputs)

        def of_chosen(*own: Any) -> Any:
            return with_aux("jacfwd", function(*_replaced(args, places, own), **kwargs), has_aux)

        def push(directions: Sequence[Any]) -> Any:
            _, tangent, aux = jvp(
                of_chosen, tuple(points), tuple(unflatten(points, directions)), has_aux=True
            )
            return tangent, aux

        basis = _basis(inputs)
        columns, aux = vmap(push, out_dims=(-1, 0), chunk_size=chunk_size, randomness=randomness)(basis)
        outs = tensor_leaves("jacfwd", columns)
        lengths = [x.shape for x in inputs]
        tree = unflatten(columns, [
            _as_chosen(unflatten(points, _split(column, lengths, column.shape[:-1], -1)), argnums)
            for column in outs
        ])  # fmt: skip
        aux = unflatten(aux, [x[0] if isinstance(x, Tensor) else x for x in leaves(aux)]) if has_aux else None
        return (tree, aux) if has_aux else tree

    return jacobian


def hessian(function: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Return the function that computes the Hessian of ``function``: ``jacfwd(jacrev(function))``.

    >>> import tensorbus as tb
    >>> tb.func.hessian(lambda x: (x**3).sum())(tb.asarray([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    check_function("hessian", function)
    return jacfwd(jacrev(function, argnums), argnums)


def _replaced(args: Sequence[Any], places: Sequence[int], own: Sequence[Any]) -> list[Any]:
    result = [*args]
    for k, x in zip(places, own, strict=True):
        result[k] = x
    return result


def _as_chosen(tree: Any, argnums: Any) -> Any:
    return tuple(tree) if isinstance(argnums, (tuple, list)) else tree[0]


def _check_real(who: str, what: str, tensors: Sequence[Any]) -> None:
    for x in tensors:
        if not isinstance(x, Tensor) or not x.dtype.is_floating:
            got = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise DtypeError(
                f"{who}: the {what} must be real floating-point tensors, got {got}; take complex numbers"
                f" apart with .real and .imag."
            )


def _basis(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return, for each tensor, all directions of all of them together, along axis 0."""
    total = sum(x.size for x in tensors)
    directions, before = [], 0
    for x in tensors:
        own = x.size
        flat = eye(own, dtype=x.dtype, device=x.device)
        parts = [full((n, own), 0, dtype=x.dtype, device=x.device) for n in (before, total - before - own)]
        rows = [p for p in (parts[0], flat, parts[1]) if p.shape[0]]
        whole = flat if len(rows) <= 1 else concat(rows, axis=0)
        directions.append(reshape(whole, (total, *x.shape)))
        before += own
    return directions


def _split(x: Tensor, shapes: Sequence[Shape], rest: Shape, axis: int) -> list[Tensor]:
    """Return parts of ``x`` along its first or last axis, one for each shape, with that in its place."""
    parts, start = [], 0
    for shape in shapes:
        size = 1
        for n in shape:
            size *= n
        part = x[start : start + size] if axis == 0 else x[..., start : start + size]
        parts.append(reshape(part, (*shape, *rest) if axis == 0 else (*rest, *shape)))
        start += size
    return parts

"""Derivatives of functions: ``grad``, ``grad_and_value``, ``vjp``, ``jvp``, ``linearize``.

A reverse transform runs the function, recorded, on arguments whose histories begin there, and walks back to
them and no further; what lies behind is the history of the result, so that transforms nest. ``jvp`` is a
level of forward mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

from ..autograd import engine, node_order, saved_values
from ..autograd.forward_mode import ForwardLevel, check_tangent
from ..autograd.forward_rules import transpose
from ..dispatch.levels import levels
from ..dispatch.modes import has_history, lift_to, value_modes
from ..errors import ArgumentError, AutogradError, DtypeError, ShapeError
from ..ops.creation.creation import full, ones_like
from ..tensor.grad_mode import GradMode, grad_enabled
from ..tensor.tensor import Leaf, Tensor, wrap
from .pytree import have_equal_structure, leaves, tree_map


class ReverseRun:
    """One run of a function, recorded from its arguments on; ``with`` runs what is inside of it so.

    ``outside`` tells whether what lies outside records: results have the history that they would have there.
    """

    __slots__ = ("_mode", "ends", "outside", "start")

    def __init__(self) -> None:
        self.start, self.outside = next(node_order.order), bool(grad_enabled.get())
        self.ends: dict[int, Any] = {}
        self._mode = GradMode(True)

    def __enter__(self) -> ReverseRun:
        self._mode.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._mode.__exit__(*exception)

    def variable(self, who: str, x: Any) -> Any:
        """Return an argument as one whose history begins here."""
        if not isinstance(x, Tensor):
            raise DtypeError(
                f"{who}: derivatives are taken with respect to tensors, got {type(x).__name__}; argnums says"
                f" which arguments they are."
            )
        if not x.dtype.is_inexact:
            raise DtypeError(
                f"{who}: derivatives are taken with respect to floating-point and complex tensors, this one"
                f" is {x.dtype}; cast it with .to(dtype), or name other argnums."
            )
        here = levels()
        if here:  # so that what differs between examples, or has a tangent, is told from the outside
            x = lift_to(x, here[-1].device)
        out = x._alias()
        if x._node is None or not self.outside:
            out._node = Leaf()
        else:
            engine.record(saved_values.alias_plan(x._vtype.materialized), (x,), out)
        self.ends[id(out._node)] = out._node
        return out

    def reaches_out(self, tensors: Sequence[Tensor | None]) -> bool:
        """Return whether tensors have a history that begins before this run."""
        if not self.outside:
            return False
        stack = [x._node for x in tensors if x is not None]
        seen = {*self.ends}
        while stack:
            node = stack.pop()
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, Leaf) or node.order < self.start:
                return True
            stack.extend(node.parents)
        if any(not isinstance(end, Leaf) and self._led_to(end, tensors) for end in self.ends.values()):
            return True
        return any(x is not None and x._vtype.device.type in value_modes and _hidden(x) for x in tensors)

    def _led_to(self, end: Any, tensors: Sequence[Tensor | None]) -> bool:
        nodes = [x._node for x in tensors if x is not None and x._node is not None]
        return any(node is end for node in node_order.reached_from(nodes, {*self.ends}))

    def result(self, tree: Any) -> Any:
        """Return results as they are outside: with no more than the history from before."""
        return tree_map(self._result, tree)

    def _result(self, x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if not self.outside:
            return without_history(x)
        return x._alias() if self.reaches_out([x]) else wrap(x._value, x._vtype)

    def gradients(
        self, outs: Sequence[Tensor], seeds: Sequence[Tensor | None], variables: Sequence[Any], retain: bool
    ) -> list[Tensor]:
        """Return the gradients of ``outs``, which start from ``seeds``, at ``variables``: nodes, tensors."""
        grads: dict[Any, Tensor] = {}
        pairs = [(x, g) for x, g in zip(outs, seeds, strict=True) if x._node is not None and g is not None]
        record = grad_enabled.get() and (
            self.reaches_out([x for x, _ in pairs]) or any(has_history(g) for _, g in pairs)
        )
        if pairs:
            grads = engine.walk(
                [x for x, _ in pairs],
                [g for _, g in pairs],
                retain or None,
                record,
                {*self.ends},
                within=True,
            )
        results = []
        for node, like in variables:
            g = grads.get(node)
            results.append(
                full(like.shape, 0, dtype=like.dtype, device=like.device) if g is None
                else g._alias() if record else wrap(g._value, g._vtype)
            )  # fmt: skip
        return results


def _hidden(x: Tensor) -> bool:
    mode = value_modes[x._vtype.device.type]
    return any(map(has_history, mode.parts(x._value)))


def without_history(x: Tensor) -> Tensor:
    """Return a tensor without a history, tangents kept; so are the tensors that it stands for."""
    mode = value_modes.get(x._vtype.device.type)
    return wrap(x._value if mode is None else mode.map_parts(x._value, without_history), x._vtype)


def chosen(who: str, args: Sequence[Any], argnums: Any) -> tuple[int, ...]:
    """Return the places of the arguments that are meant. Raises where there is none of that number."""
    several = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    if not several:
        raise ArgumentError(f"{who}: argnums names no argument; it is an int or a tuple of them.")
    places = []
    for place in several:
        if isinstance(place, bool) or not hasattr(type(place), "__index__"):
            raise ArgumentError(f"{who}: argnums is an int or a tuple of them, got {argnums!r}.")
        k = place.__index__()
        if not -len(args) <= k < len(args):
            raise ArgumentError(
                f"{who}: argnums has {k}, but the function got {len(args)} positional argument(s);"
                f" derivatives are taken with respect to positional ones."
            )
        places.append(k % len(args))
    if len(set(places)) != len(places):
        raise ArgumentError(f"{who}: argnums {argnums!r} names an argument twice.")
    return tuple(places)


def check_function(who: str, function: Any) -> None:
    """Raise for what cannot be called."""
    if not callable(function):
        raise ArgumentError(f"{who}: a function is needed, got {type(function).__name__}.")


def with_aux(who: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return what a function returned and what else, which ``has_aux`` says that there is."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(
            f"{who}: with has_aux=True the function returns (output, aux), got {type(result).__name__}."
        )
    return result


def unflatten(tree: Any, items: Sequence[Any]) -> Any:
    """Return ``tree`` with these in the places of its leaves, in order."""
    following: Iterator[Any] = iter(items)
    return tree_map(lambda _: next(following), tree)


def tensor_leaves(who: str, tree: Any) -> list[Tensor]:
    """Return the leaves, which must be tensors."""
    tensors = leaves(tree)
    for x in tensors:
        if not isinstance(x, Tensor):
            raise DtypeError(f"{who}: the function must return tensors, got {type(x).__name__}.")
    return tensors


def grad(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the function that computes the gradient of ``function``, whose result is a single number.

    ``argnums`` says with respect to which positional arguments: tensors, or tuples, lists, dicts of tensors;
    the gradient is as they are, a tuple for a tuple of ``argnums``. With ``has_aux`` the
    function returns ``(output, aux)``, and the result is ``(gradient, aux)``. Transforms nest. Writes to an
    argument inside of the function are seen inside only; under ``no_grad`` outside the result has no history.

    Raises ``ShapeError`` where the function returns no single number, and ``DtypeError`` for arguments that
    have no derivative.

    >>> import tensorbus as tb
    >>> tb.func.grad(tb.func.grad(lambda x: x**3))(tb.asarray(2.0)).item()
    12.0
    """
    check_function("grad", function)
    both = _value_and_gradient("grad", function, argnums, has_aux)

    @wraps(function)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        grads, _, aux = both(args, kwargs)
        return (grads, aux) if has_aux else grads

    return gradient


def grad_and_value(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the function that computes ``(gradient, value)`` of ``function``: see ``grad``.

    With ``has_aux`` it is ``(gradient, (value, aux))``.

    >>> import tensorbus as tb
    >>> [x.item() for x in tb.func.grad_and_value(lambda x: x * x)(tb.asarray(3.0))]
    [6.0, 9.0]
    """
    check_function("grad_and_value", function)
    both = _value_and_gradient("grad_and_value", function, argnums, has_aux)

    @wraps(function)
    def gradient_and_value(*args: Any, **kwargs: Any) -> Any:
        grads, value, aux = both(args, kwargs)
        return grads, ((value, aux) if has_aux else value)

    return gradient_and_value


def _value_and_gradient(
    who: str, function: Callable[..., Any], argnums: Any, has_aux: bool
) -> Callable[[Sequence[Any], dict[str, Any]], tuple[Any, Any, Any]]:
    def run(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
        places = chosen(who, args, argnums)
        reverse = ReverseRun()
        own, chosen_args = [*args], [args[k] for k in places]
        with reverse:
            for k in places:
                own[k] = tree_map(lambda x: reverse.variable(who, x), args[k])
            variables = [(x._node, x) for x in leaves([own[k] for k in places])]
            variables = [(node, wrap(x._value, x._vtype)) for node, x in variables]
            output, aux = with_aux(who, function(*own, **kwargs), has_aux)
        _check_scalar(who, output)
        grads = reverse.gradients([output], [ones_like(output).detach()], variables, retain=False)
        tree = unflatten(chosen_args, grads)
        returned = tuple(tree) if isinstance(argnums, (tuple, list)) else tree[0]
        return returned, reverse.result(output), reverse.result(aux)

    return run


def _check_scalar(who: str, output: Any) -> None:
    if not isinstance(output, Tensor):
        raise DtypeError(
            f"{who}: the function must return a tensor, got {type(output).__name__}; for more than that there"
            f" is has_aux=True."
        )
    if output.shape != ():
        raise ShapeError(
            f"{who}: the function must return a single number, of shape (), got {output.shape}; sum it, or"
            f" use vjp or jacrev."
        )
    if not output.dtype.is_floating:
        raise DtypeError(
            f"{who}: the function must return a real floating-point number, got {output.dtype}; take its"
            f" .real or abs(), or use vjp."
        )


def vjp(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return ``(output, vjp_fn)``: the function's result, and what takes its gradients to those of primals.

    ``vjp_fn(cotangents)``, in the structure of the output, returns a tuple with the product of the cotangents
    with the Jacobian for each primal; it may be called again, and inside of ``vmap``. With ``has_aux`` the
    function returns ``(output, aux)`` and ``vjp`` a third item, ``aux``.

    >>> import tensorbus as tb
    >>> output, vjp_fn = tb.func.vjp(lambda x: x * x, tb.asarray([1.0, 2.0]))
    >>> vjp_fn(tb.asarray([1.0, 10.0]))[0].tolist()
    [2.0, 40.0]
    """
    check_function("vjp", function)
    reverse = ReverseRun()
    with reverse:
        own = tree_map(lambda x: reverse.variable("vjp", x), list(primals))
        variables = [(x._node, wrap(x._value, x._vtype)) for x in leaves(own)]
        output, aux = with_aux("vjp", function(*own), has_aux)
    outs = [x._alias() for x in tensor_leaves("vjp", output)]
    result = reverse.result(output)

    def vjp_fn(cotangents: Any) -> tuple[Any, ...]:
        seeds = _matching("vjp_fn: cotangents", cotangents, output)
        grads = reverse.gradients(outs, seeds, variables, retain=True)
        return tuple(unflatten(list(primals), grads))

    return (result, vjp_fn, reverse.result(aux)) if has_aux else (result, vjp_fn)


def _matching(what: str, tree: Any, like: Any) -> list[Any]:
    """Return the leaves of a tree of tensors in the structure of another, in the order of that one."""
    if isinstance(tree, (tuple, list)) and len(tree) == 1 and isinstance(like, Tensor):
        tree = tree[0]
    if not have_equal_structure(tree, like):
        raise ArgumentError(
            f"{what} must have the structure {structure(like)}, which is that of the other side; got"
            f" {structure(tree)}."
        )
    in_order: list[Any] = []
    tree_map(lambda _, leaf: in_order.append(leaf), like, tree)
    return in_order


def structure(tree: Any, levels: int = 20) -> Any:
    """Return how a tree is nested, with ``"*"`` for each leaf; ``"..."`` is what lies deeper."""
    if not isinstance(tree, (dict, tuple, list)):
        return "*"
    if not levels:
        return "..."
    if isinstance(tree, dict):
        return {key: structure(x, levels - 1) for key, x in tree.items()}
    return [structure(x, levels - 1) for x in tree]


def jvp(
    function: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False
) -> tuple[Any, ...]:
    """Return ``(output, tangent)``: the function's result, and its derivative along ``tangents``.

    ``primals`` and ``tangents`` are tuples of arguments, each a tensor or a tree of tensors. The tangent
    costs about what the function does, whatever it has of arguments; nothing is kept for it. With ``strict``
    an output that does not depend on the primals is an error rather than zeros. With ``has_aux`` the
    function returns ``(output, aux)`` and ``jvp`` a third item, ``aux``. Writes to an argument inside of the
    function are seen inside only.

    Raises ``AutogradError`` for a tangent of another shape or dtype than its primal, and where an op has no
    derivative.

    >>> import tensorbus as tb
    >>> x, v = tb.asarray([1.0, 2.0]), tb.asarray([1.0, 0.0])
    >>> [y.tolist() for y in tb.func.jvp(lambda x: x * x, (x,), (v,))]
    [[1.0, 4.0], [2.0, 0.0]]
    """
    check_function("jvp", function)
    for name, x in (("primals", primals), ("tangents", tangents)):
        if not isinstance(x, (tuple, list)):
            raise ArgumentError(f"jvp: {name} must be a tuple of arguments, got {type(x).__name__}.")
    directions = _matching("jvp: tangents", list(tangents), list(primals))
    points = leaves(list(primals))
    for x, t in zip(points, directions, strict=True):
        check_tangent("jvp", x, t)
    level = ForwardLevel()
    with level:
        duals = [level.dual(x, t) for x, t in zip(points, directions, strict=True)]
        output, aux = with_aux("jvp", function(*unflatten(list(primals), duals)), has_aux)
        parts = [level.parts_of(x) for x in tensor_leaves("jvp", output)]
        aux = tree_map(lambda x: level.parts_of(x)[0] if isinstance(x, Tensor) else x, aux)
    if strict and any(t is None for _, t in parts):
        raise AutogradError("jvp: strict=True, and an output does not depend on the primals.")
    with_zeros = [full(x.shape, 0, dtype=x.dtype, device=x.device) if t is None else t for x, t in parts]
    result = unflatten(output, [x for x, _ in parts]), unflatten(output, with_zeros)
    return (*result, aux) if has_aux else result


def linearize(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return ``(output, jvp_fn)``: the function's result, and its derivative there, a linear function.

    The function runs once; ``jvp_fn(*tangents)`` runs the recorded derivative, transposed, however often it
    is called. Inside of the function no branch may depend on a tangent.

    >>> import tensorbus as tb
    >>> output, jvp_fn = tb.func.linearize(tb.sin, tb.asarray([0.0]))
    >>> jvp_fn(tb.asarray([2.0])).tolist()
    [2.0]
    """
    check_function("linearize", function)
    output, vjp_fn = vjp(function, *primals)
    outs = tensor_leaves("linearize", output)
    points = leaves(list(primals))

    def pull(seeds: list[Tensor]) -> list[Tensor | None]:
        return leaves(list(vjp_fn(unflatten(output, seeds))))

    def jvp_fn(*tangents: Any) -> Any:
        directions = _matching("jvp_fn: tangents", list(tangents), list(primals))
        for x, t in zip(points, directions, strict=True):
            check_tangent("jvp_fn", x, t)
        record = grad_enabled.get() and any(map(has_history, (*points, *outs, *directions)))
        moved = transpose(pull, outs, directions, record)
        return unflatten(output, [
            full(x.shape, 0, dtype=x.dtype, device=x.device) if t is None else t
            for x, t in zip(outs, moved, strict=True)
        ])  # fmt: skip

    return output, jvp_fn

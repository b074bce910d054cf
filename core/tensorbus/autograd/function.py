"""``Function``: a computation whose derivative is written in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..dispatch.levels import Level, levels
from ..dispatch.modes import depth, has_history, value_modes
from ..errors import AutogradError
from ..ops.creation.creation import full
from ..tensor.grad_mode import GradMode, grad_enabled
from ..tensor.tensor import Tensor, wrap, wrap_settled
from ..tracing.active_modes import active_modes
from . import engine, node_order, saved_values
from .block_node import attach, block_plan
from .forward_rules import transpose
from .gradient_shape import checked_gradient, checked_gradients

_CUSTOM: Final = -1
"""The key among a node's hooks by which a capture sees that Python is needed for its derivative."""


class Context:
    """The state that ``forward`` leaves for ``backward``: tensors by ``save_for_backward``, else attributes.

    ``needs_input_grad`` says for each argument of ``apply`` whether its gradient is asked for.
    """

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self._explicit: tuple[Tensor | None, ...] = ()
        self._forward: tuple[Tensor | None, ...] = ()
        self._saved: tuple[Any, ...] | None = ()
        self._unpacked: tuple[Tensor | None, ...] | None = None
        self._overwritten = ""
        """The error of a saved tensor that was written over since, while ``backward`` runs."""
        self._constant: set[int] = set()
        self._fills = True
        self._results: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep arguments, results or other tensors until ``backward`` has run; nothing may write to them."""
        for x in tensors:
            if x is not None and not isinstance(x, Tensor):
                raise AutogradError(
                    f"save_for_backward keeps tensors and None, got {type(x).__name__}; set an attribute of"
                    " ctx."
                )
        self._explicit = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for ``jvp``, where those are others than ``backward`` needs."""
        self._forward = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors that were saved; where derivatives are recorded, with their histories.

        Raises ``AutogradError`` in ``backward`` where one was changed in place since.
        """
        if self._overwritten:
            raise AutogradError(self._overwritten)
        return self._explicit if self._unpacked is None else self._unpacked

    def mark_non_differentiable(self, *results: Tensor) -> None:
        """Say that these results have no gradient."""
        self._constant.update(map(id, results))

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether ``backward`` gets zeros for results that nothing depends on (as it does), or None."""
        self._fills = value

    def _note_results(self, results: Sequence[Any]) -> list[int]:
        """Note what was returned; return the places of results that have a gradient."""
        carried = [
            k for k, x in enumerate(results)
            if isinstance(x, Tensor) and x.dtype.is_inexact and id(x) not in self._constant
        ]  # fmt: skip
        places = {k: n for n, k in enumerate(carried)}
        self._results = tuple([
            places[k] if k in places
            else (x._vtype.materialized, x.shape) if isinstance(x, Tensor) else None
            for k, x in enumerate(results)
        ])  # fmt: skip
        return carried

    def _grads(self, seeds: Sequence[Any]) -> list[Any]:
        """Return what ``backward`` gets, one for each result, of the gradients of those that have one."""
        grads: list[Any] = []
        for result in self._results:
            if type(result) is int:
                grads.append(seeds[result])
            elif result is None or not self._fills:
                grads.append(None)
            else:
                kind, shape = result
                grads.append(full(shape, 0, dtype=kind.dtype, device=kind.device))
        return grads


class _Node(engine.Node):
    """The history of what a function returned."""

    __slots__ = ("context", "function", "kinds")
    context: Context
    function: type[Function]
    kinds: tuple[Any, ...]

    def pull(self, g: Any, create: bool) -> list[Any]:
        """Return what the function's ``backward`` says, in the shapes and dtypes of the arguments."""
        name, ctx, plan = self.function.__name__, self.context, self.plan
        if self.values is engine.FREED:
            raise AutogradError(
                f"{name}: the history was let go by an earlier backward(); pass retain_graph=True to that"
                " one."
            )
        seeds = list(g) if plan.op.results else [g]
        if ctx._fills:
            seeds = [
                full(shape, 0, dtype=kind.dtype, device=kind.device) if x is None else x
                for x, kind, shape in zip(seeds, plan.outs, plan.shapes, strict=True)
            ]
        ctx._unpacked = tuple([self._saved(x, create) for x in self.values])
        ctx._overwritten = self._overwritten() if self.order <= saved_values.last_write[0] else ""
        try:
            backs = self.function.backward(ctx, *ctx._grads(seeds))
        finally:
            ctx._unpacked, ctx._overwritten = None, ""
        grads = list(backs) if isinstance(backs, (tuple, list)) else [backs]
        count = len(self.parents)
        if len(grads) < count or any(x is not None for x in grads[count:]):
            raise AutogradError(
                f"{name}.backward returned {len(grads)} gradient(s); one for each of the {count} argument(s)"
                " of apply is needed, None where there is none."
            )
        who = f"{name}.backward"
        pairs = zip(self.parents, grads, self.shapes, self.kinds, strict=False)
        return [
            None if parent is None or x is None else checked_gradient(x, shape, kind, who, place)
            for place, (parent, x, shape, kind) in enumerate(pairs)
        ]

    def _saved(self, x: Any, create: bool) -> Tensor | None:
        if x is None:
            return None
        value, kind, node, _ = x
        if type(node) is int:  # a result: it must not keep its own history alive
            node = engine.part_of(self, node) if self.plan.op.results else self
        return wrap_settled(value, kind, node if create else None)

    def _overwritten(self) -> str:
        """Return the error of the first saved tensor that was written over since; "" where none was."""
        for place, x in enumerate(self.values):
            if x is None:
                continue
            value, kind, history, saved = x
            if type(history) is int:
                write = saved_values.last_write_to_result(self, history)
            elif history is not None:
                write = saved_values.last_write_to(history)
            else:
                write = saved_values.last_write_to_tensor(saved)
            if write is not None and write[0] >= self.order:
                what = f"saved tensor {place}, {saved_values.described(kind, value.shape)}"
                return saved_values.message(f"{self.function.__name__}.backward", what, write[1])
        return ""

    def release(self) -> None:
        """Let go what was saved."""
        super().release()
        self.context._explicit = self.context._forward = ()


class Function:
    """A computation with a derivative of its own: write ``forward`` and ``backward``, call ``apply``.

    ``forward(ctx, *args)`` computes, unrecorded; ``backward(ctx, *grads)`` gets a gradient for each result,
    zeros or None for what has none, and returns those of the arguments. In place of the former there may be
    ``forward(*args)`` and ``setup_context(ctx, inputs, output)``. All transforms take it, nested ones too;
    ``jvp`` and ``vmap`` may be written where there is better than what they make of ``backward`` and
    ``forward``. Written in ops, ``backward`` is differentiated again; nested transforms ask that ``forward``
    saves arguments and results only, or that there is a ``setup_context``.
    A compiled function that calls ``backward()`` too takes all of it in; one that returns such a result is
    run by Python.

    >>> import tensorbus as tb
    >>> class Cube(tb.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return g * 3 * x * x
    >>> x = tb.asarray([2.0]).requires_grad_()
    >>> Cube.apply(x).backward()
    >>> x.grad.tolist()
    [12.0]
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Return a tensor, or a tuple that holds tensors. Subclasses supply it."""
        raise NotImplementedError("this Function has no forward(ctx, ...); write what it computes.")

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Any) -> None:
        """Save what ``backward`` needs. Subclasses whose ``forward`` takes no ``ctx`` supply it."""
        raise NotImplementedError("this Function has no setup_context(ctx, inputs, output); write it.")

    @staticmethod
    def backward(ctx: Context, *grads: Any) -> Any:
        """Return a gradient, or None, for each argument of ``apply``. Subclasses supply it."""
        raise NotImplementedError("this Function has no backward(ctx, ...); write its derivative.")

    @staticmethod
    def jvp(ctx: Context, *tangents: Any) -> Any:
        """Return the tangents of the results, given those of the arguments of ``apply``: forward mode.

        ``ctx.saved_tensors`` are those of ``save_for_forward``, else of ``save_for_backward``. Without it
        ``backward``, which is linear in the gradients, is transposed.
        """
        raise NotImplementedError("this Function has no jvp(ctx, ...).")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Return ``(output, out_dims)`` of ``info.batch_size`` examples at once: the batching rule.

        ``in_dims`` has the axis of examples, 0, or None for each argument. Without it ``forward`` and
        ``backward`` run inside of ``vmap``.
        """
        raise NotImplementedError("this Function has no vmap(info, in_dims, ...).")

    generate_vmap_rule: bool = False
    """Whether there is no ``vmap``: then ``forward`` and ``backward`` run inside of it, said or not."""

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run ``forward``, and record ``backward`` as its derivative."""
        return call(cls, args)[0]


def call(cls: type[Function], args: Sequence[Any], moved: Sequence[bool] = ()) -> tuple[Any, Context, Any]:
    """Return what a function returns, its context, and what it saved: arguments, results, other tensors.

    ``moved`` are the arguments whose derivative is asked for although they have no history.
    """
    on = grad_enabled.get()
    nodes = tuple([x._node if on and isinstance(x, Tensor) else None for x in args])
    needs = [node is not None for node in nodes]
    ctx = Context(tuple([a or b for a, b in zip(needs, moved or needs, strict=True)]))
    level = _level_of(args)
    if level is None:
        output = run_forward(cls, ctx, args)
    else:
        output = level.call_function(cls, ctx, args, any(ctx.needs_input_grad))
    several = isinstance(output, (tuple, list))
    results = list(output) if several else [output]
    outputs = [wrap(x._value, x._vtype) if isinstance(x, Tensor) else x for x in map(_alias_of, results)]
    own = {id(x): y for x, y in zip(results, outputs, strict=True)}
    argument_ids = {id(x) for x in args}
    saved = [x if id(x) in argument_ids else own.get(id(x), x) for x in ctx._forward or ctx._explicit]
    carried = ctx._note_results(results)
    if not any(needs):
        return output, ctx, list(ctx._forward or ctx._explicit)
    if carried:
        _attach(cls, ctx, args, nodes, results, [outputs[k] for k in carried], carried)
    return tuple(outputs) if several else outputs[0], ctx, saved


def _attach(
    cls: type[Function], ctx: Context, args: Sequence[Any], nodes: tuple[Any, ...], results: Sequence[Any],
    outs: Sequence[Tensor], carried: Sequence[int],
) -> None:  # fmt: skip
    node = _Node()
    kinds = [x._vtype.materialized for x in outs]
    node.plan = block_plan(cls.__name__, "custom", kinds, [x.shape for x in outs])
    node.order, node.parents, node.function, node.context = next(node_order.order), nodes, cls, ctx
    node.shapes = tuple([x.shape if isinstance(x, Tensor) else () for x in args])
    node.kinds = tuple([x._vtype.materialized if isinstance(x, Tensor) else None for x in args])
    node.out, node.hooks = None, {_CUSTOM: _as_it_is}
    place = {id(results[k]): n for n, k in enumerate(carried)}
    argument_ids = {id(x) for x in args}
    histories = [
        None if x is None else x._node if id(x) in argument_ids else place.get(id(x)) for x in ctx._explicit
    ]
    node.values = tuple(
        [
            None if x is None else (x._value, x._vtype.materialized, history, x if history is None else None)
            for x, history in zip(ctx._explicit, histories, strict=True)
        ]
    )
    ctx._explicit = ctx._forward = ()
    attach(node, outs)


def _as_it_is(g: Any) -> None:
    """Change no gradient."""


def _alias_of(x: Any) -> Any:
    return x._alias() if isinstance(x, Tensor) else x


def run_forward(cls: type[Function], ctx: Context, args: Sequence[Any]) -> Any:
    """Run ``forward``, unrecorded, and fill the context."""
    with GradMode(False):
        if cls.setup_context is Function.setup_context:
            return cls.forward(ctx, *args)
        output = cls.forward(*args)
        cls.setup_context(ctx, tuple(args), output)
        return output


def fill_context(
    cls: type[Function], ctx: Context, args: Sequence[Any], output: Any, inside: Context, saved: Sequence[Any]
) -> None:
    """Fill the context of a call at a level from that of the call inside, ``inside``, which ran instead.

    ``saved`` says what that one saved: the place of an argument, or of a result as ``~place``, else a tensor.
    Raises ``AutogradError`` where the latter's derivatives are not known.
    """
    if cls.setup_context is not Function.setup_context:
        cls.setup_context(ctx, tuple(args), output)
        return
    results = list(output) if isinstance(output, (tuple, list)) else [output]
    ctx.__dict__.update(
        {k: v for k, v in vars(inside).items() if not k.startswith("_") and k != "needs_input_grad"}
    )
    ctx._fills = inside._fills
    saved_tensors: list[Any] = []
    for place in saved:
        if isinstance(place, int):
            saved_tensors.append(args[place] if place >= 0 else results[~place])
        elif place is None:
            saved_tensors.append(None)
        else:
            raise AutogradError(
                f"{cls.__name__}: forward saved what is neither an argument nor a result, and transforms are"
                f" nested around it; write setup_context(ctx, inputs, output), and return what it saves."
            )
    ctx._explicit = tuple(saved_tensors)


def places_of(saved: Sequence[Any], args: Sequence[Any], output: Any) -> list[Any]:
    """Return the place of each saved tensor among arguments, or among results as ``~place``, else itself."""
    results = list(output) if isinstance(output, (tuple, list)) else [output]
    known = {id(x): ~k for k, x in enumerate(results)} | {id(x): k for k, x in enumerate(args)}
    return [None if x is None else known.get(id(x), x) for x in saved]


def tangents_of_function(
    cls: type[Function], ctx: Context, args: Sequence[Any], output: Any, saved: Sequence[Any],
    tangents: Sequence[Tensor | None],
) -> list[Tensor | None]:  # fmt: skip
    """Return the tangents of the results, by ``jvp``, or by ``backward`` transposed."""
    results = list(output) if isinstance(output, (tuple, list)) else [output]
    outs = [results[k] for k in ctx._note_results(results)]
    ctx._unpacked = tuple(saved)
    try:
        if cls.jvp is not Function.jvp:
            directions = [
                full(x.shape, 0, dtype=x.dtype, device=x.device)
                if t is None and ctx._fills and isinstance(x, Tensor) and x.dtype.is_inexact
                else t
                for x, t in zip(args, tangents, strict=True)
            ]
            returned = cls.jvp(ctx, *directions)
            several = list(returned) if isinstance(returned, (tuple, list)) else [returned]
            if len(several) != len(results):
                raise AutogradError(
                    f"{cls.__name__}.jvp returned {len(several)} tangent(s); one for each of the"
                    f" {len(results)} result(s) is needed, None where there is none."
                )
            return checked_gradients(several, results, f"{cls.__name__}.jvp")

        def pull(seeds: list[Tensor]) -> list[Tensor | None]:
            backs = cls.backward(ctx, *ctx._grads(seeds))
            grads = list(backs) if isinstance(backs, (tuple, list)) else [backs]
            return checked_gradients(grads, args, f"{cls.__name__}.backward", tangents)

        record = grad_enabled.get() and any(
            has_history(x) for x in (*args, *tangents) if isinstance(x, Tensor)
        )
        transposed = iter(transpose(pull, outs, tangents, record))
        ids = {id(x) for x in outs}
        return [next(transposed) if id(x) in ids else None for x in results]
    finally:
        ctx._unpacked = None


def _level_of(args: Sequence[Any]) -> Level | None:
    """Return the innermost level that one of the arguments is of."""
    if not active_modes:
        return None
    here = levels()
    indices = [
        depth(x._vtype.device) for x in args if isinstance(x, Tensor) and x._vtype.device.type in value_modes
    ]
    index = max(indices, default=-1)
    return here[index] if 0 <= index < len(here) else None

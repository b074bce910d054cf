"""``Function``: a computation whose derivative is written in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..dispatch.modes import inner_device
from ..dispatch.plan import Plan
from ..errors import AutogradError
from ..ops.creation.creation import full
from ..ops.definition import Op
from ..tensor.grad_mode import GradMode, grad_enabled
from ..tensor.tensor import Tensor, wrap, wrap_settled
from . import engine
from .gradient_shape import checked_gradient

_CUSTOM: Final = -1
"""The key among a node's hooks by which a capture sees that Python is needed for its derivative."""


class Context:
    """What ``forward`` leaves for ``backward``: tensors by ``save_for_backward``, all else as attributes.

    ``needs_input_grad`` says for each argument of ``apply`` whether its gradient is asked for.
    """

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self._given: tuple[Tensor | None, ...] = ()
        self._saved: tuple[Any, ...] | None = ()
        self._unpacked: tuple[Tensor | None, ...] | None = None
        self._constant: set[int] = set()
        self._fills = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep arguments, results or other tensors, as they are now, until ``backward`` has run."""
        for x in tensors:
            if x is not None and not isinstance(x, Tensor):
                raise AutogradError(
                    f"save_for_backward keeps tensors and None, got {type(x).__name__}; set an attribute of"
                    " ctx."
                )
        self._given = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors that were saved; where derivatives are recorded, with their histories."""
        return self._given if self._unpacked is None else self._unpacked

    def mark_non_differentiable(self, *results: Tensor) -> None:
        """Say that these results have no gradient."""
        self._constant.update(map(id, results))

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether ``backward`` gets zeros for results that nothing depends on (as it does), or None."""
        self._fills = value


class _Node(engine.Node):
    """The history of what a function returned."""

    __slots__ = ("context", "function", "kinds")
    context: Context
    function: type[Function]
    kinds: tuple[Any, ...]

    def pull(self, g: Any, create: bool) -> list[Any]:
        """Return what the function's ``backward`` says, in the shapes and dtypes of the arguments."""
        name, ctx, plan = self.function.__name__, self.context, self.plan
        if self.values is engine._FREED:
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
        try:
            backs = self.function.backward(ctx, *seeds)
        finally:
            ctx._unpacked = None
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
        value, kind, node = x
        if type(node) is int:  # a result: it must not keep its own history alive
            node = engine._part(self, node) if self.plan.op.results else self
        return wrap_settled(value, kind, node if create else None)

    def release(self) -> None:
        """Let go what was saved."""
        super().release()
        self.context._given = ()


class Function:
    """A computation with a derivative of its own: write ``forward`` and ``backward``, call ``apply``.

    ``forward(ctx, *args)`` computes, unrecorded; ``backward(ctx, *grads)`` gets the gradients of the results
    and returns those of the arguments. In place of the former there may be ``forward(*args)`` and
    ``setup_context(ctx, inputs, output)``. Written in ops, ``backward`` is differentiated again.
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

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run ``forward``, and record ``backward`` as its derivative.

        Raises ``AutogradError`` inside of ``vmap`` for tensors that require a gradient outside of it.
        """
        on = grad_enabled.get()
        nodes = tuple([x._node if on and isinstance(x, Tensor) else None for x in args])
        ctx = Context(tuple([node is not None for node in nodes]))
        if on and any(isinstance(x, Tensor) and _hides_history(x) for x in args):
            raise AutogradError(
                f"{cls.__name__}: inside of vmap its backward() is not known to gradients that are taken"
                " outside; write it in ops, or take the gradient inside too."
            )
        with GradMode(False):
            if cls.setup_context is Function.setup_context:
                output = cls.forward(ctx, *args)
            else:
                output = cls.forward(*args)
                cls.setup_context(ctx, args, output)
        if not any(ctx.needs_input_grad):
            return output
        several = isinstance(output, (tuple, list))
        results = list(output) if several else [output]
        outputs = [x._alias() if isinstance(x, Tensor) else x for x in results]
        carried = [
            k for k, x in enumerate(results)
            if isinstance(x, Tensor) and x.dtype.is_inexact and id(x) not in ctx._constant
        ]  # fmt: skip
        for k, x in enumerate(outputs):
            if isinstance(x, Tensor):
                outputs[k] = wrap(x._value, x._vtype)
        if carried:
            _attach(cls, ctx, args, nodes, results, [outputs[k] for k in carried], carried)
        return tuple(outputs) if several else outputs[0]


def _attach(
    cls: type[Function], ctx: Context, args: Sequence[Any], nodes: tuple[Any, ...], results: Sequence[Any],
    outs: Sequence[Tensor], carried: Sequence[int],
) -> None:  # fmt: skip
    node = _Node()
    kinds = tuple([x._vtype.materialized for x in outs])
    op: Any = Op(
        name=cls.__name__, family="custom", operands=(), arguments=lambda: ((), {}), infer=tuple,
        results=tuple([f"result_{k}" for k in range(len(outs))]) if len(outs) > 1 else (), dtypes=(),
    )  # fmt: skip
    node.plan = Plan(
        op=op, operands=(), run=None, out=kinds[0], casts=(), attrs={}, outs=kinds,
        shapes=tuple([x.shape for x in outs]),
    )  # fmt: skip
    node.order, node.parents, node.function, node.context = next(engine._order), nodes, cls, ctx
    node.shapes = tuple([x.shape if isinstance(x, Tensor) else () for x in args])
    node.kinds = tuple([x._vtype.materialized if isinstance(x, Tensor) else None for x in args])
    node.out, node.hooks = None, {_CUSTOM: _as_it_is}
    place = {id(results[k]): n for n, k in enumerate(carried)}
    argument_ids = {id(x) for x in args}
    node.values = tuple(
        [
            None if x is None
            else (x._value, x._vtype.materialized, place.get(id(x)) if id(x) not in argument_ids else x._node)
            for x in ctx._given
        ]
    )  # fmt: skip
    ctx._given = ()
    if len(outs) == 1:
        outs[0]._node = node
        return
    node.parts = [None] * len(outs)
    for k, x in enumerate(outs):
        x._node = engine._part(node, k)


def _as_it_is(g: Any) -> None:
    """Change no gradient."""


def _hides_history(x: Tensor) -> bool:
    """Return whether a tensor inside of ``vmap`` stands for one with a history."""
    inner: Any = x
    while inner_device(inner.device) is not None:
        inner = inner._value.tensor
        if inner._node is not None:
            return True
    return False

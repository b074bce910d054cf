"""``autograd.Function`` inside of ``vmap``: by its own batching rule, or as a function of all examples.

Where nothing outside of the level asks for its derivative, ``forward`` and ``backward`` simply run inside.
Else what runs in the modes below is another ``Function``, whose parts are the user's, run inside of the
level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..autograd import function
from ..autograd.function import Context, Function
from ..devices.device import ValueType
from ..dispatch.levels import below_level
from ..dispatch.modes import has_history, value_modes
from ..errors import ArgumentError, AutogradError, ShapeError
from ..ops.definition import table
from ..ops.movement.movement import broadcast_to, moveaxis
from ..tensor.tensor import Tensor, wrap
from .vectorize import Batched, Vmap


class VmapInfo(NamedTuple):
    """What a batching rule is told of the ``vmap`` that it runs in."""

    batch_size: int
    randomness: str


def call_vectorized(
    level: Vmap, cls: type[Function], ctx: Context, args: Sequence[Any], recorded: bool
) -> Any:
    """Return the output of a ``Function`` of arguments of a level, and fill the context of the call."""
    own_rule = cls.vmap is not Function.vmap
    if own_rule and cls.generate_vmap_rule:
        raise AutogradError(
            f"{cls.__name__}: it has a vmap, and generate_vmap_rule=True, which says that it has none."
        )
    inner, varies = _inner(level, args)
    asked = any(isinstance(x, Tensor) and (has_history(x) or x.device.type in value_modes) for x in inner)
    if not own_rule and not asked:
        return function.run_forward(cls, ctx, args)
    places: list[Any] = []
    inside = Context(ctx.needs_input_grad)
    with below_level(level.device.index):
        if own_rule:
            output = _by_rule(level, cls, inner, varies)
            if recorded and cls.setup_context is Function.setup_context:
                raise AutogradError(
                    f"{cls.__name__}: with a vmap of its own it needs setup_context(ctx, inputs, output) for"
                    f" gradients that are taken inside of vmap."
                )
        else:
            whole = _vectorized(level, cls, varies, inside, places)
            output = function.call(whole, inner)[0]
    results = list(output) if isinstance(output, (tuple, list)) else [output]
    cells = [_cell(level, x, True) if isinstance(x, Tensor) else x for x in results]
    out = tuple(cells) if isinstance(output, (tuple, list)) else cells[0]
    if not own_rule:
        ctx._constant.update(id(cells[k]) for k in inside.__dict__.pop("_constant_places", ()))
    if recorded:
        function.fill_context(cls, ctx, args, out, inside, places)
    return out


def _inner(level: Vmap, args: Sequence[Any]) -> tuple[list[Any], list[bool]]:
    """Return the tensors inside, and whether each differs between examples."""
    inner: list[Any] = []
    varies = []
    for x in args:
        batched = isinstance(x, Tensor) and x.device == level.device
        inner.append(x._value.tensor if batched else x)
        varies.append(batched and x._value.varies)
    return inner, varies


def _cell(level: Vmap, x: Tensor, varies: bool) -> Tensor:
    return wrap(Batched(x, varies), ValueType.of(x.dtype, level.device))


def _spread(level: Vmap, x: Tensor) -> Tensor:
    """Return a result with the examples along axis 0."""
    if x.device != level.device:
        x = _cell(level, x, False)
    value: Batched = x._value
    return value.tensor if value.varies else broadcast_to(value.tensor, (level.count, *value.shape))


def _by_rule(level: Vmap, cls: type[Function], inner: Sequence[Any], varies: Sequence[bool]) -> Any:
    name, size = cls.__name__, level.count
    in_dims = tuple([0 if v else None for v in varies])
    answer: Any = cls.vmap(VmapInfo(size, level.randomness), in_dims, *inner)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise ArgumentError(f"{name}.vmap returns (output, out_dims), got {type(answer).__name__}.")
    output, out_dims = answer
    results = list(output) if isinstance(output, (tuple, list)) else [output]
    dims = list(out_dims) if isinstance(out_dims, (tuple, list)) else [out_dims] * len(results)
    if len(dims) != len(results):
        raise ArgumentError(f"{name}.vmap returned {len(results)} outputs and {len(dims)} out_dims.")
    moved = []
    for x, dim in zip(results, dims, strict=True):
        if isinstance(x, Tensor):
            x = broadcast_to(x, (size, *x.shape)) if dim is None else moveaxis(x, dim, 0) if dim else x
            if not x.shape or x.shape[0] != size:
                raise ShapeError(f"{name}.vmap returned {x.shape} with axis {dim} for {size} examples.")
        moved.append(x)
    return tuple(moved) if isinstance(output, (tuple, list)) else moved[0]


def _vectorized(
    level: Vmap, cls: type[Function], varies: Sequence[bool], inside: Context, places: list[Any]
) -> type[Function]:
    """Return the function of all examples: the parts of ``cls``, each run inside of the level.

    ``places`` gets what ``forward`` saved, as ``function.places_of`` tells it.
    """
    flags: list[bool] = []

    def within(run: Callable[..., Any]) -> Any:
        assert level.inner is not None
        with Vmap(level.inner, level.count, level.randomness):
            return run()

    def unpack(ctx: Context) -> None:
        saved = ctx.saved_tensors
        inside._unpacked = tuple(
            [None if x is None else _cell(level, x, v) for x, v in zip(saved, flags, strict=True)]
        )

    class Vectorized(Function):
        @staticmethod
        def forward(ctx: Context, *inner: Any) -> Any:
            cells = [
                _cell(level, x, v) if isinstance(x, Tensor) else x for x, v in zip(inner, varies, strict=True)
            ]
            inside.needs_input_grad = tuple(
                [a or b for a, b in zip(inside.needs_input_grad, ctx.needs_input_grad, strict=True)]
            )
            output = within(lambda: function.run_forward(cls, inside, cells))
            results = list(output) if isinstance(output, (tuple, list)) else [output]
            whole = [within(lambda x=x: _spread(level, x)) if isinstance(x, Tensor) else x for x in results]
            places[:] = function.places_of(inside._forward or inside._given, cells, output)
            saved: list[Any] = []
            for place in places:
                if not isinstance(place, int):
                    x, varying = (
                        (place, False)
                        if place is None or place.device != level.device
                        else (place._value.tensor, place._value.varies)
                    )
                else:
                    x, varying = (inner[place], varies[place]) if place >= 0 else (whole[~place], True)
                saved.append(x)
                flags.append(varying)
            ctx.save_for_backward(*saved)
            ctx.set_materialize_grads(inside._fills)
            constant = [k for k, x in enumerate(results) if id(x) in inside._constant]
            inside.__dict__["_constant_places"] = constant
            ctx.mark_non_differentiable(*[whole[k] for k in constant])
            return tuple(whole) if isinstance(output, (tuple, list)) else whole[0]

        @staticmethod
        def backward(ctx: Context, *grads: Any) -> Any:
            unpack(ctx)
            try:

                def run() -> list[Any]:
                    backs = cls.backward(inside, *[g if g is None else _cell(level, g, True) for g in grads])
                    several = list(backs) if isinstance(backs, (tuple, list)) else [backs]
                    return [g if g is None else _spread(level, g) for g in several]

                backs = within(run)
            finally:
                inside._unpacked = None
            return tuple([
                g if g is None or v else table["sum"](g, axis=0) for g, v in zip(backs, varies, strict=False)
            ])  # fmt: skip

    def push(ctx: Context, *tangents: Any) -> Any:
        unpack(ctx)
        try:

            def run() -> Any:
                pairs = zip(tangents, varies, strict=True)
                own = [_cell(level, t, v) if isinstance(t, Tensor) else t for t, v in pairs]
                moved = cls.jvp(inside, *own)
                several = list(moved) if isinstance(moved, (tuple, list)) else [moved]
                return tuple([t if t is None else _spread(level, t) for t in several])

            return within(run)
        finally:
            inside._unpacked = None

    if cls.jvp is not Function.jvp:
        Vectorized.jvp = staticmethod(push)  # type: ignore[method-assign]
    Vectorized.__name__ = cls.__name__
    return Vectorized

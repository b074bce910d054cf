"""``autograd.Function`` inside of ``vmap``: by its own batching rule, or as a function of all examples.

Where nothing outside of the level asks for its derivative, ``forward`` and ``backward`` simply run inside.
Else what runs in the modes below is another ``Function``, whose parts are the user's, run inside of the
level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


class FunctionVmapInfo(NamedTuple):
    """The ``vmap`` that a batching rule runs in."""

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
            whole = _vectorized(_Examples(level, cls, varies, inside, places))
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
    answer: Any = cls.vmap(FunctionVmapInfo(size, level.randomness), in_dims, *inner)
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


class _Examples:
    """A call of ``cls`` for all examples of a level: the parts of it, each run inside of the level.

    ``inside`` is the context that they see, ``varies`` says which arguments differ between examples, and
    ``places`` gets what ``forward`` saved, as ``function.places_of`` tells it.
    """

    __slots__ = ("cls", "inside", "level", "places", "saved_varies", "varies")

    def __init__(
        self, level: Vmap, cls: type[Function], varies: Sequence[bool], inside: Context, places: list[Any]
    ) -> None:
        self.level, self.cls, self.varies, self.inside, self.places = level, cls, varies, inside, places
        self.saved_varies: list[bool] = []

    def within(self, run: Callable[..., Any]) -> Any:
        """Return what ``run`` returns inside of the level."""
        assert self.level.inner is not None
        with Vmap(self.level.inner, self.level.count, self.level.randomness):
            return run()

    def cells(self, tensors: Sequence[Any]) -> list[Any]:
        """Return what the level has for arguments, or for their tangents."""
        pairs = zip(tensors, self.varies, strict=True)
        return [_cell(self.level, x, v) if isinstance(x, Tensor) else x for x, v in pairs]

    def spread(self, x: Any) -> Any:
        """Return a result with the examples along axis 0, where it is a tensor."""
        return _spread(self.level, x) if isinstance(x, Tensor) else x

    def forward(self, ctx: Context, inner: Sequence[Any]) -> Any:
        """Return the outputs for all examples, and save what the parts saved."""
        cells, inside = self.cells(inner), self.inside
        needs = zip(inside.needs_input_grad, ctx.needs_input_grad, strict=True)
        inside.needs_input_grad = tuple([a or b for a, b in needs])
        output = self.within(lambda: function.run_forward(self.cls, inside, cells))
        results = list(output) if isinstance(output, (tuple, list)) else [output]
        whole = [self.within(lambda x=x: self.spread(x)) for x in results]
        self.places[:] = function.places_of(inside._forward or inside._explicit, cells, output)
        self._save(ctx, inner, whole)
        ctx.set_materialize_grads(inside._fills)
        constant = [k for k, x in enumerate(results) if id(x) in inside._constant]
        inside.__dict__["_constant_places"] = constant
        ctx.mark_non_differentiable(*[whole[k] for k in constant])
        return tuple(whole) if isinstance(output, (tuple, list)) else whole[0]

    def _save(self, ctx: Context, inner: Sequence[Any], whole: Sequence[Any]) -> None:
        """Save what the parts saved: an argument or a result by its place, another tensor by itself."""
        saved: list[Any] = []
        for place in self.places:
            if isinstance(place, int):
                x, varies = (inner[place], self.varies[place]) if place >= 0 else (whole[~place], True)
            elif place is None or place.device != self.level.device:
                x, varies = place, False
            else:
                x, varies = place._value.tensor, place._value.varies
            saved.append(x)
            self.saved_varies.append(varies)
        ctx.save_for_backward(*saved)

    @contextmanager
    def unpacked(self, ctx: Context) -> Iterator[None]:
        """Let the parts see meanwhile what they saved."""
        saved = zip(ctx.saved_tensors, self.saved_varies, strict=True)
        self.inside._unpacked = tuple([None if x is None else _cell(self.level, x, v) for x, v in saved])
        try:
            yield
        finally:
            self.inside._unpacked = None

    def backward(self, ctx: Context, grads: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradients of the arguments, summed for those that all examples share."""

        def run() -> list[Any]:
            cells = [g if g is None else _cell(self.level, g, True) for g in grads]
            backs = self.cls.backward(self.inside, *cells)
            several = list(backs) if isinstance(backs, (tuple, list)) else [backs]
            return [g if g is None else _spread(self.level, g) for g in several]

        with self.unpacked(ctx):
            pairs = zip(self.within(run), self.varies, strict=False)
        return tuple([g if g is None or v else table["sum"](g, axis=0) for g, v in pairs])

    def push_forward(self, ctx: Context, tangents: Sequence[Any]) -> Any:
        """Return the tangents of the outputs for all examples."""

        def run() -> tuple[Any, ...]:
            moved = self.cls.jvp(self.inside, *self.cells(tangents))
            several = list(moved) if isinstance(moved, (tuple, list)) else [moved]
            return tuple([t if t is None else _spread(self.level, t) for t in several])

        with self.unpacked(ctx):
            return self.within(run)


def _vectorized(examples: _Examples) -> type[Function]:
    """Return a call of a function for all examples as a function itself."""

    class Vectorized(Function):
        @staticmethod
        def forward(ctx: Context, *inner: Any) -> Any:
            return examples.forward(ctx, inner)

        @staticmethod
        def backward(ctx: Context, *grads: Any) -> Any:
            return examples.backward(ctx, grads)

    def push_forward(ctx: Context, *tangents: Any) -> Any:
        return examples.push_forward(ctx, tangents)

    if examples.cls.jvp is not Function.jvp:
        Vectorized.jvp = staticmethod(push_forward)  # type: ignore[method-assign]
    Vectorized.__name__ = examples.cls.__name__
    return Vectorized

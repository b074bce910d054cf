"""``vmap``: a function of one example as a function of many.

Inside, a tensor stands for all examples but shows the shape of one; its device is the pseudo device ``vmap``,
whose index is the level of nesting. A mode runs ops on such tensors by the batching rule of the op, on the
tensors inside: so gradients may be taken inside and outside, on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Final

from ..backend_interface.protocols import Call
from ..devices.device import Device, ValueType
from ..dispatch.levels import Level, LevelRules, below_level, creating
from ..dispatch.modes import detached_value, register_value_mode
from ..errors import ArgumentError, ShapeError, UnsupportedOpError
from ..ops.definition import Op, Shape, table
from ..ops.movement.family import normalize_axis
from ..ops.movement.movement import broadcast_to, moveaxis
from ..random.generator import Tape
from ..tensor.tensor import Tensor, wrap
from .pytree import leaves, tree_map

VMAP: Final = "vmap"
RANDOMNESS: Final = ("error", "same", "different")


class Batched:
    """Value of a tensor inside ``vmap``: all examples along axis 0, or one value for all of them."""

    __slots__ = ("shape", "tensor", "varies")

    def __init__(self, tensor: Tensor, varies: bool) -> None:
        self.tensor = tensor
        self.varies = varies
        self.shape: Shape = tensor.shape[1:] if varies else tensor.shape


class Vmap(Level):
    """One level of ``vmap``."""

    device_type = VMAP

    def __init__(self, inner: Device, count: int, randomness: str) -> None:
        super().__init__(inner)
        self.count, self.randomness = count, randomness

    def of_each(self, x: Tensor) -> Tensor:
        """Return a tensor that differs between the examples, which are along axis 0 of ``x``."""
        return wrap(Batched(x, True), ValueType.of(x.dtype, self.device))

    def call_function(self, cls: Any, ctx: Any, args: Sequence[Any], recorded: bool) -> Any:
        """Run it inside of the level; by its rule, or as a function of all examples, where more is asked."""
        from .vectorized_function import call_vectorized

        return call_vectorized(self, cls, ctx, args, recorded)


class _Rules(LevelRules):
    """Runs ops by their batching rules."""

    def prepare(self, op: Op[...], call: Call) -> Callable[..., Any] | None:
        if op.family == "creation":
            return creating(op, call, lambda x: Batched(x, False))
        rule = op.batch
        if rule is None and op.decompose is not None:
            return None

        def run(*values: Any) -> Any:
            tensors = [v.tensor if type(v) is Batched else v for v in values]
            varies = tuple([type(v) is Batched and v.varies for v in values])
            with below_level(call.index):
                if not any(varies):
                    return _hold(op, table.run(op.name, tensors, call.attrs), False)
                if rule is None:
                    raise UnsupportedOpError(
                        f"{op.name}: this op has no batching rule, so vmap cannot run it."
                    )
                return _hold(op, rule(tensors, varies, **call.attrs), True)

        return run

    def lift(self, x: Any, device: Device) -> Any:
        return wrap(Batched(x, False), ValueType.of(x.dtype, device))

    def parts(self, value: Batched) -> tuple[Any, ...]:
        return (value.tensor,)

    def map_parts(self, value: Batched, function: Callable[[Any], Any]) -> Batched:
        return Batched(function(value.tensor), value.varies)

    def detach(self, value: Batched) -> Batched:
        return self.map_parts(value, lambda x: wrap(detached_value(x), x._vtype))

    def readable(self, value: Batched) -> Any:
        return None


def _hold(op: Op[...], result: Any, varies: bool) -> Any:
    return tuple(Batched(x, varies) for x in result) if op.results else Batched(result, varies)


register_value_mode(VMAP, _Rules())


def vmap(
    function: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, *, chunk_size: int | None = None,
    randomness: str = "error",
) -> Callable[..., Any]:  # fmt: skip
    """Return ``function`` over an additional axis of examples, without a Python loop over them.

    ``in_dims`` says which axis of each positional argument counts the examples: an int for all, or a tuple
    with one entry an argument; None for an argument that is the same for all. Entries may be nested like the
    arguments (tuples, lists, dicts). Keyword arguments count along axis 0. ``out_dims`` says where the
    results have that axis, in the same way; None for one that is the same for all. ``chunk_size`` limits how
    many examples run at once. ``randomness`` says what numbers drawn inside are for the examples: an
    ``"error"``, the ``"same"``, or ``"different"``. Writes to an argument inside of the function are seen
    inside only.

    Raises ``ShapeError`` where the arguments differ in their number of examples or have none, where
    ``in_dims`` or ``out_dims`` have another structure, and where a result without axis differs, and
    ``DeviceError`` where the program asks for the value of a tensor that differs between examples, or writes
    it into a tensor from outside.

    >>> import tensorbus as tb
    >>> rows = tb.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> tb.vmap(lambda row: row / row.sum())(rows).sum(axis=1).tolist()
    [1.0, 1.0]
    """
    if not callable(function):
        raise ArgumentError(f"vmap: 'function' must be a function, got {type(function).__name__}.")
    if chunk_size is not None and not hasattr(type(chunk_size), "__index__"):
        raise ArgumentError(f"vmap: 'chunk_size' must be an integer or None, got {chunk_size!r}.")
    if chunk_size is not None and chunk_size < 1:
        raise ShapeError(f"vmap: chunk_size must be at least 1, got {chunk_size}.")

    if randomness not in RANDOMNESS:
        raise ArgumentError(f"vmap: randomness is one of {', '.join(RANDOMNESS)}; got {randomness!r}.")

    @wraps(function)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_dims, (tuple, list)) and len(in_dims) != len(args):
            raise ShapeError(
                f"vmap: in_dims {in_dims!r} has {len(in_dims)} entries for {len(args)} arguments."
            )
        dims = tuple(in_dims) if isinstance(in_dims, (tuple, list)) else in_dims
        _check_dims("in_dims", in_dims, dims, args)
        batched = (tree_map(_front, args, dims), tree_map(_front, kwargs, 0))
        counts = {x.tensor.shape[0] for x in leaves(batched) if isinstance(x, Batched) and x.varies}
        if len(counts) != 1:
            raise ShapeError(
                "vmap: no argument has an axis of examples; in_dims must name one."
                if not counts
                else f"vmap: the arguments have {sorted(counts)} examples; all must have the same number."
            )
        (count,) = counts
        step = chunk_size or max(count, 1)
        runs: list[Any] = []
        drawn = Tape()
        for start in range(0, max(count, 1), step):
            part = batched if step >= count else tree_map(lambda x, s=start: _part(x, s, step), batched)
            size = min(step, count - start)
            if randomness != "same" or step >= count:
                results = _run(function, part[0], part[1], size, randomness)
            else:  # the first chunk draws for all
                with Tape([*drawn.states], playing=True) if runs else drawn:
                    results = _run(function, part[0], part[1], size, randomness)
            _check_dims("out_dims", out_dims, out_dims, results)
            runs.append(tree_map(partial(_repeated, count=size), results, out_dims))
        whole = runs[0] if len(runs) == 1 else tree_map(_concatenated, *runs, out_dims)
        return tree_map(_place, whole, out_dims)

    return mapped


def _front(x: Any, dim: int | None) -> Any:
    if not isinstance(x, Tensor):
        return x
    if dim is None:
        return Batched(x, False)
    if not x.shape:
        raise ShapeError("vmap: a 0-dimensional argument has no axis of examples; use None in in_dims.")
    return Batched(moveaxis(x, normalize_axis("vmap", dim, x.ndim), 0) if dim else x, True)


def _check_dims(name: str, whole: Any, dims: Any, tree: Any) -> None:
    """Raise ``ShapeError`` where ``dims``, part of ``whole``, branches otherwise than a tree."""
    if isinstance(dims, Mapping):
        if isinstance(tree, Mapping) and dims.keys() == tree.keys():
            for key, value in dims.items():
                _check_dims(name, whole, value, tree[key])
            return
        got = f"a dict of {sorted(map(str, tree))}" if isinstance(tree, Mapping) else "none"
        needed = f"a dict of {sorted(map(str, dims))}"
    elif isinstance(dims, (tuple, list)):
        if isinstance(tree, (tuple, list)) and len(dims) == len(tree):
            for value, branch in zip(dims, tree, strict=True):
                _check_dims(name, whole, value, branch)
            return
        several = isinstance(tree, (tuple, list))
        got = f"{len(tree)} of them" if several else "a dict" if isinstance(tree, Mapping) else "one"
        needed = f"{len(dims)} values"
    else:
        return
    raise ShapeError(
        f"vmap: {name} {whole!r} names axes of {needed}, and there is {got}; an int or None in its place goes"
        " for all of a branch."
    )


def _part(x: Any, start: int, step: int) -> Any:
    if not (isinstance(x, Batched) and x.varies):
        return x
    return Batched(x.tensor[start : start + step], True)


def _run(function: Callable[..., Any], args: Any, kwargs: Any, count: int, randomness: str) -> Any:
    """Run ``function`` one level deeper; return its results, tensors as ``Batched``."""
    inner = next(x.tensor.device for x in leaves((args, kwargs)) if isinstance(x, Batched) and x.varies)
    mode = Vmap(inner, count, randomness)
    device = mode.device

    def enter(x: Any) -> Any:
        return wrap(x, ValueType.of(x.tensor.dtype, device)) if isinstance(x, Batched) else x

    def leave(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return x._value if x.device == device else Batched(x, False)

    with mode:
        result = function(*tree_map(enter, args), **tree_map(enter, kwargs))
    return tree_map(leave, result)


def _repeated(x: Any, dim: int | None, count: int) -> Any:
    """Return a result with the examples along axis 0, or where ``dim`` is None what is the same for all."""
    if not isinstance(x, Batched):
        return x
    if dim is None:
        if x.varies:
            raise ShapeError(
                f"vmap: out_dims is None for a result of shape {x.shape} that differs between examples; say"
                " where its axis of examples goes."
            )
        return x.tensor
    return x.tensor if x.varies else broadcast_to(x.tensor, (count, *x.tensor.shape))


def _concatenated(*parts: Any) -> Any:
    *results, dim = parts
    joined = isinstance(results[0], Tensor) and dim is not None
    return table["concat"](results) if joined else results[0]


def _place(x: Any, dim: int | None) -> Any:
    return moveaxis(x, 0, dim) if isinstance(x, Tensor) and dim else x

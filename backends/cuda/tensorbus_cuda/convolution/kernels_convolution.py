"""Convolution and both of its derivatives by cuDNN where its frontend is installed, of values as they lie.

No algorithm is taken that multiplies transformed values: an infinity spoils no more than the sums that it is
part of. A convolution adds up in one order, its derivatives in an order that cuDNN chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, Final

from tensorbus.backend_api import Call, DType, Kernel, StridedArray, get_matmul_precision, hints, pack
from tensorbus.backend_api import dtypes as dt

from .. import cudnn
from ..device import runtime

FORWARD: Final = "conv"
INPUT: Final = "conv_transpose"
WEIGHT: Final = "conv_weight"
OPS: Final = (FORWARD, INPUT, WEIGHT)
_DTYPES: Final = (dt.float16, dt.bfloat16, dt.float32)
_NEVER: Final = (
    "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "WINOGRAD", "WINOGRAD_TILE_4x4",
    "WINOGRAD_TILE_6x6", "WINOGRAD_TILE_13x13", "FFT",
)  # fmt: skip
"""The library's names for what an algorithm may do, and must not."""
_MAX_LAYOUTS: Final = 256
"""How many layouts of operands are known of one convolution."""
_RESULT: Final = 100
_ALIGNED: Final = 16

Attributes = tuple[tuple[str, Any], ...]
Shapes = tuple[tuple[int, ...], ...]


def supports(call: Call) -> bool | str:
    """Return True where cuDNN serves a call of one of the ops, else why not."""
    assert call.shapes is not None
    assert call.out_shape is not None
    shapes = (*call.shapes, call.out_shape)
    refusal = _refusal(call.op, call.dtypes[0], shapes, call.attrs)
    if refusal is not None:
        return refusal
    # The library is asked for the lengths at hand where lengths are open.
    attrs = tuple(sorted(hints(dict(call.attrs)).items()))
    return _served(call.op, call.dtypes[0], hints(shapes), attrs, call.index)


def _refusal(op: str, dtype: DType, shapes: Shapes, attrs: Mapping[str, Any]) -> str | None:
    """Return why cuDNN does not serve a call of one of the ops, as far as that is known without asking it."""
    if not cudnn.is_installed():
        return f"needs cuDNN's frontend: {cudnn.INSTALL}"
    if dtype not in _DTYPES:
        return "takes float16, bfloat16 and float32"
    if any(0 in s for s in shapes) or not 3 <= len(shapes[0]) <= 5:
        return "takes one to three axes of space, none of them empty"
    if op == INPUT and not _fits(shapes, attrs):
        return "takes an output_padding that is shorter than the stride"
    return None


@cache
def _served(op: str, dtype: DType, shapes: Shapes, attrs: Attributes, index: int) -> bool | str:
    if problem := cudnn.trouble(index):
        return problem
    library = cudnn.library(index)
    operands = [StridedArray.contiguous(None, s, dtype) for s in shapes[:2]]
    with library.unit.current(), library.lock:
        try:
            library.check(_graph(library, op, operands, shapes[2], attrs), _avoided(library, op, "highest"))
        except Exception as error:  # the frontend's own classes, and RuntimeError
            return f"cuDNN has no kernel for it: {error}"
    return True


def _fits(shapes: Shapes, attrs: Mapping[str, Any]) -> bool:
    """Return whether the convolution of the result has the operand's shape, as the library asks for."""
    x, weight, out = (s[2:] for s in shapes)
    return x == tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(
            out, weight, attrs["stride"], attrs["padding"], attrs["dilation"], strict=True
        )
    )


def _avoided(library: cudnn.Library, op: str, precision: str) -> list[Any]:
    """Return the notes of the algorithms that are not taken: TF32 neither, unless it was asked for."""
    names = (*_NEVER, "NONDETERMINISTIC") if op == FORWARD else _NEVER
    if precision == "highest":
        names = (*names, "TENSOR_CORE")
    return [getattr(library.cudnn.numerical_note, name) for name in names]


def _graph(
    library: cudnn.Library, op: str, inputs: Sequence[StridedArray], shape: tuple[int, ...], attrs: Attributes
) -> Any:
    dtype, named = inputs[0].dtype, dict(attrs)
    graph = library.graph(dtype)
    x, y = (library.operand(graph, number, _plane(v)) for number, v in enumerate(inputs, 1))
    flat = len(shape) == 3
    moves = {
        name: [before, *named[name]] if flat else list(named[name])
        for name, before in (("padding", 0), ("stride", 1), ("dilation", 1))
    }
    if op == FORWARD:
        out = graph.conv_fprop(image=x, weight=y, name=op, **moves)
    elif op == INPUT:
        out = graph.conv_dgrad(loss=x, filter=y, name=op, **moves)
    else:
        out = graph.conv_wgrad(image=x, loss=y, name=op, **moves)
    library.result(out, _RESULT, (*shape[:2], 1, shape[2]) if flat else shape, dtype)
    return graph


def _plane(x: StridedArray) -> StridedArray:
    """Return the value as the library sees it: with two axes of space at least, strides of all axes set."""
    shape, strides = x.shape, x.strides
    if len(shape) == 3:
        shape, strides = (*shape[:2], 1, shape[2]), (*strides[:2], 0, strides[2])
    known = [*strides]
    for k in reversed(range(len(shape))):
        if shape[k] == 1:  # its stride says nothing, but the library tells layouts by it
            known[k] = known[k + 1] * shape[k + 1] if k + 1 < len(shape) else 1
    return x.view(shape, known)


def _is_served_layout(x: StridedArray, *, weight: bool = False) -> bool:
    """Return whether the library takes a value in its layout: its elements apart, the first one aligned.

    It wants a ``weight`` without gaps, row by row or with channels last: of float16 weights in groups in
    another order it gives wrong sums without an error.
    """
    end = 1
    for stride, n in sorted((s, n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1):
        if stride < end or (weight and stride > end):
            return False
        end = stride * n
    if weight and not _is_weight_order(x):
        return False
    return bool((x.buffer.ptr + x.offset * x.dtype.itemsize) % _ALIGNED == 0)


def _is_weight_order(x: StridedArray) -> bool:
    """Return whether the axes lie row by row, or with the second one, the channels, innermost."""
    axes = range(len(x.shape))
    for order in (axes, (0, *axes[2:], 1)):
        strides = [x.strides[k] for k in order if x.shape[k] > 1]
        if strides == sorted(strides, reverse=True):
            return True
    return False


def prepare(call: Call) -> Any:
    """Return what takes the operands of one of the ops to a new value."""
    run = _runner(call, packs=True)
    unit, dtype, shape = runtime().units[call.index], call.dtypes[0], call.out_shape or ()
    nbytes, strides = prod(shape) * dtype.itemsize, StridedArray.contiguous(None, shape, dtype).strides

    def eager(*values: StridedArray) -> StridedArray:
        block = unit.pool.allocate(nbytes)
        run(values, (block,))
        return StridedArray(block, shape, strides, 0, dtype)

    return eager


def into(call: Call) -> Callable[[Sequence[Any], Sequence[Any]], bool]:
    """Return what writes the result of one of the ops into a block that is given."""
    return _runner(call, packs=False)


def _runner(call: Call, *, packs: bool) -> Callable[[Sequence[Any], Sequence[Any]], bool]:
    """Return what queues a call into a block; without ``packs`` it refuses operands of other layouts."""
    unit, compiler, index = runtime().units[call.index], runtime().compiler, call.index
    op, shape, attrs = call.op, call.out_shape or (), tuple(sorted(call.attrs.items()))
    single, size = call.dtypes[0] is dt.float32, call.dtypes[0].itemsize
    layouts: dict[Any, tuple[bool, bool]] = {}
    known: dict[Any, cudnn.Plan] = {}
    current, note = unit.current(), unit.failures.note

    def run(values: Sequence[Any], blocks: Sequence[Any]) -> bool:
        library, stream = cudnn.library(index), unit.stream()
        x, y = values
        places = {1: x.buffer.ptr + x.offset * size, 2: y.buffer.ptr + y.offset * size}
        layout = (x.strides, y.strides, places[1] % _ALIGNED, places[2] % _ALIGNED)
        served = layouts.get(layout)
        if served is None:
            if len(layouts) >= _MAX_LAYOUTS:
                layouts.clear()
            served = layouts[layout] = (_is_served_layout(x), _is_served_layout(y, weight=op != WEIGHT))
        if not (served[0] and served[1]):
            if not packs:
                return False
            x, y = x if served[0] else pack(compiler, x, index), y if served[1] else pack(compiler, y, index)
            places = {1: x.buffer.ptr + x.offset * size, 2: y.buffer.ptr + y.offset * size}
        precision = get_matmul_precision() if single else "high"
        key = (precision, x.strides, y.strides)
        places[_RESULT] = blocks[0].ptr
        note(op)
        for block in (x.buffer, y.buffer, *blocks):
            if block.stream is not stream:
                block.used_by(stream)
        with current, library.lock:
            try:
                plan = known.get(key)
                if plan is None:
                    graph = _graph(library, op, (x, y), shape, attrs)
                    plan = known[key] = library.built(graph, _avoided(library, op, precision))
                library.run(plan, places, library.space(plan.room, stream), stream)
            except Exception as error:  # the frontend's own classes, and RuntimeError
                raise cudnn.failed(unit, op, error) from error
        return True

    return run


def convolution_kernels() -> dict[str, Kernel]:
    """Return cuDNN's kernels of convolution and of its gradients."""
    return {op: Kernel(name="cudnn", prepare=prepare, out=into, supports=supports) for op in OPS}

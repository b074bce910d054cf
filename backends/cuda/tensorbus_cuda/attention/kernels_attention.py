"""Attention and its derivative by cuDNN where its frontend is installed: half precision, no scores kept.

What a mask adds to the scores is written out for the library, for each query and key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any, Final

from tensorbus.backend_api import Call, Kernel, Layout, Node, StridedArray, hints, pack
from tensorbus.backend_api import dtypes as dt

from .. import cudnn
from ..device import runtime
from . import attention_mask

NAME: Final = "scaled_dot_product_attention"
GRADIENTS: Final = "attention_gradients"
WIDEST: Final = 128
"""Elements of a head for which every GPU since compute capability 8.0 has a kernel."""
_STEP: Final = 8
_HALF: Final = (dt.float16, dt.bfloat16)
_APART: Final = 256
"""Bytes at whose multiples the parts of the memory begin that the library works in."""
_MAX_LAYOUTS: Final = 256
"""How many layouts of operands are known of one call."""
_SUMS: Final = 50
_FIRST: Final = 100
"""The numbers of the logarithms of the sums, and of the first result; operands have those from 1 on."""


def supports(call: Call) -> bool | str:
    """Return True where cuDNN serves a call of either op, else why not."""
    assert call.shapes is not None
    refusal = _refusal(call.op, call.dtypes, call.shapes, call.attrs["scale"], call.index)
    if refusal is not None:
        return refusal
    # The library is asked for the lengths at hand where lengths are open.
    return _served(
        call.op, call.dtypes, hints(call.shapes), call.attrs["scale"], call.attrs["is_causal"], call.index
    )


def _refusal(
    op: str, dtypes: tuple[dt.DType, ...], shapes: tuple[tuple[int, ...], ...], scale: float, index: int
) -> str | None:
    """Return why cuDNN does not serve a call of either op, as far as that is known without asking it."""
    if not cudnn.is_installed():
        return f"needs cuDNN's frontend: {cudnn.INSTALL}"
    before = 2 if op == GRADIENTS else 0
    shapes, mask = shapes[: 3 + before], shapes[3 + before :]
    if any(d not in _HALF for d in dtypes[: 3 + before]):
        return "takes float16 and bfloat16"
    if mask and dtypes[-1] not in (dtypes[0], dt.bool_):
        return "takes masks of bool and of the operands' dtype"
    if int(runtime().units[index].architecture) < 80:
        return "needs compute capability 8.0"
    q, k, v = shapes[before:]
    if any(len(s) != 4 or 0 in s for s in shapes) or not q[0] == k[0] == v[0] or k[1] != v[1] or q[1] % k[1]:
        return "takes operands of (batch, heads, length, width)"
    if any(s[-1] > WIDEST or s[-1] % _STEP for s in shapes) or scale <= 0:
        return f"takes heads of up to {WIDEST} elements, in steps of {_STEP}"
    if mask and any(
        n not in (1, m) for n, m in zip(attention_mask.whole(mask[0], q, k)[:2], q[:2], strict=True)
    ):
        return "takes masks that broadcast to the scores"
    return None


@cache
def _served(
    op: str, dtypes: tuple[dt.DType, ...], shapes: tuple[tuple[int, ...], ...], scale: float, causal: bool,
    index: int,
) -> bool | str:  # fmt: skip
    before = 2 if op == GRADIENTS else 0
    shapes, mask = shapes[: 3 + before], shapes[3 + before :]
    q, k, _ = shapes[before:]
    if problem := cudnn.trouble(index):
        return problem
    library = cudnn.library(index)
    operands = [StridedArray.contiguous(None, s, d) for s, d in zip(shapes, dtypes, strict=False)]
    if mask:
        operands.append(StridedArray.contiguous(None, attention_mask.whole(mask[0], q, k), dtypes[0]))
    with library.unit.current(), library.lock:
        try:
            for graph in _graphs(library, op, operands, scale, causal):
                library.check(graph)
        except Exception as error:  # the frontend's own classes, and RuntimeError
            return f"cuDNN has no kernel for it: {error}"
    return True


def orders(op: str, layouts: Sequence[Layout | None]) -> Sequence[tuple[int, ...]] | None:
    """Return in which order the axes of each result lie: as those of the operand that it has the shape of.

    Heads that were cut out of one product's rows are so joined again without a copy.
    """
    if op not in (NAME, GRADIENTS):
        return None
    permuted = [() if x is None else _order(x.strides) for x in (layouts[:1] if op == NAME else layouts[2:5])]
    return permuted if any(permuted) else ()


def _order(strides: Sequence[int]) -> tuple[int, ...]:
    order = tuple(sorted(range(len(strides)), key=lambda k: -strides[k]))
    return order if order != tuple(range(len(strides))) and order[-1] == len(strides) - 1 else ()


def leaves(node: Node, reader: Node) -> int:
    """Return of how many rows attention can leave the sums for its derivative; 0 where that is of another."""
    if node.op != NAME or reader.op != GRADIENTS or reader.inputs[1] is not node:
        return 0
    same = all(a is b for a, b in zip(node.inputs, reader.inputs[2:], strict=False))
    if not same or len(reader.inputs) != len(node.inputs) + 2 or dict(node.attrs) != dict(reader.attrs):
        return 0
    return prod(node.inputs[0].spec.shape[:3])


def _graphs(
    library: cudnn.Library, op: str, operands: Sequence[StridedArray], scale: float, causal: bool,
    strides: Sequence[tuple[int, ...]] = (), *, sums: bool = False,
) -> list[Any]:  # fmt: skip
    """Return the graphs that run in turn: of the derivative, the sums of its rows are computed first.

    ``sums``: attention stores them, or its derivative is given them.
    """
    if op == NAME:
        return [_forward(library, operands, scale, causal, sums=sums, strides=[*strides, ()][0])]
    last = _backward(library, operands, scale, causal, strides)
    return [last] if sums else [_forward(library, operands[2:], scale, causal, sums=True), last]


def _seen(library: cudnn.Library, causal: bool) -> dict[str, Any]:
    if not causal:
        return {}
    corner = library.cudnn.diagonal_alignment.TOP_LEFT
    return {"diagonal_alignment": corner, "diagonal_band_right_bound": 0}


def _forward(
    library: cudnn.Library, operands: Sequence[StridedArray], scale: float, causal: bool, *, sums: bool,
    strides: tuple[int, ...] = (),
) -> Any:  # fmt: skip
    graph, dtype = library.graph(operands[0].dtype), operands[0].dtype
    q, k, v, *added = (library.operand(graph, number, x) for number, x in enumerate(operands, 1))
    out, rows = graph.sdpa(
        q=q, k=k, v=v, attn_scale=scale, generate_stats=sums, name="sdpa",
        bias=added[0] if added else None, **_seen(library, causal),
    )  # fmt: skip
    shape = (*operands[0].shape[:3], operands[2].shape[3])
    library.result(out, _FIRST, shape, dtype, strides)
    if sums:
        library.result(rows, _SUMS, (*shape[:3], 1), dt.float32)
    return graph


def _backward(
    library: cudnn.Library, inputs: Sequence[StridedArray], scale: float, causal: bool,
    strides: Sequence[tuple[int, ...]],
) -> Any:  # fmt: skip
    graph = library.graph(inputs[0].dtype)
    g, out, q, k, v, *added = (library.operand(graph, number, x) for number, x in enumerate(inputs, 1))
    rows = library.operand(graph, _SUMS, StridedArray.contiguous(None, (*inputs[2].shape[:3], 1), dt.float32))
    grads = graph.sdpa_backward(
        q=q,
        k=k,
        v=v,
        o=out,
        dO=g,
        stats=rows,
        attn_scale=scale,
        bias=added[0] if added else None,
        name="sdpa_backward",
        **_seen(library, causal),
    )
    for number, (grad, x, lies) in enumerate(zip(grads, inputs[2:5], strides or ((),) * 3, strict=True)):
        library.result(grad, _FIRST + number, x.shape, x.dtype, lies)
    return graph


def prepare(call: Call) -> Any:
    """Return what takes the operands of either op to new values."""
    run = _runner(call, packs=True)
    unit, dtype = runtime().units[call.index], call.dtypes[0]
    assert call.shapes is not None
    shapes = call.shapes[2:5] if call.op == GRADIENTS else (call.out_shape or (),)
    likes = [StridedArray.contiguous(None, s, dtype) for s in shapes]
    whole = [(like.nbytes, like.shape, like.strides) for like in likes]

    def eager(*values: StridedArray) -> Any:
        blocks = [unit.pool.allocate(n) for n, _, _ in whole]
        run(values, blocks)
        outs = [
            StridedArray(b, shape, strides, 0, dtype)
            for b, (_, shape, strides) in zip(blocks, whole, strict=True)
        ]
        return tuple(outs) if call.op == GRADIENTS else outs[0]

    return eager


def into(call: Call) -> Callable[[Sequence[Any], Sequence[Any]], bool]:
    """Return what writes the results of either op into blocks that are given."""
    return _runner(call, packs=False)


def _plain_operands(index: int, packs: bool) -> Callable[[Sequence[Any]], list[StridedArray] | None]:
    """Return what gives operands in layouts that cuDNN takes, or None, where one would have to be packed."""
    compiler = runtime().compiler
    known: dict[Any, list[bool]] = {}

    def plain(values: Sequence[Any]) -> list[StridedArray] | None:
        layout = tuple([(x.strides, x.offset % _STEP, x.buffer.ptr % cudnn.ALIGNED) for x in values])
        takes = known.get(layout)
        if takes is None:
            if len(known) >= _MAX_LAYOUTS:
                known.clear()
            takes = known[layout] = [cudnn.is_plain(x) for x in values]
        if not packs and not all(takes):
            return None
        return [
            cudnn.tidy(x) if well else pack(compiler, x, index) for x, well in zip(values, takes, strict=True)
        ]

    return plain


def _runner(call: Call, *, packs: bool) -> Callable[[Sequence[Any], Sequence[Any]], bool]:
    """Return what queues a call into blocks; without ``packs`` it refuses operands of other layouts."""
    unit, index = runtime().units[call.index], call.index
    scale, causal, op = call.attrs["scale"], call.attrs["is_causal"], call.op
    strides = [plain for plain, _ in call.layouts]
    begins = [begin * call.out_dtype.itemsize for _, begin in call.layouts]
    known: dict[Any, list[cudnn.Plan]] = {}
    plain = _plain_operands(index, packs)
    assert call.shapes is not None
    before = 2 if op == GRADIENTS else 0
    masked = len(call.shapes) > 3 + before
    added = attention_mask.written(call, before) if masked else None
    rows = extra = 0
    sums = bool(call.side_size) or call.side_input
    if op == GRADIENTS and not sums:
        rows = StridedArray.contiguous(None, call.shapes[2][:3], dt.float32).nbytes
        rows = -(-rows // _APART) * _APART
        extra = rows + StridedArray.contiguous(None, call.shapes[1], call.dtypes[1]).nbytes
        extra = -(-extra // _APART) * _APART
    front = -(-added.nbytes // _APART) * _APART if added is not None else 0
    """Bytes before all else that the mask takes: what is recorded has it written there at each run."""

    def run(values: Sequence[Any], blocks: Sequence[Any]) -> bool:
        library, stream = cudnn.library(index), unit.stream()
        unit.failures.note(op)
        sums_block = None
        if call.side_input:
            *values, last = values
            sums_block = last.buffer
        elif call.side_size:
            *blocks, sums_block = blocks
        mask = None
        if added is not None:
            *values, mask = values
        operands = plain(values)
        if operands is None:
            return False
        key = tuple(x.strides for x in operands)
        places = {n: x.buffer.ptr + x.offset * x.dtype.itemsize for n, x in enumerate(operands, 1)}
        read = [x.buffer for x in operands]
        if mask is not None and added is not None:
            operands.append(added.like)
            read.append(mask.buffer)
        results = {
            _FIRST + n: block.ptr + begin
            for n, (block, begin) in enumerate(zip(blocks, begins or [0] * len(blocks), strict=True))
        }
        if sums_block is not None:
            results[_SUMS] = sums_block.ptr
        for block in (*read, *blocks, *([sums_block] if sums_block is not None else [])):
            if block.stream is not stream:
                block.used_by(stream)
        with unit.current(), library.lock:
            try:
                plans = known.get(key)
                if plans is None:
                    plans = known[key] = [
                        library.built(g)
                        for g in _graphs(library, op, operands, scale, causal, strides, sums=sums)
                    ]
                room = max(plan.room for plan in plans)
                begin = library.space(front + extra + room, stream)
                space = begin + front + extra
                if mask is not None and added is not None:
                    added.write(mask, begin, stream)
                    places[len(operands)] = begin
                if extra:
                    results[_SUMS] = space - extra
                    first = {n - 2: places[n] for n in range(3, len(operands) + 1)}
                    again = {_SUMS: space - extra, _FIRST: space - extra + rows}
                    library.run(plans[0], {**first, **again}, space, stream)
                library.run(plans[-1], {**places, **results}, space, stream)
            except Exception as error:  # the frontend's own classes, and RuntimeError
                raise cudnn.failed(unit, op, error) from error
        return True

    return run


def attention_kernels() -> dict[str, Kernel]:
    """Return cuDNN's kernels of attention and of its gradients."""
    ops = (NAME, GRADIENTS)
    return {op: Kernel(name="cudnn", prepare=prepare, out=into, supports=supports) for op in ops}

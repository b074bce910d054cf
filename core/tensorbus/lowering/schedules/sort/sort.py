"""The schedules of sort and argsort: by rank where rows are short, else by radix, some bits a pass.

Both are stable. Elements are compared as unsigned keys in which NaN is the largest and -0.0 is 0.0; of a
descending order the keys are inverted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from ....dtypes.definition import (
    DType,
    bfloat16,
    bool_,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float64,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.index_expr import ONE, ZERO
from ...ir.kernel_task import KernelTask, LaunchList, parallel_loops
from ...ir.loop_ir import INDEX, Apply, Assign, Cast, Expr, Load, Select
from ...target import Target
from ..schedule import Schedule, ScheduleRequest, Verdict
from . import radix_pass_gpu
from .bucket_pass import BITS, Destination, Read, Source, digit, distribute, packed_rows
from .partition_gpu import lower_partition

_Pass = Callable[[str, Source, Sequence[Destination], LaunchList], None]
"""Appends what brings elements into the order of their buckets."""

EQUAL: Final[dict[DType, int]] = {bfloat16: 16, float16: 13, float8_e5m2: 21, float8_e4m3fn: 20}
"""How many last bits the keys of two floats of one sign share, which float32 has beside those of a dtype."""


def key_dtype(dtype: DType) -> DType:
    """Return the dtype of the keys: narrow floats are compared as float32."""
    if dtype.is_floating:
        return uint64 if dtype is float64 else uint32
    return {1: uint8, 2: uint16, 4: uint32, 8: uint64}[dtype.itemsize]


def _key_bits(dtype: DType) -> int:
    return 1 if dtype is bool_ else 8 * key_dtype(dtype).itemsize


def key(b: Builder, value: Expr, descending: bool) -> Expr:
    """Return the key of a value: of two values the one with the smaller key comes first."""
    d = value.dtype
    k = key_dtype(d)
    ones = literal(-1, k)
    if d.is_floating:
        plain = b.let(Apply("add", (value, literal(0.0, d)), d), "plain")
        bits = b.let(Apply("bits", (plain,), k), "bits")
        top = literal(1 << (8 * k.itemsize - 1), k)
        negative = Apply("greater_equal", (bits, top), bool_)
        increasing = Select(
            negative, Apply("bitwise_invert", (bits,), k), Apply("bitwise_xor", (bits, top), k), k
        )
        ordered: Expr = Select(Apply("isnan", (plain,), bool_), ones, increasing, k)
    else:
        ordered = Cast(value, k) if d is not k else value
        if d.kind == "int":
            ordered = Apply("bitwise_xor", (ordered, literal(1 << (8 * k.itemsize - 1), k)), k)
    return b.let(Apply("bitwise_invert", (ordered,), k) if descending else ordered, "key")


def _rank_sort(task: KernelTask, steps: LaunchList) -> None:
    """Let each element count those that come before it in its row."""
    root, operand = task.root, task.root.inputs[0]
    axis, descending = root.attrs["axis"], root.attrs["descending"]
    b = Builder(f"tb_{root.op}_rank")
    inliner, slots = task.inliner(b)
    lengths = inliner.lengths(operand)
    index, loops = parallel_loops(b, lengths, operand.spec.shape)
    with inliner.scope():
        value = b.let(inliner.value(operand, index), "value")
    own = key(b, value, descending)
    rank = b.let(ZERO, "rank", mutable=True)
    with b.loop(ZERO, lengths[axis]) as k, inliner.scope():
        other = key(b, inliner.value(operand, (*index[:axis], k, *index[axis + 1 :])), descending)
        tie = ix.both([Apply("equal", (other, own), bool_), ix.less(k, index[axis])])
        before = Apply("logical_or", (Apply("less", (other, own), bool_), tie), bool_)
        b.emit(Assign(rank, ix.add(rank, Select(before, ONE, ZERO, INDEX))))
    out = b.buffer("out", root.spec.dtype, writes=True)
    result = value if root.op == "sort" else Cast(index[axis], int64)
    b.store(out, ix.flatten((*index[:axis], rank, *index[axis + 1 :]), lengths), result)
    steps.add(b.finish(loops), {**slots, "out": task.out})


def _radix_sort(task: KernelTask, steps: LaunchList, lower_pass: _Pass, each: int) -> None:
    """Append a pass for every ``each`` bits of the keys."""
    root, operand = task.root, task.root.inputs[0]
    axis, descending = root.attrs["axis"], root.attrs["descending"]
    shape, dtype = operand.spec.shape, operand.spec.dtype
    length, rows = shape[axis], prod(shape) // shape[axis]
    carries = root.op == "argsort"
    width = _key_bits(dtype)
    shifts = range(EQUAL.get(dtype, 0) // each * each, width, each)
    number = int32 if length < 1 << 31 else int64
    held: dict[str, int] = {}
    for shift in shifts:
        last = shift == shifts[-1]
        place = root.spec.dtype if last else number
        source = Source(
            rows=rows, length=length, bucket=_bucket(shift, min(each, width), descending),
            open=_rows(held, dtype, length, (number, place) if carries else None) if held
            else _operand(task, place),
        )  # fmt: skip
        if last:
            targets = [
                Destination(part=int(carries), dtype=root.spec.dtype, slot=task.out, place=_place(task))
            ]
        else:
            buffers = {"v": steps.temporary(rows * length, dtype)}
            targets = [Destination(part=0, dtype=dtype, slot=buffers["v"], place=packed_rows(length))]
            if carries:
                buffers["i"] = steps.temporary(rows * length, number)
                targets.append(
                    Destination(part=1, dtype=number, slot=buffers["i"], place=packed_rows(length))
                )
        lower_pass(f"tb_{root.op}", source, targets, steps)
        if not last:
            held = buffers


def _bucket(shift: int, each: int, descending: bool) -> Callable[[Builder, tuple[Expr, ...]], Expr]:
    def bucket(b: Builder, element: tuple[Expr, ...]) -> Expr:
        ordered = key(b, element[0], descending)
        return digit(ordered, b.param("shift", ordered.dtype, shift), each)

    return bucket


def _operand(task: KernelTask, number: DType) -> Callable[[Builder], tuple[Read, dict[str, int]]]:
    """Read the rows of the operand, wherever its axis is, with places of dtype ``number``."""
    operand, axis = task.root.inputs[0], task.root.attrs["axis"]

    def open_(b: Builder) -> tuple[Read, dict[str, int]]:
        inliner, slots = task.inliner(b)
        others = [n for k, n in enumerate(inliner.lengths(operand)) if k != axis]

        def read(row: Expr, at: Expr) -> tuple[Expr, ...]:
            index = ix.unflatten(row, others)
            with inliner.scope():
                return inliner.value(operand, (*index[:axis], at, *index[axis:])), Cast(at, number)

        return read, slots

    return open_


def _rows(
    held: dict[str, int], dtype: DType, length: int, numbers: tuple[DType, DType] | None
) -> Callable[[Builder], tuple[Read, dict[str, int]]]:
    """Read rows that lie one behind the other, with places: of one dtype in memory, read as the other."""

    def open_(b: Builder) -> tuple[Read, dict[str, int]]:
        b.buffer("v", dtype)
        if numbers is not None:
            b.buffer("i", numbers[0])

        def read(row: Expr, at: Expr) -> tuple[Expr, ...]:
            where = packed_rows(length)(b, row, at)
            value = Load("v", where, dtype)
            if numbers is None:
                return (value,)
            stored, wanted = numbers
            place: Expr = Load("i", where, stored)
            return value, place if stored is wanted else Cast(place, wanted)

        return read, held

    return open_


def _place(task: KernelTask) -> Callable[[Builder, Expr, Expr], Expr]:
    """Return where an element of the result lies: on the axis that was sorted along."""
    shape, axis = task.root.spec.shape, task.root.attrs["axis"]
    if axis == len(shape) - 1:
        return packed_rows(shape[axis])
    after = prod(shape[axis + 1 :])

    def place(b: Builder, row: Expr, at: Expr) -> Expr:
        inner = b.size("after", after)
        outer = ix.multiply(ix.quotient(row, inner), b.size("length", shape[axis]))
        return ix.add(ix.multiply(ix.add(outer, at), inner), ix.modulo(row, inner))

    return place


def _ranks(request: ScheduleRequest, target: Target) -> Verdict:
    limits = target.heuristics
    root = request.root
    shape, axis = root.spec.shape, root.attrs["axis"]
    short = 0 in shape or shape[axis] <= limits.rank_sort_max_length
    return True if short else f"rows are longer than {limits.rank_sort_max_length}"


def _build_rank(request: ScheduleRequest, launches: LaunchList) -> None:
    if 0 not in request.root.spec.shape:
        _rank_sort(request.task, launches)


def _partitions(request: ScheduleRequest, target: Target) -> Verdict:
    if target.row_per_task:
        return "it is for work-items"
    return True if _key_bits(request.root.inputs[0].spec.dtype) == 1 else "keys have more than one bit"


def _for_work_items(request: ScheduleRequest, target: Target) -> Verdict:
    return "it is for work-items" if target.row_per_task else True


def _always(request: ScheduleRequest, target: Target) -> Verdict:
    return True


def _by(lower_pass: _Pass, each: int) -> Callable[[ScheduleRequest, LaunchList], None]:
    """Return what appends passes over ``each`` bits."""
    return lambda request, launches: _radix_sort(request.task, launches, lower_pass, each)


_SORT: Final = frozenset({"sort"})
RANK_SORT: Final = Schedule(
    name="rank sort",
    about="rows are short: each element counts those that come before it",
    kinds=_SORT, applies=_ranks, build=_build_rank,
)  # fmt: skip
PARTITION_SORT: Final = Schedule(
    name="partition by workgroups",
    about="keys have one bit: elements of the first kind come before those of the other",
    kinds=_SORT, applies=_partitions, build=_by(lower_partition, 1),
)  # fmt: skip
WORKGROUP_RADIX_SORT: Final = Schedule(
    name="radix sort by workgroups",
    about="rows are long: some bits of the keys a pass, in which a workgroup orders a tile at a time",
    kinds=_SORT, applies=_for_work_items, build=_by(radix_pass_gpu.lower_pass, radix_pass_gpu.BITS),
)  # fmt: skip
RADIX_SORT: Final = Schedule(
    name="radix sort",
    about="rows are long: some bits of the keys a pass, in which a task orders a row or a chunk of one",
    kinds=_SORT, applies=_always, build=_by(distribute, BITS),
)  # fmt: skip

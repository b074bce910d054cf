"""The schedule of reductions across rows: an item takes a panel of columns and adds row after row to it.

The panel stays in the item's cache, rows are read from end to end, and everything is in vectors. It lies in
the buffer of the chunks' states from the start: a driver was seen to take vectors of private arrays apart.
Other devices, and dtypes that have no vectors, let each column be an item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from . import index as ix
from .builder import Builder
from .index import ZERO, const
from .ir import Expr, Load
from .job import Job, Steps, spread
from .layout import Layout
from .reducer import OPS, Reducer, State
from .widen import WIDE, Walk

WIDTH = 1024
LEAST = 32
MOST = 1024


def plan_panels(shape: Sequence[int], over: Sequence[int], steps: Steps) -> tuple[int, int, int]:
    """Return the reduced axis to cut, into how many chunks, and of how many rows each."""
    axis = max(over, key=lambda k: (shape[k], -k))
    kept = prod(n for k, n in enumerate(shape[:-1]) if k not in over)
    panels = -(-shape[-1] // WIDTH) * kept
    count = max(-(-4 * steps.target.groups // panels), -(-shape[axis] // MOST))
    count = max(1, min(count, shape[axis] // LEAST))
    size = -(-shape[axis] // count)
    return axis, -(-shape[axis] // size), size


def lower_panels(job: Job, steps: Steps, reducer: Reducer, layout: Layout) -> tuple[int, int, bool] | None:
    """Append the first launch of a sum or product that keeps the last axis; None, and nothing, for others.

    Returns the slot of the states, chunk after chunk, how many chunks there are, and whether that is already
    the result.
    """
    root, operand = job.root, job.root.inputs[0]
    shape, over = operand.spec.shape, root.attrs["axis"]
    ops, target = steps.target.wide_ops, steps.target
    first = reducer.start()[0]
    # A driver was seen to be faster with an item for each column where elements are compared.
    if OPS.get(reducer.op) not in ops & {"add", "multiply"} or first.dtype not in WIDE:
        return None
    axis, count, size = plan_panels(shape, over, steps)
    direct = count == 1 and root.spec.dtype is first.dtype and layout.is_contiguous
    b = Builder(f"tb_{root.op}_panels")
    pull, slots = job.puller(b)
    lengths = pull.lengths(operand)
    rest = [k for k in range(len(shape) - 1) if k not in over]
    width = const(WIDTH)
    panels = -(-shape[-1] // WIDTH)
    numbers = [b.size("chunks", count), *(lengths[k] for k in rest), b.size("panels", panels)]
    outer, loops = spread(b, numbers, [count, *(shape[k] for k in rest), panels])
    base = b.let(ix.multiply(outer[-1], width), "base")
    columns = b.let(ix.minimum(ix.subtract(lengths[-1], base), width), "wide")
    part = b.buffer("part0", first.dtype, writes=True)
    begins = b.let(ix.flatten((*outer[:-1], base), [*numbers[:-1], lengths[-1]]), "begins")
    lanes = max(target.lanes * 4 // first.dtype.itemsize, 1)
    index: list[Expr] = [ZERO] * len(shape)
    for k, i in zip(rest, outer[1:-1], strict=True):
        index[k] = i

    def walk(value: Callable[[Expr], Expr]) -> bool:
        def emit(k: Expr) -> State:
            with pull.scope():
                b.store(part, ix.add(begins, k), value(k))
            return ()

        found = Walk(ops=ops, lanes=lanes, emit=emit, combine=lambda b, a, x: ())
        return found.loop(b, ZERO, columns, (), ())

    def add(k: Expr) -> Expr:
        index[-1] = ix.add(base, k)
        new = reducer.element(pull.value(operand, tuple(index)), ZERO)
        return reducer.combine(b, (Load(part, ix.add(begins, k), first.dtype),), new)[0]

    def nest(left: Sequence[int]) -> bool:
        if not left:
            return walk(add)
        start: Expr = ZERO
        stop = lengths[left[0]]
        if left[0] == axis and count > 1:
            rows = b.size("chunk", size)
            start = b.let(ix.multiply(outer[0], rows), "start")
            stop = b.let(ix.minimum(ix.add(start, rows), stop), "stop")
        with b.loop(start, stop) as i:
            index[left[0]] = i
            return nest(left[1:])

    if not (walk(lambda k: first) and nest(list(over))):
        return None
    slot = job.out
    if not direct:
        slot = steps.temporary(count * prod(shape[k] for k in rest) * shape[-1], first.dtype)
    steps.add(b.finish(loops, solo=True), {**slots, "part0": slot})
    return slot, count, direct

"""The schedule of a map: one item for each element of the result."""

from __future__ import annotations

from . import index as ix
from .builder import Builder
from .index import const
from .job import Job, Steps, place, spread
from .layout import Layout, packed


def lower_map(job: Job, steps: Steps) -> None:
    """Append the launch that computes a root of elementwise and movement ops."""
    b = Builder(f"tb_{job.root.op}")
    pull, slots = job.puller(b)
    shape = job.root.spec.shape
    lengths = pull.lengths(job.root)
    across = _across(job)
    index, loops = spread(b, lengths, shape, across)
    b.buffer("out", job.root.spec.dtype, writes=True)
    layout = packed(job.out, shape) if job.strides is None else Layout(job.out, shape, job.strides)
    value = pull.value(job.root, index)
    b.store("out", place(b, "out", index, lengths, layout), value)
    steps.add(b.finish(loops, tiled=across is not None), {**slots, "out": job.out})


def lower_stack(job: Job, steps: Steps) -> None:
    """Append the launch that computes all operands of a concat, of one shape, side by side.

    What they have in common is computed once: the words of a random number generator, sine and cosine.
    """
    root, axis = job.root, job.root.attrs["axis"]
    b = Builder("tb_stack")
    pull, slots = job.puller(b)
    shape = root.inputs[0].spec.shape
    lengths = pull.lengths(root.inputs[0])
    index, loops = spread(b, lengths, shape)
    b.buffer("out", root.spec.dtype, writes=True)
    total = pull.lengths(root)
    for k, operand in enumerate(root.inputs):
        shift = ix.multiply(const(k), lengths[axis])
        at = (*index[:axis], ix.add(index[axis], shift), *index[axis + 1 :])
        b.store("out", ix.flatten(at, total), pull.value(operand, index))
    steps.add(b.finish(loops), {**slots, "out": job.out})


def _across(job: Job) -> int | None:
    """Return the axis along which a transposed operand lies packed, where that is not the last one."""
    shape = job.root.spec.shape
    last = len(shape) - 1
    for layout in job.leaves.values():
        if layout.shape != shape or abs(layout.strides[-1] if shape else 1) <= 1:
            continue
        walked = [(abs(s), k) for k, s in enumerate(layout.strides) if s and shape[k] > 8]
        if walked and min(walked)[1] != last:
            return min(walked)[1]
    return None

"""Masks of attention as cuDNN takes them: what is added to each score, of the operands' dtype and packed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Final

from tensorbus.backend_api import Call, SourceCall, StridedArray, launch_of
from tensorbus.backend_api import dtypes as dt

from ..device import runtime

Shape = tuple[int, ...]
_NEVER: Final = {dt.float16: "0xfc00", dt.bfloat16: "0xff80"}
"""The bits of minus infinity."""
_SOURCE: Final = """\
extern "C" __global__ void {name}(
    const {mask} *__restrict__ mask, unsigned short *__restrict__ out, const long long count,
    const long long heads, const long long rows, const long long columns, const long long offset,
    const long long by_batch, const long long by_head, const long long by_row, const long long by_column) {{
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += (long long)gridDim.x * blockDim.x) {{
    const {index} line = ({index})i / ({index})columns, column = ({index})i % ({index})columns;
    const {index} above = line / ({index})rows, row = line % ({index})rows;
    const {index} batch = above / ({index})heads, head = above % ({index})heads;
    const {mask} seen = mask[offset + batch * by_batch + head * by_head + row * by_row + column * by_column];
    out[i] = {value};
  }}
}}
"""


def whole(mask: Shape, query: Shape, key: Shape) -> Shape:
    """Return the shape that a mask is written out in: all queries and keys, and the batches that it has."""
    lead = (1,) * (4 - len(mask)) + mask
    return (*lead[:2], query[2], key[2])


def source(mask: dt.DType, dtype: dt.DType, *, large: bool = False) -> tuple[str, str]:
    """Return the name and the source of what writes a mask out; ``large``: 32 bits do not count it."""
    name = f"tb_mask_{mask.name.removesuffix('_')}_{dtype.name}{'_large' if large else ''}"
    value = f"seen ? 0 : {_NEVER[dtype]}" if mask is dt.bool_ else "seen"
    kind = "unsigned char" if mask is dt.bool_ else "unsigned short"
    index = "long long" if large else "unsigned int"  # 64 bits take a GPU several times as long to divide
    return name, _SOURCE.format(name=name, mask=kind, value=value, index=index)


@dataclass(frozen=True, slots=True)
class _At:
    """Memory of a library's, as kernels are given blocks."""

    ptr: int
    stream: Any


class Written:
    """A program that writes the mask of one kind of call. It takes ``nbytes``, and lies as ``like``."""

    def __init__(self, shape: Shape, mask: dt.DType, dtype: dt.DType, index: int) -> None:
        self.like = StridedArray.contiguous(None, shape, dtype)
        self.nbytes = self.like.nbytes
        self._mask, self._index = mask, index
        self._queues: dict[Any, Any] = {}

    def write(self, mask: StridedArray, begin: int, stream: Any) -> None:
        """Queue the writing of ``mask`` from the address ``begin`` on."""
        key = mask.shape, mask.strides, mask.offset
        if key not in self._queues:
            self._queues[key] = self._queue(mask)
        self._queues[key]([mask.buffer, _At(begin, stream)], ())

    def _queue(self, mask: StridedArray) -> Any:
        shape, count = self.like.shape, prod(self.like.shape)
        name, text = source(self._mask, self.like.dtype, large=count >= 1 << 32)
        lead = 4 - len(mask.shape)
        own = (1,) * lead + mask.shape, (0,) * lead + mask.strides
        strides = [0 if n == 1 else step for n, step in zip(*own, strict=True)]
        call = SourceCall(
            name=name, code=text, operands=(("mask", self._mask, mask.shape),),
            results=(("out", self.like.dtype, shape),), scalars=(),
            sizes=(count, *shape[1:], mask.offset, *strides), grid=(count,),
        )  # fmt: skip
        return runtime().compiler.prepare(text, launch_of(call), self._index)


def written(call: Call, before: int) -> Written:
    """Return what writes the mask of a call whose operands begin after ``before`` others."""
    assert call.shapes is not None
    q, k = call.shapes[before : before + 2]
    return Written(whole(call.shapes[-1], q, k), call.dtypes[-1], call.dtypes[0], call.index)

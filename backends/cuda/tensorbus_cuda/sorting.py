"""Rows sorted by radix, each by one block in shared memory: what generated kernels do in passes over memory.

Stable, by the order of all devices: NaN is the largest, -0.0 equals 0.0, and a descending order inverts the
keys. A pass takes two bits: the items of a block add up, in one 64-bit word, how many elements of each of the
four digits stand before theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

from tensorbus.backend_api import Call, SourceCall, StridedArray, launch_of, pack
from tensorbus.backend_api import dtypes as dt

from .device import runtime

SHORTEST: Final = 49
"""Shorter rows are sorted by rank, all elements at once."""
EACH: Final = 8
"""Elements of an item; short rows have fewer, so that a block is a whole warp."""
_ROOM: Final = 46 << 10
"""Bytes of shared memory that every GPU has for a block, less what the counters take."""
_C: Final = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
_SOURCE: Final = """\
typedef {key} K;
typedef {value} V;
typedef unsigned long long W;
#define LENGTH {length}
#define EACH {each}
#define ITEMS {items}
#define PLACE(k) ((k) + ((k) >> 5))
static __device__ inline K tb_key(K bits) {{
  {order}
  return {result};
}}
extern "C" __global__ void __launch_bounds__(ITEMS) {name}(
    const K *__restrict__ x, {out} *__restrict__ out, const long long rows, const long long n) {{
  __shared__ K keys[PLACE(LENGTH)];
#if {apart}
  V *values = (V *)keys;
#else
  __shared__ V values[PLACE(LENGTH)];
#endif
  __shared__ W totals[ITEMS / 32];
  const int item = threadIdx.x, lane = item & 31, warp = item >> 5;
  for (long long row = blockIdx.y; row < rows; row += gridDim.y) {{
    K key[EACH];
    V value[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {{
      const int at = item + e * ITEMS;
      K bits = 0;
      if (at < n) bits = x[row * n + at];
      keys[PLACE(at)] = bits;
    }}
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; ++e) {{
      const int at = item * EACH + e;
      const K bits = keys[PLACE(at)];
      key[e] = at < n ? tb_key(bits) : (K)~(K)0;
      value[e] = {first};
    }}
    __syncthreads();
    for (int bit = 0; bit < {bits}; bit += 2) {{
      W mine = 0;
      int rank[EACH];
#pragma unroll
      for (int e = 0; e < EACH; ++e) {{
        const int digit = 16 * (int)((key[e] >> bit) & 3);
        rank[e] = (int)((mine >> digit) & 0xffff);
        mine += (W)1 << digit;
      }}
      W upto = mine;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {{
        const W other = __shfl_up_sync(0xffffffffu, upto, step);
        if (lane >= step) upto += other;
      }}
      if (lane == 31) totals[warp] = upto;
      __syncthreads();
      W before = upto - mine, all = 0;
#pragma unroll
      for (int k = 0; k < ITEMS / 32; ++k) {{
        if (k < warp) before += totals[k];
        all += totals[k];
      }}
      before += (all << 16) + (all << 32) + (all << 48);
#pragma unroll
      for (int e = 0; e < EACH; ++e) {{
        rank[e] += (int)((before >> (16 * (int)((key[e] >> bit) & 3))) & 0xffff);
        rank[e] = PLACE(rank[e]);
        keys[rank[e]] = key[e];
#if !{apart}
        values[rank[e]] = value[e];
#endif
      }}
      __syncthreads();
#pragma unroll
      for (int e = 0; e < EACH; ++e) {{
        key[e] = keys[PLACE(item * EACH + e)];
#if !{apart}
        value[e] = values[PLACE(item * EACH + e)];
#endif
      }}
#if {apart}
      __syncthreads();
#pragma unroll
      for (int e = 0; e < EACH; ++e) values[rank[e]] = value[e];
      __syncthreads();
#pragma unroll
      for (int e = 0; e < EACH; ++e) value[e] = values[PLACE(item * EACH + e)];
#endif
    }}
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; ++e) values[PLACE(item * EACH + e)] = value[e];
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; ++e) {{
      const int at = item + e * ITEMS;
      if (at < n) out[row * n + at] = values[PLACE(at)];
    }}
    __syncthreads();
  }}
}}
"""
_TOP: Final = "const K top = (K)((K)1 << {top});\n  "
_FLOAT: Final = (
    _TOP
    + """\
if ((K)(bits & (K)~top) > (K){endless}) bits = (K)(~(K)0 & (K)~top);
  if ((K)(bits << 1) == 0) bits = 0;
  const K made = bits & top ? (K)~bits : (K)(bits | top);"""
)
_ENDLESS: Final = {
    "float8_e4m3fn": "0x7e", "float8_e5m2": "0x7c", "float16": "0x7c00", "bfloat16": "0x7f80",
    "float32": "0x7f800000u", "float64": "0x7ff0000000000000ull",
}  # fmt: skip
"""The last bits, beside the sign's, that are no NaN."""


def sizes_for(length: int) -> tuple[int, int]:
    """Return how many items a block has for rows of this length, and how many elements each."""
    whole = 1 << (length - 1).bit_length()
    each = max(1, min(EACH, whole // 32))
    return whole // each, each


def source(dtype: dt.DType, length: int, *, descending: bool, places: bool) -> tuple[str, str]:
    """Return the name and the source of the kernel for rows of ``dtype``: of a power of two for its length.

    ``places``: it gives where each element was (argsort), not the element.
    """
    items, each = sizes_for(length)
    key, value = _C[dtype.itemsize], "int" if places else _C[dtype.itemsize]
    widths = dtype.itemsize, 4 if places else dtype.itemsize
    room = items * each * 33 // 32
    made = {"uint": "const K made = bits;", "int": _TOP + "const K made = (K)(bits ^ top);"}
    apart = room * sum(widths) > _ROOM
    order = _FLOAT if dtype.is_floating else made[dtype.kind]
    name = f"tb_{'argsort' if places else 'sort'}_rows_{dtype.name}"
    text = _SOURCE.format(
        key=key, value=value, length=items * each, each=each, items=items, name=name, apart=int(apart),
        order=order.format(top=8 * dtype.itemsize - 1, endless=_ENDLESS.get(dtype.name)),
        result="(K)~made" if descending else "made", out="long long" if places else value,
        first="at" if places else "bits", bits=8 * dtype.itemsize,
    )  # fmt: skip
    if apart and widths[1] > widths[0]:
        text = text.replace("__shared__ K keys[PLACE(LENGTH)];",
                            "__shared__ int room[PLACE(LENGTH)];\n  K *keys = (K *)room;")  # fmt: skip
    return name, text


def serves(dtype: dt.DType, length: int) -> bool:
    """Return whether there is a kernel for rows of this length: they fit into shared memory."""
    if not (dtype.is_floating or dtype.kind in ("int", "uint")):
        return False
    items, each = sizes_for(length)
    return length >= SHORTEST and items * each * 33 // 32 * max(dtype.itemsize, 4) <= _ROOM and items <= 1024


def prepared(generated: Callable[[Call], Any]) -> Callable[[Call], Any]:
    """Return what prepares a sort: by block where rows fit into one, else by generated kernels."""

    def prepare(call: Call) -> Any:
        run = _rows(call)
        return generated(call) if run is None else run

    return prepare


def _rows(call: Call) -> Callable[[StridedArray], StridedArray] | None:
    """Return what sorts the rows of a value; None where they do not fit into a block."""
    assert call.shapes is not None
    (shape,), dtype, axis = call.shapes, call.dtypes[0], call.attrs["axis"]
    if 0 in shape or not serves(dtype, shape[axis]):
        return None
    compiler, index = runtime().compiler, call.index
    length, rows = shape[axis], prod(shape) // shape[axis]
    items, _ = sizes_for(length)
    name, text = source(dtype, length, descending=call.attrs["descending"], places=call.op == "argsort")
    user = SourceCall(
        name=name, code=text, operands=(("x", dtype, shape),), results=(("out", call.out_dtype, shape),),
        scalars=(), sizes=(rows, length), grid=(items, rows), group=items,
    )  # fmt: skip
    queue = compiler.prepare(text, launch_of(user), index)
    order = [k for k in range(len(shape)) if k != axis] + [axis]
    back = [order.index(k) for k in range(len(shape))]
    moved = tuple(shape[k] for k in order)
    nbytes = prod(shape) * call.out_dtype.itemsize

    def run(x: StridedArray) -> StridedArray:
        turned = x.view(moved, [x.strides[k] for k in order])
        given = pack(compiler, turned, index)
        out = compiler.allocate(nbytes, index)
        queue([given.buffer, out], ())
        made = StridedArray.contiguous(out, moved, call.out_dtype)
        return made.view(shape, [made.strides[k] for k in back])

    return run

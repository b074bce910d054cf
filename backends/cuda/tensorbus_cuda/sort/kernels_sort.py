"""Rows sorted by radix, each by one block in shared memory, and a long one alone by CUB.

Stable, by the order of all devices: NaN is the largest, -0.0 equals 0.0, and a descending order inverts the
keys. A pass takes two bits: the threads of a block add up, in one 64-bit word, how many elements of each of
the four digits stand before theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from tensorbus.backend_api import Call, Kernel, SourceCall, StridedArray, launch_of, pack
from tensorbus.backend_api import dtypes as dt

from ..device import runtime

SHORTEST: Final = 49
"""Shorter rows are sorted by rank, all elements at once."""
ELEMENTS_PER_THREAD: Final = 8
"""Elements of a thread; short rows have fewer, so that a block is a whole warp."""
_SHARED_BYTES: Final = 46 << 10
"""Bytes of shared memory that every GPU has for a block, less what the counters take."""
SORTED_AT_ONCE_MIN: Final = 4096
"""From which length on a row that fits into no block has its keys sorted at once."""
_WORDS: Final = {1: dt.uint8, 2: dt.uint16, 4: dt.uint32, 8: dt.uint64}
_C: Final = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
_SOURCE: Final = """\
typedef {key} K;
typedef {value} V;
typedef unsigned long long W;
#define LENGTH {length}
#define PER_THREAD {each}
#define THREADS {threads}
#define PLACE(k) ((k) + ((k) >> 5))
{key_function}
extern "C" __global__ void __launch_bounds__(THREADS) {name}(
    const K *__restrict__ x, {out} *__restrict__ out, const long long rows, const long long n) {{
  __shared__ K keys[PLACE(LENGTH)];
#if {apart}
  V *values = (V *)keys;
#else
  __shared__ V values[PLACE(LENGTH)];
#endif
  __shared__ W totals[THREADS / 32];
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  for (long long row = blockIdx.y; row < rows; row += gridDim.y) {{
    K key[PER_THREAD];
    V value[PER_THREAD];
#pragma unroll
    for (int e = 0; e < PER_THREAD; ++e) {{
      const int at = thread + e * THREADS;
      K bits = 0;
      if (at < n) bits = x[row * n + at];
      keys[PLACE(at)] = bits;
    }}
    __syncthreads();
#pragma unroll
    for (int e = 0; e < PER_THREAD; ++e) {{
      const int at = thread * PER_THREAD + e;
      const K bits = keys[PLACE(at)];
      key[e] = at < n ? tb_key(bits) : (K)~(K)0;
      value[e] = {first};
    }}
    __syncthreads();
    for (int bit = 0; bit < {bits}; bit += 2) {{
      W mine = 0;
      int rank[PER_THREAD];
#pragma unroll
      for (int e = 0; e < PER_THREAD; ++e) {{
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
      for (int k = 0; k < THREADS / 32; ++k) {{
        if (k < warp) before += totals[k];
        all += totals[k];
      }}
      before += (all << 16) + (all << 32) + (all << 48);
#pragma unroll
      for (int e = 0; e < PER_THREAD; ++e) {{
        rank[e] += (int)((before >> (16 * (int)((key[e] >> bit) & 3))) & 0xffff);
        rank[e] = PLACE(rank[e]);
        keys[rank[e]] = key[e];
#if !{apart}
        values[rank[e]] = value[e];
#endif
      }}
      __syncthreads();
#pragma unroll
      for (int e = 0; e < PER_THREAD; ++e) {{
        key[e] = keys[PLACE(thread * PER_THREAD + e)];
#if !{apart}
        value[e] = values[PLACE(thread * PER_THREAD + e)];
#endif
      }}
#if {apart}
      __syncthreads();
#pragma unroll
      for (int e = 0; e < PER_THREAD; ++e) values[rank[e]] = value[e];
      __syncthreads();
#pragma unroll
      for (int e = 0; e < PER_THREAD; ++e) value[e] = values[PLACE(thread * PER_THREAD + e)];
#endif
    }}
    __syncthreads();
#pragma unroll
    for (int e = 0; e < PER_THREAD; ++e) values[PLACE(thread * PER_THREAD + e)] = value[e];
    __syncthreads();
#pragma unroll
    for (int e = 0; e < PER_THREAD; ++e) {{
      const int at = thread + e * THREADS;
      if (at < n) out[row * n + at] = values[PLACE(at)];
    }}
    __syncthreads();
  }}
}}
"""
_KEY: Final = """\
static __device__ inline K tb_key(K bits) {{
  {order}
  return {result};
}}"""
_ROW_SOURCE: Final = """\
typedef {key} K;
{key_function}
#define GRID_STRIDE(i, count) \\
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; \\
       i += (long long)gridDim.x * blockDim.x)
extern "C" __global__ void {name}_keys(
    const K *__restrict__ x, K *__restrict__ keys, const long long count) {{
  GRID_STRIDE(i, count) keys[i] = tb_key(x[i]);
}}
extern "C" __global__ void {name}_placed(
    const K *__restrict__ x, const long long *__restrict__ order, {out} *__restrict__ out,
    const long long count) {{
  GRID_STRIDE(i, count) out[i] = {element};
}}
"""
_TOP: Final = "const K top = (K)((K)1 << {top});\n  "
_FLOAT: Final = (
    _TOP
    + """\
if ((K)(bits & (K)~top) > (K){endless}) bits = (K)(~(K)0 & (K)~top);
  if ((K)(bits << 1) == 0) bits = 0;
  const K ordered = bits & top ? (K)~bits : (K)(bits | top);"""
)
_ENDLESS: Final = {
    "float8_e4m3fn": "0x7e", "float8_e5m2": "0x7c", "float16": "0x7c00", "bfloat16": "0x7f80",
    "float32": "0x7f800000u", "float64": "0x7ff0000000000000ull",
}  # fmt: skip
"""The last bits, beside the sign's, that are no NaN."""


def sizes_for(length: int) -> tuple[int, int]:
    """Return how many threads a block has for rows of this length, and how many elements each."""
    whole = 1 << (length - 1).bit_length()
    each = max(1, min(ELEMENTS_PER_THREAD, whole // 32))
    return whole // each, each


def source(dtype: dt.DType, length: int, *, descending: bool, places: bool) -> tuple[str, str]:
    """Return the name and the source of the kernel for rows of ``dtype``: of a power of two for its length.

    ``places``: it gives where each element was (argsort), not the element.
    """
    threads, each = sizes_for(length)
    key, value = _C[dtype.itemsize], "int" if places else _C[dtype.itemsize]
    widths = dtype.itemsize, 4 if places else dtype.itemsize
    room = threads * each * 33 // 32
    apart = room * sum(widths) > _SHARED_BYTES
    name = f"tb_{'argsort' if places else 'sort'}_rows_{dtype.name}"
    text = _SOURCE.format(
        key=key, value=value, length=threads * each, each=each, threads=threads, name=name, apart=int(apart),
        key_function=_key_function(dtype, descending), out="long long" if places else value,
        first="at" if places else "bits", bits=8 * dtype.itemsize,
    )  # fmt: skip
    if apart and widths[1] > widths[0]:
        text = text.replace("__shared__ K keys[PLACE(LENGTH)];",
                            "__shared__ int room[PLACE(LENGTH)];\n  K *keys = (K *)room;")  # fmt: skip
    return name, text


def _key_function(dtype: dt.DType, descending: bool) -> str:
    """Return the function that makes keys of elements: unsigned integers in their order."""
    integer_code = {"uint": "const K ordered = bits;", "int": _TOP + "const K ordered = (K)(bits ^ top);"}
    order = (_FLOAT if dtype.is_floating else integer_code[dtype.kind]).format(
        top=8 * dtype.itemsize - 1, endless=_ENDLESS.get(dtype.name)
    )
    return _KEY.format(order=order, result="(K)~ordered" if descending else "ordered")


def long_source(dtype: dt.DType, *, descending: bool, places: bool) -> tuple[str, str]:
    """Return the name and the source of what makes the keys of a long row, and of what puts it in order."""
    key, name = _C[dtype.itemsize], f"tb_{'argsort' if places else 'sort'}_long_{dtype.name}"
    return name, _ROW_SOURCE.format(
        key=key, key_function=_key_function(dtype, descending), name=name, out="long long" if places else key,
        element="order[i]" if places else "x[order[i]]",
    )  # fmt: skip


def _has_keys(dtype: dt.DType) -> bool:
    """Return whether elements have keys: unsigned integers in their order."""
    return dtype.is_floating or dtype.kind in ("int", "uint")


def serves(dtype: dt.DType, length: int) -> bool:
    """Return whether there is a kernel for rows of this length: they fit into shared memory."""
    if not _has_keys(dtype):
        return False
    threads, each = sizes_for(length)
    return (
        length >= SHORTEST
        and threads * each * 33 // 32 * max(dtype.itemsize, 4) <= _SHARED_BYTES
        and threads <= 1024
    )


def _fit_a_block(call: Call) -> bool | str:
    """Return whether the rows of a call fit into a block each, or why they do not."""
    for shape in call.shapes or ():
        if 0 not in shape and serves(call.dtypes[0], shape[call.attrs["axis"]]):
            return True
    return f"only rows of numbers that fit into shared memory, from {SHORTEST} elements on"


def _is_long(call: Call) -> bool | str:
    """Return whether a call has one row only, and a long one; several do better without CUB."""
    dtype = call.dtypes[0]
    for shape in call.shapes or ():
        if prod(shape) == shape[call.attrs["axis"]] >= SORTED_AT_ONCE_MIN and _has_keys(dtype):
            return True
    return f"only one row of numbers, from {SORTED_AT_ONCE_MIN} elements on"


def _rows(call: Call) -> Callable[[StridedArray], StridedArray]:
    """Return what sorts the rows of a value, which fit into a block each."""
    assert call.shapes is not None
    (shape,), dtype, axis = call.shapes, call.dtypes[0], call.attrs["axis"]
    compiler, index = runtime().compiler, call.index
    length, rows = shape[axis], prod(shape) // shape[axis]
    threads, _ = sizes_for(length)
    name, text = source(dtype, length, descending=call.attrs["descending"], places=call.op == "argsort")
    user = SourceCall(
        name=name, code=text, operands=(("x", dtype, shape),), results=(("out", call.out_dtype, shape),),
        scalars=(), sizes=(rows, length), grid=(threads, rows), group=threads,
    )  # fmt: skip
    queue = compiler.prepare(text, launch_of(user), index)
    nbytes = prod(shape) * call.out_dtype.itemsize

    def sort(keys: StridedArray) -> Any:
        out = compiler.allocate(nbytes, index)
        queue([keys.buffer, out], ())
        return out

    return _along(call, sort)


def _long(call: Call) -> Callable[[StridedArray], StridedArray]:
    """Return what sorts a long row that is alone: its keys by CUB, which CuPy has."""
    assert call.shapes is not None
    (shape,), dtype = call.shapes, call.dtypes[0]
    count = prod(shape)
    from .. import kernels_cupy

    compiler, index = runtime().compiler, call.index
    places = call.op == "argsort"
    name, text = long_source(dtype, descending=call.attrs["descending"], places=places)
    word = _WORDS[dtype.itemsize]
    x, keys = ("x", dtype, (count,)), ("keys", word, (count,))
    order, out = ("order", dt.int64, (count,)), ("out", call.out_dtype, (count,))

    def queue_of(what: str, operands: Any, result: Any) -> Callable[..., Any]:
        user = SourceCall(
            name=f"{name}_{what}", code=text, operands=operands, results=(result,), scalars=(),
            sizes=(count,), grid=(count,), group=0,
        )  # fmt: skip
        return compiler.prepare(text, launch_of(user), index)

    make, place = queue_of("keys", (x,), keys), queue_of("placed", (x, order), out)

    def sort(keys: StridedArray) -> Any:
        words = StridedArray.contiguous(compiler.allocate(count * word.itemsize, index), (count,), word)
        make([keys.buffer, words.buffer], ())
        order = kernels_cupy.order_of(words, index)
        result = compiler.allocate(count * call.out_dtype.itemsize, index)
        place([keys.buffer, order.buffer, result], ())
        return result

    return _along(call, sort)


def _along(call: Call, sort: Callable[[StridedArray], Any]) -> Callable[[StridedArray], StridedArray]:
    """Return what sorts along the axis of a call with what sorts packed rows into a block."""
    assert call.shapes is not None
    (shape,), axis = call.shapes, call.attrs["axis"]
    compiler, index = runtime().compiler, call.index
    order = [k for k in range(len(shape)) if k != axis] + [axis]
    back = [order.index(k) for k in range(len(shape))]
    moved = tuple(shape[k] for k in order)

    def run(x: StridedArray) -> StridedArray:
        last = x.view(moved, [x.strides[k] for k in order])
        out = StridedArray.contiguous(sort(pack(compiler, last, index)), moved, call.out_dtype)
        return out.view(shape, [out.strides[k] for k in back])

    return run


def sort_kernels(generated: Callable[[str], Kernel]) -> dict[str, Sequence[Kernel]]:
    """Return the candidates of ``sort`` and ``argsort``: rows in a block each, one long row, generated."""
    rows = Kernel(name="rows", prepare=_rows, supports=_fit_a_block)
    long = Kernel(name="cub", prepare=_long, supports=_is_long)
    return {op: (rows, long, generated(op)) for op in ("sort", "argsort")}

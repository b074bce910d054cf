"""CUDA C++ as data. It takes no headers, so that NVRTC needs none: what they would define is written here."""

from __future__ import annotations

from typing import Final

from tensorbus.backend_api import (
    CASTS,
    EXPRESSIONS,
    RANDOM,
    SATURATING,
    Dialect,
    Helper,
    Heuristics,
    Target,
    TypeRule,
    float8_types,
)
from tensorbus.backend_api import dtypes as dt

from .attention.flex_schedule import tensor_core_schedules

OPTIONS: Final = ("--fmad=false", "--std=c++17")
"""Products and sums round apart, as on every other device. Divisions, roots and small numbers are exact."""
THREADS: Final = 256
COUNTS: Final = 4096
"""At how many places a kernel may count its groups."""
"""The most threads of a block whose kernel has no larger groups: kernels are compiled for so many."""

TYPES: Final[dict[dt.DType, TypeRule]] = {
    dt.bool_: TypeRule(
        storage="unsigned char", register="bool", unsigned="unsigned char", load="({p}[{i}] != 0)",
        store="{p}[{i}] = ({v}) ? 1 : 0",
    ),
    dt.int8: TypeRule(storage="signed char", register="signed char", unsigned="unsigned char"),
    dt.int16: TypeRule(storage="short", register="short", unsigned="unsigned short"),
    dt.int32: TypeRule(storage="int", register="int", unsigned="unsigned int"),
    dt.int64: TypeRule(
        storage="long long", register="long long", unsigned="unsigned long long", suffix="LL"
    ),
    dt.uint8: TypeRule(
        storage="unsigned char", register="unsigned char", unsigned="unsigned char", suffix="u"
    ),
    dt.uint16: TypeRule(
        storage="unsigned short", register="unsigned short", unsigned="unsigned short", suffix="u"
    ),
    dt.uint32: TypeRule(
        storage="unsigned int", register="unsigned int", unsigned="unsigned int", suffix="u"
    ),
    dt.uint64: TypeRule(
        storage="unsigned long long", register="unsigned long long", unsigned="unsigned long long",
        suffix="ULL",
    ),
    # 16 bits in memory, float in registers, rounded after each op: the same result everywhere.
    dt.float16: TypeRule(
        storage="unsigned short", register="float", unsigned="unsigned int", math="f", suffix="f",
        load="tb_from_half({p}[{i}])", store="{p}[{i}] = tb_half({v})",
        rounded="tb_from_half(tb_half({0}))",
    ),
    dt.bfloat16: TypeRule(
        storage="unsigned short", register="float", unsigned="unsigned int", math="f", suffix="f",
        load="__uint_as_float((unsigned int){p}[{i}] << 16)", store="{p}[{i}] = tb_bfloat({v})",
        store_exact="{p}[{i}] = (unsigned short)(__float_as_uint({v}) >> 16)", rounded="tb_as_bfloat({0})",
    ),
    **float8_types("unsigned char", "unsigned int", "__float_as_uint", "__uint_as_float", "f"),
    dt.float32: TypeRule(storage="float", register="float", unsigned="unsigned int", math="f", suffix="f"),
    dt.float64: TypeRule(storage="double", register="double", unsigned="unsigned long long"),
    dt.complex64: TypeRule(storage="float2", register="float2"),
    dt.complex128: TypeRule(storage="double2", register="double2"),
}  # fmt: skip

PROLOGUE: Final = (
    f"#define TB_THREADS(group) ((group) > {THREADS} ? (group) : {THREADS})\n"
    """\
// Pairs are rounded four times as fast as single numbers.
static __device__ inline unsigned short tb_half(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned int both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(0.0f), "f"(x));
  return (unsigned short)both;
#else
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#endif
}
static __device__ inline float tb_from_half(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
static __device__ inline unsigned short tb_bfloat(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned short made;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(made) : "f"(x));
  return made;
#else
  const unsigned int bits = __float_as_uint(x);
  return x != x ? (unsigned short)((bits >> 16) | 64u)
                : (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}
static __device__ inline float tb_as_bfloat(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned int both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(x), "f"(0.0f));
  return __uint_as_float(both);
#else
  return __uint_as_float((unsigned int)tb_bfloat(x) << 16);
#endif
}
// 16 bytes at a time: arrays of a constant length stay in registers.
template <int N> static __device__ inline void tb_move(void *to, const void *from) {
  if constexpr (N >= 16) {
    for (int k = 0; k < N / 16; ++k) ((uint4 *)to)[k] = ((const uint4 *)from)[k];
  } else if constexpr (N == 8) {
    *(uint2 *)to = *(const uint2 *)from;
  } else if constexpr (N == 4) {
    *(unsigned int *)to = *(const unsigned int *)from;
  } else {
    *(unsigned short *)to = *(const unsigned short *)from;
  }
}
template <typename T> static __device__ inline T tb_shuffle_xor(T x, int mask) {
  if constexpr (sizeof(T) <= 4) {
    return (T)__shfl_xor_sync(0xffffffffu, x, mask);
  } else {
    union { T whole; unsigned int part[sizeof(T) / 4]; } both;
    both.whole = x;
    for (int k = 0; k < (int)(sizeof(T) / 4); ++k)
      both.part[k] = __shfl_xor_sync(0xffffffffu, both.part[k], mask);
    return both.whole;
  }
}
template <typename T, int N> struct tb_vector {
  T lane[N];
  tb_vector() = default;
  __device__ explicit tb_vector(T x) {
    for (int k = 0; k < N; ++k) lane[k] = x;
  }
};
template <typename T, int N>
static __device__ inline tb_vector<T, N> operator+(tb_vector<T, N> a, tb_vector<T, N> b) {
  for (int k = 0; k < N; ++k) a.lane[k] = a.lane[k] + b.lane[k];
  return a;
}
template <typename T, int N>
static __device__ inline tb_vector<T, N> operator*(tb_vector<T, N> a, tb_vector<T, N> b) {
  for (int k = 0; k < N; ++k) a.lane[k] = (T)((unsigned long long)a.lane[k] * b.lane[k]);
  return a;
}
static __device__ inline float tb_fma(float a, float b, float c) { return fmaf(a, b, c); }
static __device__ inline double tb_fma(double a, double b, double c) { return fma(a, b, c); }
template <typename T, int N>
static __device__ inline tb_vector<T, N> tb_fma(tb_vector<T, N> a, tb_vector<T, N> b, tb_vector<T, N> c) {
  for (int k = 0; k < N; ++k) c.lane[k] = tb_fma(a.lane[k], b.lane[k], c.lane[k]);
  return c;
}
template <typename T, int N> static __device__ inline tb_vector<T, N> tb_load(const T *p) {
  tb_vector<T, N> v;
  for (int k = 0; k < N; ++k) v.lane[k] = p[k];
  return v;
}
template <typename T, int N>
static __device__ inline void tb_store(T *p, tb_vector<T, N> v, long long n) {
  for (int k = 0; k < N; ++k)
    if (k < n) p[k] = v.lane[k];
}
// One instruction tells NaN and the sign of zero, too.
#if __CUDA_ARCH__ >= 800
static __device__ inline float tb_larger(float a, float b) {
  float found;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
}
static __device__ inline float tb_smaller(float a, float b) {
  float found;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
}
#else
static __device__ inline float tb_larger(float a, float b) { return a != a || a > b ? a : b; }
static __device__ inline float tb_smaller(float a, float b) { return a != a || a < b ? a : b; }
#endif
static __device__ inline double tb_larger(double a, double b) { return a != a || a > b ? a : b; }
static __device__ inline double tb_smaller(double a, double b) { return a != a || a < b ? a : b; }
// Positions are below 2**32 nearly always, and dividing 64 bits takes four times as long.
static __device__ inline long long tb_quotient(long long a, long long b) {
  return ((a | b) >> 32) == 0 ? (long long)((unsigned int)a / (unsigned int)b) : a / b;
}
static __device__ inline long long tb_modulo(long long a, long long b) {
  return ((a | b) >> 32) == 0 ? (long long)((unsigned int)a % (unsigned int)b) : a % b;
}
static __device__ inline void tb_report(long long *errors, long long code, long long value, long long limit) {
  if (value >= 0 && value < limit) return;
  if (atomicCAS((int *)errors, 0, (int)code) != 0) return;
  errors[1] = value;
  errors[2] = limit;
}
"""
)
# What a block stored is seen everywhere before it is counted, and by the last one what the others did.
_ARRIVE: Final = Helper("arrive", "tb_arrive({p} + ({i}), {n})", """\
{inline}bool tb_arrive(int *count, long long total) {{
  __shared__ int last;
  __syncthreads();
  if (threadIdx.x == 0) {{
    __threadfence();
    last = atomicAdd(count, 1) == (int)total - 1;
    if (last) *count = 0;
    if (last) __threadfence();
  }}
  __syncthreads();
  return last;
}}""")  # fmt: skip
# Rounding to odd first makes the second rounding, to 16 bits, exact.
_NARROW: Final = Helper("narrow", "tb_narrow({0})", """\
static __device__ inline float tb_narrow(double x) {{
  const float cut = __double2float_rz(x);
  return isfinite(x) && (double)cut != x ? __uint_as_float(__float_as_uint(cut) | 1u) : cut;
}}""")  # fmt: skip
# The compiler makes 32767 of -32768 where it finds the magnitude of 16 bits: these are taken in 32, unseen.
_ABS: Final = Helper("abs", "tb_abs_{S}({0})", """\
{inline}{T} tb_abs_{S}({T} a) {{
  if (sizeof({T}) > 2) return a < 0 ? ({T})(0 - ({U})a) : a;
  int wide;
  asm("abs.s32 %0, %1;" : "=r"(wide) : "r"((int)a));
  return ({T})wide;
}}""")  # fmt: skip


# What is off by two bits of 24 is rounded right to eight: no quotient of such floats is as near the middle
# between two of them, unless it is exact. Divisors are scaled to where the instruction is exact enough.
_OVER: Final = Helper("over", "tb_over({0}, {1})", """\
static __device__ inline float tb_over(float a, float b) {{
  const float scale = fabsf(b) < 0x1p-100f ? 0x1p30f : fabsf(b) > 0x1p100f ? 0x1p-30f : 1.0f;
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b * scale));
  return a * scale * inverse;
}}""")  # fmt: skip


_COMBINED: Final = {
    (op, d): f"atomic{name}(({kind} *){{p}} + ({{i}}), ({kind})({{v}}))"
    for op, name, kind in (("add", "Add", "{U}"), ("minimum", "Min", "{T}"), ("maximum", "Max", "{T}"))
    for d in (dt.int32, dt.uint32, dt.int64, dt.uint64)
}


OLDEST: Final = 60
"""The compute capability, times 10, of the oldest GPUs."""
SHARED: Final = 48 << 10
"""The bytes of shared memory that a block of any GPU may have."""


def native(architecture: str) -> str:
    """Return the name by which compilers know an architecture with the instructions that no later one has."""
    return f"{architecture}a" if architecture == "90" else architecture


def target(units: int, architecture: int = OLDEST, shared: int = SHARED) -> Target:
    """Return the numbers of a GPU with ``units`` multiprocessors, each of which holds 2048 threads."""
    return Target(
        tasks_to_fill=64 * units, work_items_to_fill=1024 * units, lanes=4, row_per_task=False,
        tile_rows=4, min_chunk=8, vector_bytes=16, subgroup_size=32,
        atomics=frozenset(_COMBINED), max_workgroup=1024, local_memory=3 << 14, workgroup_counters=COUNTS,
        # On an H100 a sum of 1e8 float32 takes 148 us in blocks of 32, 140 in blocks of 64, 138 in one.
        heuristics=Heuristics(sum_block=64), schedules=tensor_core_schedules(architecture, shared),
    )  # fmt: skip


def dialect(units: int, architecture: int = OLDEST, shared: int = SHARED) -> Dialect:
    """Return CUDA C++ for a GPU with ``units`` multiprocessors, of compute capability 6.0 or later.

    ``architecture`` is that, times 10; ``shared`` is how many bytes of shared memory a block may have.

    >>> from tensorbus.backend_api import dtypes
    >>> dtypes.complex128 in dialect(132).types
    True
    """
    head = 'extern "C" __global__ void __launch_bounds__(TB_THREADS({group})) {name}({arguments})'
    return Dialect(
        name="CUDA C++",
        types=TYPES,
        index=TypeRule(storage="long long", register="long long", unsigned="unsigned long long"),
        expressions={
            **EXPRESSIONS,
            **RANDOM,
            "abs": {**EXPRESSIONS["abs"], "int": _ABS},
            **{
                name: {**EXPRESSIONS[name], "float": f"tb_{word}({{0}}, {{1}})"}
                for name, word in (("maximum", "larger"), ("minimum", "smaller"))
            },
            "quotient": {"index": "tb_quotient({0}, {1})"},
            "modulo": {"index": "tb_modulo({0}, {1})"},
            **{
                f"shuffle_xor_{1 << k}": dict.fromkeys(
                    ("bool", "int", "uint", "float", "complex"), f"tb_shuffle_xor({{0}}, {1 << k})"
                )
                for k in range(5)
            },
        },
        short={("divide", dt.bfloat16): _OVER},
        casts={**CASTS, **SATURATING},
        kernel=head,
        task=head,
        buffer="{const}{T} *__restrict__ {name}",
        aliased_buffer="{const}{T} *{name}",
        inline="static __device__ inline ",
        parallel=tuple(f"((long long)blockIdx.{x} * blockDim.{x} + threadIdx.{x})" for x in "xyz"),
        # Of axes 1 and 2 a launch has 65535 blocks at most.
        strides=tuple(f"(long long)gridDim.{x} * blockDim.{x}" for x in "xyz"),
        barrier="__syncthreads()",
        arrive=_ARRIVE,
        shared="__shared__",
        unroll="#pragma unroll",
        access_array="alignas(16) {T} {name}[{n}]",
        access_read="tb_move<{n}>({to}, {from})",
        access_write="tb_move<{n}>({to}, {from})",
        wide={"fma": "tb_fma({0}, {1}, {2})"},
        vector_type="tb_vector<{T}, {lanes}>",
        vector_load="tb_load<{T}, {lanes}>({p} + ({i}))",
        vector_store="tb_store<{T}, {lanes}>({p} + ({i}), {v}, {lanes})",
        vector_store_some="tb_store<{T}, {lanes}>({p} + ({i}), {v}, {n})",
        report="tb_report({p}, {code}, {value}, {limit});",
        combined=_COMBINED,
        infinity="__int_as_float(0x7f800000)",
        nan="__int_as_float(0x7fffffff)",
        prologue=PROLOGUE,
        narrow=_NARROW,
        target=target(units, architecture, shared),
    )

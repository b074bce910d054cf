"""The Metal Shading Language as data. Metal has no 64-bit floats, so neither does the table.

What its standard library lacks stands before every kernel, in functions of a few units in the last place.
"""

from __future__ import annotations

from typing import Final

from tensorbus.backend_api import CASTS, EXPRESSIONS, RANDOM, SATURATING, Dialect, Launch, Target, TypeRule
from tensorbus.backend_api import dtypes as dt

TYPES: Final[dict[dt.DType, TypeRule]] = {
    dt.bool_: TypeRule(
        storage="uchar", register="bool", unsigned="uchar", load="({p}[{i}] != 0)",
        store="{p}[{i}] = ({v}) ? 1 : 0",
    ),
    dt.int8: TypeRule(storage="char", register="char", unsigned="uchar"),
    dt.int16: TypeRule(storage="short", register="short", unsigned="ushort"),
    dt.int32: TypeRule(storage="int", register="int", unsigned="uint"),
    dt.int64: TypeRule(storage="long", register="long", unsigned="ulong", suffix="L"),
    dt.uint8: TypeRule(storage="uchar", register="uchar", unsigned="uchar", suffix="u"),
    dt.uint16: TypeRule(storage="ushort", register="ushort", unsigned="ushort", suffix="u"),
    dt.uint32: TypeRule(storage="uint", register="uint", unsigned="uint", suffix="u"),
    dt.uint64: TypeRule(storage="ulong", register="ulong", unsigned="ulong", suffix="UL"),
    # 16 bits in memory, float in registers, rounded after each op: the same result everywhere.
    dt.float16: TypeRule(
        storage="half", register="float", unsigned="uint", suffix="f", load="(float){p}[{i}]",
        store="{p}[{i}] = (half)({v})", rounded="(float)(half)({0})",
    ),
    dt.bfloat16: TypeRule(
        storage="ushort", register="float", unsigned="uint", suffix="f",
        load="as_type<float>((uint){p}[{i}] << 16)", store="{p}[{i}] = tb_bfloat({v})",
        rounded="as_type<float>((uint)tb_bfloat({0}) << 16)",
    ),
    dt.float32: TypeRule(storage="float", register="float", unsigned="uint", suffix="f"),
    dt.complex64: TypeRule(storage="float2", register="float2"),
}  # fmt: skip

# Products and sums round apart, as on every other device; MLX's safe mathematics alone lets them be fused.
PROLOGUE: Final = """\
#include <metal_stdlib>
#pragma METAL fp contract(off)
using namespace metal;
static inline ushort tb_bfloat(float x) {
  const uint bits = as_type<uint>(x);
  return isnan(x) ? (ushort)((bits >> 16) | 64u) : (ushort)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
"""
# What the standard library lacks is called as C calls it, by every expression that the languages share.
_LACKING: Final = {
    # Below 1 a polynomial in the square; above it one of what is left of 1, divided by exp(-x * x).
    "erf": """\
static inline float own_erf(float x) {
  const float a = fabs(x), t = x * x, u = a - 2.5f;
  if (a < 1.0f) {
    const float p = ((((((-9.667044571e-6f * t + 1.126595903e-4f) * t - 8.484080406e-4f) * t
      + 5.221031808e-3f) * t - 2.686543073e-2f) * t + 0.112837825f) * t - 0.3761263847f) * t + 0.1283791671f;
    return x + x * p;
  }
  if (!(a < 4.0f)) return isnan(x) ? x : copysign(1.0f, x);
  const float p = ((((((((-6.145935492e-6f * u + 2.372384766e-5f) * u - 5.479694383e-5f) * u
    + 1.946092096e-4f) * u - 7.369641037e-4f) * u + 2.480648428e-3f) * u - 8.000607581e-3f) * u
    + 2.493411373e-2f) * u - 7.434739018e-2f) * u + 0.2108065393f;
  return copysign(1.0f - exp(-t) * p, x);
}
""",
    # The series, where exp(x) - 1 would lose digits.
    "expm1": """\
static inline float own_expm1(float x) {
  if (!(fabs(x) < 0.5f)) return exp(x) - 1.0f;
  const float p = ((((((2.7557319e-6f * x + 2.4801587e-5f) * x + 1.9841270e-4f) * x + 1.3888889e-3f) * x
    + 8.3333333e-3f) * x + 4.1666667e-2f) * x + 0.16666667f) * x + 0.5f;
  return x == 0 ? x : x + x * x * p;
}
""",
    # What rounding took from 1 + x is put right in proportion.
    "log1p": """\
static inline float own_log1p(float x) {
  const float u = 1.0f + x;
  return u == 1.0f ? x : u == INFINITY ? u : log(u) * (x / (u - 1.0f));
}
""",
    "hypot": """\
static inline float own_hypot(float x, float y) {
  const float a = fabs(x), b = fabs(y), m = a > b ? a : b, r = (a > b ? b : a) / m;
  if (isinf(a) || isinf(b)) return INFINITY;
  if (isnan(a) || isnan(b)) return NAN;
  return m == 0 ? m : m * sqrt(1.0f + r * r);
}
""",
    "nextafter": """\
static inline float own_nextafter(float x, float y) {
  if (isnan(x) || isnan(y)) return NAN;
  if (x == y) return y;
  if (x == 0) return as_type<float>(1u | (as_type<uint>(y) & 0x80000000u));
  return as_type<float>(as_type<uint>(x) + ((x < y) == (x > 0) ? 1u : 0xffffffffu));
}
""",
}
_VECTOR: Final = """\
template <typename T, int N> struct tb_vector {
  T lane[N];
  tb_vector() = default;
  explicit tb_vector(T x) {
    for (int k = 0; k < N; ++k) lane[k] = x;
  }
};
template <typename T, int N> static inline tb_vector<T, N> operator+(tb_vector<T, N> a, tb_vector<T, N> b) {
  for (int k = 0; k < N; ++k) a.lane[k] = a.lane[k] + b.lane[k];
  return a;
}
template <typename T, int N> static inline tb_vector<T, N> operator*(tb_vector<T, N> a, tb_vector<T, N> b) {
  for (int k = 0; k < N; ++k) a.lane[k] = (T)((ulong)a.lane[k] * b.lane[k]);
  return a;
}
template <int N>
static inline tb_vector<float, N> tb_fma(tb_vector<float, N> a, tb_vector<float, N> b,
                                         tb_vector<float, N> c) {
  for (int k = 0; k < N; ++k) c.lane[k] = fma(a.lane[k], b.lane[k], c.lane[k]);
  return c;
}
template <typename T, int N> static inline tb_vector<T, N> tb_load(const device T *p) {
  tb_vector<T, N> v;
  for (int k = 0; k < N; ++k) v.lane[k] = p[k];
  return v;
}
template <typename T, int N> static inline void tb_store(device T *p, tb_vector<T, N> v, long n) {
  for (int k = 0; k < N; ++k)
    if (k < n) p[k] = v.lane[k];
}
"""
_REPORT: Final = """\
static inline void tb_report(device long *errors, long code, long value, long limit) {
  if (value >= 0 && value < limit) return;
  int found = 0;
  while (!atomic_compare_exchange_weak_explicit((device atomic_int *)errors, &found, (int)code,
                                                memory_order_relaxed, memory_order_relaxed))
    if (found != 0) return;
  errors[1] = value;
  errors[2] = limit;
}
"""
MAX_BUFFERS: Final = 31
"""The arguments in memory that a function may have, with parameters, errors and a sign of the end."""
_GROUP: Final = 256
_SIDE: Final = 16
HEAD: Final = "kernel void {name}("
"""How the head of a kernel begins: helpers stand before it, its body behind it."""


def prologue() -> str:
    """Return what stands before every kernel."""
    named = "".join(f"#define {name} own_{name}\n" for name in _LACKING)
    return "".join((PROLOGUE, *_LACKING.values(), named, _VECTOR, _REPORT))


def dialect(cores: int = 16) -> Dialect:
    """Return the Metal Shading Language for a GPU of so many cores.

    >>> from tensorbus.backend_api import dtypes
    >>> dtypes.float64 in dialect().types
    False
    """
    head = HEAD + "{arguments}, uint3 tb_at [[thread_position_in_grid]])"
    return Dialect(
        name="MSL",
        types=TYPES,
        index=TypeRule(storage="long", register="long", unsigned="ulong"),
        expressions={**EXPRESSIONS, **RANDOM},
        casts={**CASTS, **SATURATING},
        kernel=head,
        task=head,
        buffer="{const}device {T} *{name}",
        param="constant {T} &{name}",
        parallel=tuple(f"(long)tb_at.{axis}" for axis in "xyz"),
        barrier="threadgroup_barrier(mem_flags::mem_threadgroup)",
        shared="threadgroup",
        unroll="#pragma unroll",
        wide={"fma": "tb_fma({0}, {1}, {2})"},
        vector_type="tb_vector<{T}, {lanes}>",
        vector_load="tb_load<{T}, {lanes}>({p} + ({i}))",
        vector_store="tb_store<{T}, {lanes}>({p} + ({i}), {v}, {lanes})",
        vector_store_some="tb_store<{T}, {lanes}>({p} + ({i}), {v}, {n})",
        report="tb_report({p}, {code}, {value}, {limit});",
        prologue=prologue(),
        target=Target(
            tasks_to_fill=64 * cores,
            work_items_to_fill=1024 * cores,
            lanes=4,
            row_per_task=False,
            tile_rows=4,
            max_buffers=MAX_BUFFERS - 3,
        ),
    )


def group_of(launch: Launch) -> tuple[int, ...]:
    """Return the threads of each axis that make a threadgroup: squares for tiles, else along axis 0."""
    grid = launch.grid or (1,)
    if launch.group:
        return (launch.group, *(1,) * (len(grid) - 1))
    if launch.tiled and min(grid[:2]) >= _SIDE:
        return (_SIDE, _SIDE, *(1,) * (len(grid) - 2))
    room, group = _GROUP, []
    for n in grid:
        group.append(max(min(n, room), 1))
        room //= group[-1]
    return tuple(group)

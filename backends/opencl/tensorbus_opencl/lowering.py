"""OpenCL C as data. What a device lacks leaves the table: no entry is ever an approximation of another."""

from __future__ import annotations

from typing import Final

from tensorbus.backend_api import CASTS, EXPRESSIONS, Dialect, Helper, Target, TypeRule
from tensorbus.backend_api import dtypes as dt

INTEGERS: Final[dict[dt.DType, TypeRule]] = {
    dt.int8: TypeRule(storage="char", register="char", unsigned="uchar"),
    dt.int16: TypeRule(storage="short", register="short", unsigned="ushort"),
    dt.int32: TypeRule(storage="int", register="int", unsigned="uint"),
    dt.int64: TypeRule(storage="long", register="long", unsigned="ulong", suffix="L"),
    dt.uint8: TypeRule(storage="uchar", register="uchar", unsigned="uchar", suffix="u"),
    dt.uint16: TypeRule(storage="ushort", register="ushort", unsigned="ushort", suffix="u"),
    dt.uint32: TypeRule(storage="uint", register="uint", unsigned="uint", suffix="u"),
    dt.uint64: TypeRule(storage="ulong", register="ulong", unsigned="ulong", suffix="UL"),
}
BOOL: Final = TypeRule(
    storage="uchar",
    register="bool",
    unsigned="uchar",
    load="({p}[{i}] != 0)",
    store="{p}[{i}] = ({v}) ? 1 : 0",
)
FLOAT: Final = TypeRule(storage="float", register="float", unsigned="uint", suffix="f")
DOUBLE: Final = TypeRule(storage="double", register="double", unsigned="ulong")
# Halves are stored as 16 bits, computed in float and rounded after each op: the same result everywhere.
HALF: Final = TypeRule(
    storage="half", register="float", unsigned="uint", suffix="f", load="convert_float({p}[{i}])",
    store="{p}[{i}] = convert_half_rte({v})", rounded="convert_float(convert_half_rte({0}))",
)  # fmt: skip
HALF_BY_FUNCTIONS: Final = TypeRule(
    storage="half", register="float", unsigned="uint", suffix="f", load="vload_half({i}, {p})",
    store="vstore_half_rte({v}, {i}, {p})", rounded="tb_round_half({0})",
)  # fmt: skip
# A driver was seen to crash on unrolled loops over native halves; this makes integers of them.
HALF_BY_BITS: Final = TypeRule(
    storage="half", register="float", unsigned="uint", suffix="f",
    load="tb_from_half(((__global const ushort *){p})[{i}])", store="{p}[{i}] = convert_half_rte({v})",
    rounded="convert_float(convert_half_rte({0}))",
)  # fmt: skip
BFLOAT: Final = TypeRule(
    storage="ushort", register="float", unsigned="uint", suffix="f", load="as_float((uint){p}[{i}] << 16)",
    store="{p}[{i}] = tb_bfloat({v})", rounded="as_float((uint)tb_bfloat({0}) << 16)",
)  # fmt: skip

_PROLOGUE = """\
#pragma OPENCL FP_CONTRACT OFF
static inline ushort tb_bfloat(float x) {
  const uint bits = as_uint(x);
  return isnan(x) ? (ushort)((bits >> 16) | 64u) : (ushort)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
"""
_FROM_HALF = """\
static inline float tb_from_half(ushort bits) {
  const float x = as_float((uint)(bits & 0x7fff) << 13) * 0x1p112f;
  return as_float(as_uint(x) | (x >= 65536.0f ? 0x7f800000u : 0u) | (uint)(bits & 0x8000) << 16);
}
"""
_ROUND_HALF = """\
static inline float tb_round_half(float x) {
  ushort bits;
  vstore_half_rte(x, 0, (half *)&bits);
  return vload_half(0, (const half *)&bits);
}
"""
# Rounding to odd first makes the second rounding, to 16 bits, exact.
_NARROW = Helper("narrow", "tb_narrow({0})", """\
static inline float tb_narrow(double x) {{
  const float cut = convert_float_rtz(x);
  return isfinite(x) && convert_double(cut) != x ? as_float(as_uint(cut) | 1u) : cut;
}}""")  # fmt: skip
# The standard says that convert_T_sat makes 0 of NaN; a driver was seen that does not.
_TO_INTEGER = Helper("to_integer", "tb_{S}_from_{F}({0})", """\
static inline {T} tb_{S}_from_{F}({R} x) {{ return isnan(x) ? ({T})0 : convert_{T}_sat(x); }}""")  # fmt: skip
_STORE_SOME = Helper("store_some", "tb_store_{S}_{lanes}({v}, {p} + ({i}), {n})", """\
static inline void tb_store_{S}_{lanes}({V} v, __global {B} *p, long n) {{
  {T} lane[{lanes}];
  vstore{lanes}(v, 0, lane);
  for (long k = 0; k < {lanes} && k < n; ++k) p[k] = lane[k];
}}""")  # fmt: skip
_REPORT = Helper("report", "tb_report({p}, {code}, {value}, {limit});", """\
static inline void tb_report(__global long *errors, long code, long value, long limit) {{
  if (value >= 0 && value < limit) return;
  if (atomic_cmpxchg((volatile __global int *)errors, 0, (int)code) != 0) return;
  errors[1] = value;
  errors[2] = limit;
}}""")  # fmt: skip


def dialect(*, half: bool, double: bool, target: Target) -> Dialect:
    """Return OpenCL C for a device: with native half storage and double precision where it has them."""
    types = {dt.bool_: BOOL, **INTEGERS, dt.float16: HALF if half else HALF_BY_FUNCTIONS, dt.bfloat16: BFLOAT,
             dt.float32: FLOAT}  # fmt: skip
    prologue = _PROLOGUE
    if half:
        prologue = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n" + prologue + _FROM_HALF
    else:
        prologue += _ROUND_HALF
    if double:
        types[dt.float64] = DOUBLE
        prologue = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" + prologue
    return Dialect(
        name="OpenCL C",
        types=types,
        solo_types={dt.float16: HALF_BY_BITS} if half else {},
        index=TypeRule(storage="long", register="long", unsigned="ulong"),
        expressions=EXPRESSIONS,
        casts={**CASTS, ("float", "int"): _TO_INTEGER, ("float", "uint"): _TO_INTEGER},
        kernel="__kernel void {name}({arguments})",
        solo="__kernel __attribute__((reqd_work_group_size(1, 1, 1)))\nvoid {name}({arguments})",
        buffer="__global {const}{T} *{name}",
        parallel=("get_global_id(0)", "get_global_id(1)", "get_global_id(2)"),
        barrier="barrier(CLK_LOCAL_MEM_FENCE)",
        shared="__local",
        unroll="#pragma unroll",
        vector_load="vload{lanes}(0, {p} + ({i}))",
        vector_store="vstore{lanes}({v}, 0, {p} + ({i}))",
        vector_store_some=_STORE_SOME,
        report=_REPORT,
        prologue=prologue,
        narrow=_NARROW,
        target=target,
    )

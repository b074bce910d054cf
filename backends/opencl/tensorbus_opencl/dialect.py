"""OpenCL C as data. What a device lacks leaves the table: no entry is ever an approximation of another."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorbus.backend_api import (
    CASTS,
    EXPRESSIONS,
    OPENCL_SINGLE,
    OPENCL_WIDE_SINGLE,
    RANDOM,
    Dialect,
    Helper,
    Target,
    TypeRule,
    float8_types,
)
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
_HALVES: Final = {
    "wide_load": "vload_half{lanes}(0, {p} + ({i}))",
    "wide_store": "vstore_half{lanes}_rte({v}, 0, {p} + ({i}))",
}  # fmt: skip
DOUBLE: Final = TypeRule(storage="double", register="double", unsigned="ulong")
# Halves are stored as 16 bits, computed in float and rounded after each op: the same result everywhere.
HALF: Final = TypeRule(
    storage="half", register="float", unsigned="uint", suffix="f", load="convert_float({p}[{i}])",
    store="{p}[{i}] = convert_half_rte({v})", rounded="convert_float(convert_half_rte({0}))", **_HALVES,
)  # fmt: skip
HALF_BY_FUNCTIONS: Final = TypeRule(
    storage="half", register="float", unsigned="uint", suffix="f", load="vload_half({i}, {p})",
    store="vstore_half_rte({v}, {i}, {p})", rounded="tb_round_half({0})", **_HALVES,
    # Without cl_khr_fp16 there are pointers to halves only.
    access_array="ushort {name}_bits[{n}] __attribute__((aligned(16)));"
    " half *const {name} = (half *){name}_bits",
)  # fmt: skip
# A driver was seen to crash on unrolled loops over native halves; this makes integers of them.
HALF_BY_BITS: Final = TypeRule(
    storage="half", register="float", unsigned="uint", suffix="f",
    load="tb_from_half(((__global const ushort *){p})[{i}])", store="{p}[{i}] = convert_half_rte({v})",
    rounded="convert_float(convert_half_rte({0}))", **_HALVES,
)  # fmt: skip
BFLOAT: Final = TypeRule(
    storage="ushort", register="float", unsigned="uint", suffix="f", load="as_float((uint){p}[{i}] << 16)",
    store="{p}[{i}] = tb_bfloat({v})", rounded="as_float((uint)tb_bfloat({0}) << 16)",
    wide_load="as_float{lanes}(convert_uint{lanes}(vload{lanes}(0, {p} + ({i}))) << 16)",
    wide_store="vstore{lanes}(tb_bfloat_{lanes}({v}), 0, {p} + ({i}))",
)  # fmt: skip

_PROLOGUE = """\
#pragma OPENCL FP_CONTRACT OFF
static inline ushort tb_bfloat(float x) {
  const uint bits = as_uint(x);
  return isnan(x) ? (ushort)((bits >> 16) | 64u) : (ushort)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
""" + "".join(f"""\
static inline ushort{n} tb_bfloat_{n}(float{n} x) {{
  const uint{n} bits = as_uint{n}(x), near = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return convert_ushort{n}(select(near, (bits >> 16) | 64u, isnan(x)));
}}
""" for n in (4, 8, 16))  # fmt: skip
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
# Such a store wants a whole vector's place. Who counts finished work-items does so by an instruction that
# waits for it.
_PAST = Helper("past", "tb_past_{S}_{lanes}({v}, {p} + ({i}))", """\
#if defined __has_builtin && __has_builtin(__builtin_nontemporal_store)
static inline void tb_past_{S}_{lanes}({V} v, __global {B} *p) {{
  if ((size_t)p % sizeof({V}) == 0) __builtin_nontemporal_store(v, (__global {V} *)p);
  else vstore{lanes}(v, 0, p);
}}
#else
#define tb_past_{S}_{lanes}(v, p) vstore{lanes}(v, 0, p)
#endif""")  # fmt: skip
# A driver was seen to call a function for prefetch, which saves and loads all registers.
_FETCH = Helper("fetch", "tb_fetch({p} + ({i}), {n});", """\
#if defined __has_builtin && __has_builtin(__builtin_prefetch)
#define tb_fetch(p, n) __builtin_prefetch(p)
#else
#define tb_fetch(p, n) prefetch(p, n)
#endif""")  # fmt: skip
# Compilers take vectors for memory of any type, and move them as a whole.
_PACKETS: Final = {
    way: Helper(way, f"tb_{way}_{{n}}({{to}}, {{from}})", f"""\
static inline void tb_{way}_{{n}}({to}void *to, {of}const void *from) {{{{
  if ({{n}} >= 16)
    for (int k = 0; k < {{n}} / 16; ++k) (({to}uint4 *)to)[k] = (({of}const uint4 *)from)[k];
  else if ({{n}} == 8) *({to}uint2 *)to = *({of}const uint2 *)from;
  else if ({{n}} == 4) *({to}uchar4 *)to = *({of}const uchar4 *)from;
  else *({to}uchar2 *)to = *({of}const uchar2 *)from;
}}}}""") for way, to, of in (("read", "", "__global "), ("write", "__global ", ""))
}  # fmt: skip
_RUNNING = Helper("running_sum", "tb_running_16({0})", """\
static inline float16 tb_running_16(float16 x) {{
  const float16 none = (float16)(0.0f);
  x += shuffle2(x, none, (uint16)(16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14));
  x += shuffle2(x, none, (uint16)(16, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13));
  x += shuffle2(x, none, (uint16)(16, 16, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  return x + shuffle2(x, none, (uint16)(16, 16, 16, 16, 16, 16, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7));
}}""")  # fmt: skip
_REPORT = Helper("report", "tb_report({p}, {code}, {value}, {limit});", """\
static inline void tb_report(__global long *errors, long code, long value, long limit) {{
  if (value >= 0 && value < limit) return;
  if (atomic_cmpxchg((volatile __global int *)errors, 0, (int)code) != 0) return;
  errors[1] = value;
  errors[2] = limit;
}}""")  # fmt: skip

# Fences of OpenCL C 1.2 order what one work-item does; others see it so where caches are coherent, as
# a CPU's are.
_LAST = Helper("last", "tb_last({p}, get_num_groups(0) * get_num_groups(1) * get_num_groups(2))", """\
static inline bool tb_last(__global long *counter, size_t total) {{
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  if ((size_t)atomic_inc((volatile __global int *)(counter + 3)) + 1 != total) return false;
  atomic_xchg((volatile __global int *)(counter + 3), 0);
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  return true;
}}""")  # fmt: skip

# Comparisons of vectors give -1 or 0 in each lane. A NaN of either operand must stay.
_VECTOR_EXPRESSIONS: Final[dict[str, str | Helper]] = {
    "select": "select({2}, {1}, {0})", "logical_and": "({0} & {1})", "logical_or": "({0} | {1})",
    "logical_not": "(~{0})",
} | {
    name: Helper(f"wide_{name}", f"tb_{name}_{{S}}_{{lanes}}({{0}}, {{1}})", f"""\
static inline {{V}} tb_{name}_{{S}}_{{lanes}}({{V}} a, {{V}} b) {{{{
  return select(b, a, (a {sign} b) | (a != a));
}}}}""") for name, sign in (("maximum", ">"), ("minimum", "<"))
} | {
    "ramp": Helper("ramp", "tb_ramp_{lanes}", """\
#define tb_ramp_4 (float4)(0, 1, 2, 3)
#define tb_ramp_8 (float8)(tb_ramp_4, 4 + tb_ramp_4)
#define tb_ramp_16 (float16)(tb_ramp_8, 8 + tb_ramp_8)"""),
    "square": Helper("wide_square", "tb_square_{S}_{lanes}({0})", """\
static inline {V} tb_square_{S}_{lanes}({V} a) {{ return a * a; }}"""),
}  # fmt: skip
_WIDE_OPS: Final = frozenset(
    """add subtract multiply divide negative abs maximum minimum square reciprocal sqrt rsqrt exp expm1 log
    log1p log2 log10 asin acos atan sinh cosh tanh asinh acosh atanh atan2 power erf floor ceil
    trunc round select ramp load_float16 load_bfloat16 store_float16 store_bfloat16""".split()
)
# NVIDIA's compiler makes 32767 of -32768 where it finds the magnitude of 16 bits: here it finds none.
_ABS: Final = Helper("abs", "tb_abs_{S}({0})", """\
{inline}{T} tb_abs_{S}({T} a) {{
  if (sizeof({T}) > 2) return a < 0 ? ({T})(0 - ({U})a) : a;
  return ({T})(({U})max(a, ({T})0) - ({U})min(a, ({T})0));
}}""")  # fmt: skip
# Starting a work-item costs as much as reading some kilobytes, so that there are fewer of them than rows.
_TASK_RANGE: Final = (
    "const long {v}_part = ({n} - 1) / (long)get_global_size(0) + 1, {v}_from = get_global_id(0) * {v}_part;",
    "const long {v}_to = {v}_from + {v}_part < {n} ? {v}_from + {v}_part : {n};",
    "for (long {v} = {v}_from; {v} < {v}_to; ++{v}) {{",
)


# NVIDIA's OpenCL C has no groups within groups, but takes the processor's assembly.
_SHUFFLE_XOR: Final = """\
static inline {T} tb_shuffle_xor_{S}({T} x, const int mask) {{
  union {{ {T} whole; uint part[(sizeof({T}) + 3) / 4]; }} both;
  both.part[0] = 0;
  both.whole = x;
  for (size_t k = 0; k < (sizeof({T}) + 3) / 4; ++k) {{
    const uint own = both.part[k];
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(both.part[k]) : "r"(own), "r"(mask));
  }}
  return both.whole;
}}"""


def _shuffles(count: int) -> dict[str, dict[str, str | Helper]]:
    """Return what gives the value of the work-item whose number differs in one bit, of ``count`` in a row."""
    kinds = ("bool", "int", "uint", "float", "complex")
    helpers = {
        1 << k: Helper("shuffle_xor", f"tb_shuffle_xor_{{S}}({{0}}, {1 << k})", _SHUFFLE_XOR)
        for k in range(count.bit_length() - 1)
    }
    return {f"shuffle_xor_{mask}": dict.fromkeys(kinds, helper) for mask, helper in helpers.items()}


_LONG_ATOMICS: Final = """\
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable"""


def _combined(long: bool, space: str = "__global") -> dict[tuple[str, dt.DType], str | Helper]:
    """Return what is joined with memory in one step: numbers of 32 bits, and ``long`` ones of 64."""
    atomics: dict[tuple[str, dt.DType], str | Helper] = {}
    for op, name in (("add", "add"), ("minimum", "min"), ("maximum", "max")):
        joined = f"_{name}((volatile {space} {{T}} *){{p}} + ({{i}}), {{v}})"
        atomics |= dict.fromkeys([(op, dt.int32), (op, dt.uint32)], f"atomic{joined}")
        if long:
            helper = Helper("long_atomics", f"atom{joined}", _LONG_ATOMICS)
            atomics |= dict.fromkeys([(op, dt.int64), (op, dt.uint64)], helper)
    return atomics


# Intel's compiler makes vectors of work-items that are alone in their workgroup as well: code that is never
# run, which takes it half of its time. Where a kernel is of one work-item, and all lanes have the same
# values, it ends the process: in loops in which a function takes what a branch gives, or 64 bits are chosen.
_ONE_WORK_ITEM: Final = "reqd_work_group_size(1, 1, 1)"
_ONE_WORK_ITEM_NO_VECTORS: Final = f"{_ONE_WORK_ITEM}, intel_vec_len_hint(1)"


def dialect(
    *, half: bool, double: bool, target: Target, long_atomics: bool = False, vector_hints: bool = False
) -> Dialect:
    """Return OpenCL C for a device: with native half storage and double precision where it has them.

    ``long_atomics``: whether it has ``cl_khr_int64_base_atomics`` and ``cl_khr_int64_extended_atomics``;
    ``vector_hints``: whether it has ``cl_intel_vec_len_hint``.
    """
    alone = _ONE_WORK_ITEM_NO_VECTORS if vector_hints else _ONE_WORK_ITEM
    types = {dt.bool_: BOOL, **INTEGERS, dt.float16: HALF if half else HALF_BY_FUNCTIONS, dt.bfloat16: BFLOAT,
             **float8_types("uchar", "uint", "as_uint", "as_float"), dt.float32: FLOAT}  # fmt: skip
    if half:
        prologue = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n" + _PROLOGUE + _FROM_HALF
    else:
        prologue = _PROLOGUE + _ROUND_HALF
    types[dt.complex64] = TypeRule(storage="float2", register="float2")
    if double:
        types[dt.float64] = DOUBLE
        types[dt.complex128] = TypeRule(storage="double2", register="double2")
        prologue = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" + prologue
    combined = _combined(long_atomics)
    return Dialect(
        name="OpenCL C",
        types=types,
        task_types={dt.float16: HALF_BY_BITS} if half else {},
        index=TypeRule(storage="long", register="long", unsigned="ulong"),
        expressions={
            **EXPRESSIONS,
            **RANDOM,
            "abs": {**EXPRESSIONS["abs"], "int": _ABS},
            **_shuffles(target.subgroup_size),
        },
        casts={**CASTS, ("float", "int"): _TO_INTEGER, ("float", "uint"): _TO_INTEGER},
        kernel="__kernel void {name}({arguments})",
        task=f"__kernel __attribute__(({alone}))\nvoid {{name}}({{arguments}})",
        buffer="__global {const}{T} *{name}",
        parallel=("get_global_id(0)", "get_global_id(1)", "get_global_id(2)"),
        share=_TASK_RANGE,
        barrier="barrier(CLK_LOCAL_MEM_FENCE)",
        shared="__local",
        paged=" __attribute__((aligned(4096)))" if target.row_per_task else "",
        unroll="#pragma unroll",
        access_array="{T} {name}[{n}] __attribute__((aligned(16)))",
        access_read=_PACKETS["read"],
        access_write=_PACKETS["write"],
        wide=_VECTOR_EXPRESSIONS,
        single=OPENCL_SINGLE,
        wide_single={**OPENCL_WIDE_SINGLE, "running_sum": _RUNNING},
        vector_load="vload{lanes}(0, {p} + ({i}))",
        vector_store="vstore{lanes}({v}, 0, {p} + ({i}))",
        vector_store_some=_STORE_SOME,
        # Intel's compiler for processors makes `x - y` of `x + -y`, and vectors of loops of that, which then
        # add up wrongly: sums of negatives along rows. A product by 1 keeps the sum a sum.
        plus="mad({1}, ({T})1, {0})" if target.row_per_task else "",
        # Where a part of a constant is 0, it takes the products of that for 0 whatever the other factors are.
        product="a.x * b + a.y * tb_pair_{S}(-b.y, b.x)",
        vector_nontemporal=_PAST if target.row_per_task else "",
        fetch=_FETCH if target.row_per_task else "",
        report=_REPORT,
        last=_LAST,
        combined=combined,
        combined_shared=_combined(long_atomics, "__local"),
        prologue=prologue,
        narrow=_NARROW,
        target=replace(
            target,
            vector_ops=_WIDE_OPS,
            scan_ops=_WIDE_OPS,
            scan_lanes=16 if target.row_per_task else 0,
            last_task_epilogue=target.row_per_task,
            atomics=frozenset(combined),
        ),
    )

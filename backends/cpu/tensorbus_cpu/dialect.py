"""C as data: the dialect that the cpu's compiled kernels are written in."""

from __future__ import annotations

from functools import cache
from typing import Final

from tensorbus.backend_api import (
    C_SINGLE,
    C_WIDE_SINGLE,
    CASTS,
    EXPRESSIONS,
    SATURATING,
    Dialect,
    Helper,
    Target,
    TypeRule,
)
from tensorbus.backend_api import dtypes as dt

from .native.simd_helpers import (
    CAST_BFLOAT,
    LOAD_BFLOAT,
    LOAD_HALF,
    MAPS,
    NEAR_BFLOAT,
    NEAR_HALF,
    PAST,
    PAST_BFLOAT,
    PAST_HALF,
    RUNNING,
    STORE_BFLOAT,
    STORE_HALF,
    VECTOR_EXPRESSIONS,
    types,
)


def _integer(dtype: dt.DType, suffix: str = "") -> TypeRule:
    name = f"{dtype.name}_t"
    return TypeRule(storage=name, register=name, unsigned=f"uint{8 * dtype.itemsize}_t", suffix=suffix)


BOOL: Final = TypeRule(
    storage="uint8_t", register="bool", unsigned="uint8_t", load="({p}[{i}] != 0)", store="{p}[{i}] = ({v})"
)
TYPES: Final[dict[dt.DType, TypeRule]] = {
    dt.bool_: BOOL,
    **{d: _integer(d) for d in (dt.int8, dt.int16, dt.int32)},
    dt.int64: _integer(dt.int64, "LL"),
    **{d: _integer(d, "u") for d in (dt.uint8, dt.uint16, dt.uint32)},
    dt.uint64: _integer(dt.uint64, "ULL"),
    dt.bfloat16: TypeRule(
        storage="uint16_t", register="float", unsigned="uint32_t", math="f", suffix="f",
        load="tb_from_bits((uint32_t){p}[{i}] << 16)", store="{p}[{i}] = tb_bfloat({v})",
        rounded="tb_from_bits((uint32_t)tb_bfloat({0}) << 16)", wide_load=LOAD_BFLOAT,
        wide_store=STORE_BFLOAT, wide_rounded=NEAR_BFLOAT, wide_cast=CAST_BFLOAT,
        wide_nontemporal=PAST_BFLOAT,
    ),
    dt.float32: TypeRule(storage="float", register="float", unsigned="uint32_t", math="f", suffix="f"),
    dt.float64: TypeRule(storage="double", register="double", unsigned="uint64_t"),
}  # fmt: skip
# Halves are stored as 16 bits, computed in float and rounded after each op: the same result everywhere.
# The compiler converts its own halves one by one.
HALF: Final = TypeRule(
    storage="uint16_t", register="float", unsigned="uint32_t", math="f", suffix="f",
    load="tb_from_half({p}[{i}])", store="{p}[{i}] = tb_half({v})", rounded="tb_from_half(tb_half({0}))",
    wide_load=LOAD_HALF, wide_store=STORE_HALF, wide_rounded=NEAR_HALF, wide_cast=NEAR_HALF,
    wide_nontemporal=PAST_HALF,
)  # fmt: skip
_MATH: Final = {
    (2, 22): ("sin exp log", "pow"),
    (2, 35): (
        "tan asin acos atan sinh cosh tanh asinh acosh atanh expm1 log1p log2 log10 erf",
        "atan2",
    ),
}
"""What glibc has for vectors of numbers, by its version: of one operand, of two. The cosine is apart."""
_SIMD: Final = '__attribute__((simd("notinbranch")))'
# The sine and the cosine of one number become one call, which has no vectors, where the compiler knows both.
_COSINE: Final = tuple(
    f"""\
{_SIMD} __attribute__((const)) {kind} tb_cosine{f}({kind}) __asm__("cos{f}");
#define cos{f} tb_cosine{f}"""
    for kind, f in (("float", "f"), ("double", ""))
)
_ONE: Final = (
    "acos acosh asin asinh atan atanh cbrt ceil cosh erf erfc exp exp2 expm1 fabs floor lgamma log log10"
    " log1p log2 nearbyint rint round sin sinh sqrt tan tanh tgamma trunc"
)
_TWO: Final = "atan2 copysign fmax fmin fmod hypot nextafter pow remainder"
"""The functions of <math.h> that kernels call: reading all of it takes a tenth of compiling a short one."""
_WORDS: Final = (
    "#define INFINITY __builtin_inff()",
    '#define NAN __builtin_nanf("")',
    "#define memcpy __builtin_memcpy",
    "#define memset __builtin_memset",
    *(f"#define {name}(x) __builtin_{name}(x)" for name in ("isnan", "isinf", "isfinite", "signbit")),
    "float fmaf(float, float, float);",
    "double fma(double, double, double);",
)


def prologue(lanes: int = 0) -> str:
    """Return what stands before every kernel; ``lanes`` as for ``dialect``.

    The vector functions that the declarations name (at most 4 units off in the last place) are used without
    the options that would give up infinities, NaN or the sign of zero.
    """
    lines = ["#include <stdbool.h>", "#include <stdint.h>", "#ifdef __GNUC__", *_WORDS]
    lines += _declared(_ONE, _TWO, "")
    lines += ["#if defined(__x86_64__) && !defined(__clang__)", "#ifdef __GLIBC_PREREQ"]
    for (major, minor), (unary, binary) in _MATH.items():
        lines += [f"#if __GLIBC_PREREQ({major}, {minor})", *_declared(unary, binary, f"{_SIMD} "), "#endif"]
    lines += ["#if __GLIBC_PREREQ(2, 22)", *_COSINE, "#endif", "#endif", "#endif"]
    lines += ["#ifndef cosf", *_declared("cos", "", ""), "#endif"]
    lines += ["#else", "#include <math.h>", "#include <string.h>", "#endif"]
    return "\n".join([*lines, _INDEPENDENT, *_REST, _BFLOAT, _HALF, types(lanes)])


def _declared(unary: str, binary: str, before: str) -> list[str]:
    """Return the declarations of functions of one operand and of two, in both precisions."""
    lines = []
    for suffix, kind in (("f", "float"), ("", "double")):
        lines += [f"{before}{kind} {name}{suffix}({kind});" for name in unary.split()]
        lines += [f"{before}{kind} {name}{suffix}({kind}, {kind});" for name in binary.split()]
    return lines


_INDEPENDENT: Final = """\
#ifdef __clang__
#define TB_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TB_INDEPENDENT _Pragma("GCC ivdep")
#endif"""
# Libraries find remainders bit by bit. Where a quotient is off by 1 at most, a product that is not rounded
# and a correction do, and neither rounds: what is left is a multiple of b's last digit, or a itself.
_REST: Final = (
    "#if defined(__FMA__) || defined(__aarch64__)",
    *(
        f"""\
static inline {kind} tb_fmod{f}({kind} a, {kind} b) {{
  const {kind} q = a / b;
  if (!(fabs{f}(q) < {most} && fabs{f}(b) < INFINITY)) return fmod{f}(a, b);
  {kind} r = fma{f}(-trunc{f}(q), b, a);
  if (r != 0 && (r < 0) != (a < 0)) r += copysign{f}(b, a);
  return copysign{f}(r, a);
}}
#define fmod{f} tb_fmod{f}"""
        for kind, f, most in (("float", "f", "0x1p23f"), ("double", "", "0x1p52"))
    ),
    "#endif",
)
_BFLOAT: Final = """\
static inline float tb_from_bits(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline uint32_t tb_bits(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }
static inline uint16_t tb_bfloat(float x) {
  const uint32_t bits = tb_bits(x);
  return x != x ? (uint16_t)((bits >> 16) | 64u) : (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}"""
# What is below the least normal half gets its digits beside those of 1/2, whose last one is that of halves.
_HALF: Final = """\
static inline float tb_from_half(uint16_t bits) {
  const float x = tb_from_bits((uint32_t)(bits & 0x7fff) << 13) * 0x1p112f;
  return tb_from_bits(tb_bits(x) | (x >= 65536.0f ? 0x7f800000u : 0u) | (uint32_t)(bits & 0x8000) << 16);
}
static inline uint16_t tb_half(float x) {
  const uint32_t bits = tb_bits(x), size = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
  const uint32_t small = tb_bits(tb_from_bits(size) + 0.5f) - 0x3f000000u;
  const uint32_t near = ((size + 0xfffu + (size >> 13 & 1u)) >> 13) - 0x1c000u;
  const uint32_t found = size < 0x38800000u ? small : size >= 0x477ff000u ? 0x7c00u : near;
  return (uint16_t)(sign | (size > 0x7f800000u ? 0x7e00u | (size >> 13 & 0x3ffu) : found));
}"""
# Rounding to odd first makes the second rounding, to 16 bits, exact.
_NARROW: Final = Helper("narrow", "tb_narrow({0})", """\
static inline float tb_narrow(double x) {{
  const float near = (float)x;
  const uint32_t bits = tb_bits(near);
  const uint32_t cut = fabs((double)near) > fabs(x) ? bits - 1 : bits;
  return isinf(x) || isnan(x) || (double)near == x ? near : tb_from_bits(cut | 1u);
}}""")  # fmt: skip
_REPORT: Final = Helper("report", "tb_report({p}, {code}, {value}, {limit});", """\
static inline void tb_report(int64_t *errors, int64_t code, int64_t value, int64_t limit) {{
  int64_t none = 0;
  if (value >= 0 && value < limit) return;
  if (!__atomic_compare_exchange_n(errors, &none, code, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
  errors[1] = value;
  errors[2] = limit;
}}""")  # fmt: skip
# Where the exponent is known to be one of these, the compiler leaves the call out. GCC's vectors of powers of
# one half are square roots, which differ at -0.0 and -infinity: these are said here.
_POWER: Final = Helper("power", "tb_power_{S}({0}, {1})", """\
static inline {T} tb_power_{S}({T} a, {T} b) {{
  if (__builtin_constant_p(b) && b == 0.5) return a == -INFINITY ? INFINITY : sqrt{f}(a + 0);
  const {T} any = pow{f}(a, b);
  return b == 3 ? a * a * a : b == 2 ? a * a : any;
}}""")  # fmt: skip
_LAST: Final = Helper("last", "tb_last({p}, {count}, {n})", """\
static inline bool tb_last(int64_t *counter, int64_t count, int64_t total) {{
  if (__atomic_add_fetch(counter + 3, count, __ATOMIC_ACQ_REL) != total) return 0;
  __atomic_store_n(counter + 3, 0, __ATOMIC_RELAXED);
  return 1;
}}""")  # fmt: skip


@cache
def dialect(half: bool, lanes: int) -> Dialect:
    """Return C for this processor.

    ``half``: whether its compiler has 16-bit floats; ``lanes``: 8 or 16 where it has gcc's names for the
    instructions of AVX2 or of AVX-512, else 0.
    """
    return Dialect(
        name="C",
        types={**TYPES, **({dt.float16: HALF} if half else {})},
        index=TypeRule(storage="int64_t", register="int64_t", unsigned="uint64_t"),
        # gcc 12 stumbles over a vectorized signbit
        expressions={
            **EXPRESSIONS,
            "signbit": {"float": "(copysign{f}(1, {0}) < 0)"},
            "power": {**EXPRESSIONS["power"], "float": _POWER},
        },
        single=C_SINGLE,
        casts={**CASTS, **SATURATING},
        kernel="static inline void {name}(const int64_t *tb_range, {arguments})",
        task="static inline void {name}(const int64_t *tb_range, {arguments})",
        buffer="{const}{T} *restrict {name}",
        aliased_buffer="{const}{T} *{name}",
        independent="TB_INDEPENDENT",
        rest='__asm__ volatile("");',
        bounds=tuple((f"tb_range[{2 * axis}]", f"tb_range[{2 * axis + 1}]") for axis in range(3)),
        paged=" __attribute__((aligned(4096)))",
        fetch="for (int64_t at = 0; at < {n}; at += 64 / sizeof *{p}) __builtin_prefetch(&{p}[{i} + at]);",
        wide={**(VECTOR_EXPRESSIONS if lanes else {}), "fma": "({0} * {1} + {2})"},
        wide_single={
            **({**C_WIDE_SINGLE, "fma": "TB_FMA_{lanes}({0}, {1}, {2})"} if lanes else {}),
            "running_sum": RUNNING,
        },
        vector_nontemporal=PAST if lanes else "",
        vector_type="tb_{T}_{lanes}",
        vector_load="(*(const {V} *)({p} + ({i})))",
        vector_store="*({V} *)({p} + ({i})) = {v}",
        # 0 + -0 is 0; -0 - 0 is not
        splat="(({0}) - ({V}){{}})",
        prologue=prologue(lanes),
        narrow=_NARROW,
        report=_REPORT,
        last=_LAST,
        target=Target(
            tasks_to_fill=64,
            work_items_to_fill=64,
            lanes=64,
            row_per_task=True,
            last_task_epilogue=True,
            pointwise_vector_ops=MAPS if lanes else frozenset(),
            pointwise_vector_lanes=lanes or 8,
            scan_lanes=8,
            scan_ops=frozenset({"add", "subtract", "multiply", "divide", "negative"}),
        ),
    )

"""Vectors of float32 in C: of 8 by gcc's names for the instructions of AVX2, of 16 by those for AVX-512's.

They are written where compilers find none: in running sums, past the caches, and for numbers of 16 bits,
which are computed with as float32. What the instructions differ in are macros, by the number of lanes.
"""

from __future__ import annotations

from typing import Final

from tensorbus.backend_api import Helper

_TYPES: Final = """\
typedef float tb_float_{n} __attribute__((vector_size({long}), aligned(4), may_alias));
typedef double tb_double_{half} __attribute__((vector_size({long}), aligned(8), may_alias));
typedef int32_t tb_places_{n} __attribute__((vector_size({long})));
typedef int16_t tb_halves_{n} __attribute__((vector_size({short}), aligned(2), may_alias));"""
_AFTER: Final = """\
#ifdef __clang__
#define TB_AFTER(x, ...) __builtin_shufflevector(x, (tb_float_8){}, __VA_ARGS__)
#else
#define TB_AFTER(x, ...) __builtin_shuffle(x, (tb_float_8){}, (tb_places_8){__VA_ARGS__})
#endif"""
# gcc makes comparisons and choices of what one instruction does, and takes more registers than there are.
_INSTRUCTIONS: Final = {
    8: """\
#define TB_LESSER_8(a, b) ((tb_float_8)__builtin_ia32_minps256(a, b))
#define TB_GREATER_8(a, b) ((tb_float_8)__builtin_ia32_maxps256(a, b))
#define TB_FMA_8(a, b, c) ((tb_float_8)__builtin_ia32_vfmaddps256(a, b, c))
#define TB_CHOOSE_8(a, b, c) ((tb_float_8)__builtin_ia32_blendvps256(b, a, (tb_float_8)(c)))
#define TB_ROOT_8(a) ((tb_float_8)__builtin_ia32_sqrtps256(a))
#define TB_ROUND_8(a, way) ((tb_float_8)__builtin_ia32_roundps256(a, way))
#define TB_ALL_8(c) __builtin_ia32_vtestcps256((tb_float_8)(c), (tb_float_8)((tb_places_8){} + INT32_MIN))
#define TB_RAMP_8 ((tb_float_8){0, 1, 2, 3, 4, 5, 6, 7})
#define TB_LONGER_8(h) ((tb_places_8)__builtin_ia32_pmovzxwd256(h))
#define TB_FROM_HALF_8(h) ((tb_float_8)__builtin_ia32_vcvtph2ps256(h))
#define TB_TO_HALF_8(a) ((tb_halves_8)__builtin_ia32_vcvtps2ph256(a, 0))
#define TB_PAST_8(p, a) __builtin_ia32_movntps256(p, a)
#define TB_PAST_HALVES_8(p, h) __builtin_ia32_movntps((float *)(p), (tb_float_4)(h))
typedef float tb_float_4 __attribute__((vector_size(16)));
static inline tb_halves_8 tb_upper_8(tb_places_8 x) {
  const tb_places_8 bits = (tb_places_8)__builtin_ia32_psrldi256(x, 16);
  return (tb_halves_8)__builtin_ia32_packusdw128(
      __builtin_ia32_vextractf128_si256(bits, 0), __builtin_ia32_vextractf128_si256(bits, 1));
}""",
    16: """\
#define TB_LESSER_16(a, b) ((tb_float_16)__builtin_ia32_minps512_mask(a, b, (tb_float_16){}, -1, 4))
#define TB_GREATER_16(a, b) ((tb_float_16)__builtin_ia32_maxps512_mask(a, b, (tb_float_16){}, -1, 4))
#define TB_FMA_16(a, b, c) ((tb_float_16)__builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4))
#define TB_CHOOSE_16(a, b, c) \\
  ((tb_float_16)((tb_places_16)(c) & (tb_places_16)(a) | ~(tb_places_16)(c) & (tb_places_16)(b)))
#define TB_ROOT_16(a) ((tb_float_16)__builtin_ia32_sqrtps512_mask(a, (tb_float_16){}, -1, 4))
#define TB_ROUND_16(a, way) ((tb_float_16)__builtin_ia32_rndscaleps_mask(a, way, (tb_float_16){}, -1, 4))
#define TB_ALL_16(c) (__builtin_ia32_cvtd2mask512(c) == 0xffff)
#define TB_RAMP_16 ((tb_float_16){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
#define TB_LONGER_16(h) ((tb_places_16)__builtin_ia32_pmovzxwd512_mask(h, (tb_places_16){}, -1))
#define TB_FROM_HALF_16(h) ((tb_float_16)__builtin_ia32_vcvtph2ps512_mask(h, (tb_float_16){}, -1, 4))
#define TB_TO_HALF_16(a) ((tb_halves_16)__builtin_ia32_vcvtps2ph512_mask(a, 0, (tb_halves_16){}, -1))
#define TB_PAST_16(p, a) __builtin_ia32_movntps512(p, a)
#define TB_PAST_HALVES_16(p, h) __builtin_ia32_movntps256((float *)(p), (tb_float_8)(h))
static inline tb_halves_16 tb_upper_16(tb_places_16 x) {
  return (tb_halves_16)__builtin_ia32_pmovdw512_mask(x >> 16, (tb_halves_16){}, -1);
}""",
}


def types(lanes: int) -> str:
    """Return what stands before vectors of up to ``lanes``: 8, 16, or 0 for running sums alone."""
    every = [n for n in _INSTRUCTIONS if n <= lanes]
    named = [_TYPES.format(n=n, half=n // 2, long=4 * n, short=2 * n) for n in every or [8]]
    return "\n".join([*named, _AFTER, *(_INSTRUCTIONS[n] for n in every)])


def probe(lanes: int) -> str:
    """Return a source with every name of instructions that vectors of up to ``lanes`` use."""
    text = """\
tb_float_N probe_N(tb_float_N a, tb_float_N b, tb_halves_N *h, float *p) {
  b = TB_FMA_N(TB_LESSER_N(a, b), TB_GREATER_N(a, b), TB_ROOT_N(TB_ROUND_N(a, 8)));
  TB_PAST_N(p, TB_CHOOSE_N(a, b, a != b));
  TB_PAST_HALVES_N(h, TB_TO_HALF_N(a));
  h[1] = tb_upper_N((tb_places_N)a);
  if (TB_ALL_N(a == b)) return TB_FROM_HALF_N(*h);
  return TB_RAMP_N + (tb_float_N)TB_LONGER_N(*h);
}"""
    used = [text.replace("_N", f"_{n}") for n in _INSTRUCTIONS if n <= lanes]
    return "\n".join(["#include <stdint.h>", types(lanes), *used])


def _wide(name: str, call: str, source: str, *needs: Helper) -> Helper:
    return Helper(name, call, f"static inline {source}", needs)


LOAD_BFLOAT: Final = _wide("load_bfloat", "tb_load_bfloat_{lanes}({p} + ({i}))", """\
tb_float_{lanes} tb_load_bfloat_{lanes}(const uint16_t *p) {{
  return (tb_float_{lanes})(TB_LONGER_{lanes}(*(const tb_halves_{lanes} *)p) << 16);
}}""")  # fmt: skip
_ROUND_BFLOAT: Final = _wide("round_bfloat", "", """\
tb_float_{lanes} tb_round_bfloat_{lanes}(tb_float_{lanes} x) {{
  const tb_places_{lanes} bits = (tb_places_{lanes})x, near = bits + (bits >> 16 & 1) + 0x7fff;
  return TB_CHOOSE_{lanes}((tb_float_{lanes})(bits | 0x400000), (tb_float_{lanes})near, x != x);
}}""")  # fmt: skip
CAST_BFLOAT: Final = _wide("cast_bfloat", "tb_cast_bfloat_{lanes}({0})", """\
tb_float_{lanes} tb_cast_bfloat_{lanes}(tb_float_{lanes} x) {{
  return (tb_float_{lanes})((tb_places_{lanes})tb_round_bfloat_{lanes}(x) & -0x10000);
}}""", _ROUND_BFLOAT)  # fmt: skip
# A NaN that comes of numbers of 16 bits has nothing below them, so that nothing is carried into it.
NEAR_BFLOAT: Final = _wide("near_bfloat", "tb_near_bfloat_{lanes}({0})", """\
tb_float_{lanes} tb_near_bfloat_{lanes}(tb_float_{lanes} x) {{
  const tb_places_{lanes} bits = (tb_places_{lanes})x;
  return (tb_float_{lanes})(bits + (bits >> 16 & 1) + 0x7fff & -0x10000);
}}""")  # fmt: skip
_TO_BFLOAT: Final = _wide("to_bfloat", "", """\
tb_halves_{lanes} tb_to_bfloat_{lanes}(tb_float_{lanes} x) {{
  return tb_upper_{lanes}((tb_places_{lanes})tb_round_bfloat_{lanes}(x));
}}""", _ROUND_BFLOAT)  # fmt: skip
STORE_BFLOAT: Final = _wide("store_bfloat", "tb_store_bfloat_{lanes}({v}, {p} + ({i}))", """\
void tb_store_bfloat_{lanes}(tb_float_{lanes} v, uint16_t *p) {{
  *(tb_halves_{lanes} *)p = tb_to_bfloat_{lanes}(v);
}}""", _TO_BFLOAT)  # fmt: skip
PAST_BFLOAT: Final = _wide("past_bfloat", "tb_past_bfloat_{lanes}({v}, {p} + ({i}))", """\
void tb_past_bfloat_{lanes}(tb_float_{lanes} v, uint16_t *p) {{
  if ((uintptr_t)p % sizeof(tb_halves_{lanes})) *(tb_halves_{lanes} *)p = tb_to_bfloat_{lanes}(v);
  else TB_PAST_HALVES_{lanes}(p, tb_to_bfloat_{lanes}(v));
}}""", _TO_BFLOAT)  # fmt: skip
LOAD_HALF: Final = _wide("load_half", "tb_load_half_{lanes}({p} + ({i}))", """\
tb_float_{lanes} tb_load_half_{lanes}(const uint16_t *p) {{
  return TB_FROM_HALF_{lanes}(*(const tb_halves_{lanes} *)p);
}}""")  # fmt: skip
NEAR_HALF: Final = _wide("near_half", "tb_near_half_{lanes}({0})", """\
tb_float_{lanes} tb_near_half_{lanes}(tb_float_{lanes} x) {{
  return TB_FROM_HALF_{lanes}(TB_TO_HALF_{lanes}(x));
}}""")  # fmt: skip
STORE_HALF: Final = _wide("store_half", "tb_store_half_{lanes}({v}, {p} + ({i}))", """\
void tb_store_half_{lanes}(tb_float_{lanes} v, uint16_t *p) {{
  *(tb_halves_{lanes} *)p = TB_TO_HALF_{lanes}(v);
}}""")  # fmt: skip
PAST_HALF: Final = _wide("past_half", "tb_past_half_{lanes}({v}, {p} + ({i}))", """\
void tb_past_half_{lanes}(tb_float_{lanes} v, uint16_t *p) {{
  if ((uintptr_t)p % sizeof(tb_halves_{lanes})) *(tb_halves_{lanes} *)p = TB_TO_HALF_{lanes}(v);
  else TB_PAST_HALVES_{lanes}(p, TB_TO_HALF_{lanes}(v));
}}""")  # fmt: skip
PAST: Final = Helper("past", "tb_past_{S}_{lanes}({v}, {p} + ({i}))", """\
static inline void tb_past_{S}_{lanes}({V} v, {B} *p) {{
  if ((uintptr_t)p % sizeof v) *({V} *)p = v;
  else TB_PAST_{lanes}(p, v);
}}""")  # fmt: skip
RUNNING: Final = Helper("running_sum", "tb_running_8({0})", """\
static inline tb_float_8 tb_running_8(tb_float_8 x) {{
  x += TB_AFTER(x, 8, 0, 1, 2, 3, 4, 5, 6);
  x += TB_AFTER(x, 8, 8, 0, 1, 2, 3, 4, 5);
  return x + TB_AFTER(x, 8, 8, 8, 8, 0, 1, 2, 3);
}}""")  # fmt: skip
_REMAINDER: Final = _wide("wide_remainder", "tb_remainder_{lanes}({0}, {1})", """\
tb_float_{lanes} tb_remainder_{lanes}(tb_float_{lanes} a, tb_float_{lanes} b) {{
  const tb_float_{lanes} q = a / b;
  const tb_places_{lanes} sign = (tb_places_{lanes}){{}} + INT32_MIN, size = ~sign;
  const tb_float_{lanes} q_size = (tb_float_{lanes})((tb_places_{lanes})q & size);
  const tb_float_{lanes} b_size = (tb_float_{lanes})((tb_places_{lanes})b & size);
  const tb_places_{lanes} exact = (q_size < 0x1p23f) & (b_size < INFINITY);
  tb_float_{lanes} r = TB_FMA_{lanes}(-TB_ROUND_{lanes}(q, 11), b, a);
  const tb_places_{lanes} a_sign = (tb_places_{lanes})a & sign, b_sign = (tb_places_{lanes})b & sign;
  const tb_places_{lanes} past = (((tb_places_{lanes})r & sign) != a_sign) & (r != 0);
  r += (tb_float_{lanes})(past & ((tb_places_{lanes})b_size | a_sign));
  if (!TB_ALL_{lanes}(exact))
    for (int k = 0; k < {lanes}; ++k) if (!exact[k]) r[k] = fmodf(a[k], b[k]);
  const tb_places_{lanes} apart = (a_sign != b_sign) & (r != 0);
  r += (tb_float_{lanes})(apart & (tb_places_{lanes})b);
  return TB_CHOOSE_{lanes}((tb_float_{lanes})b_sign, r, r == 0);
}}""")  # fmt: skip


def _function(name: str, operands: str, body: str, kind: str = "float") -> Helper:
    """Return a function of vectors of floats, of which each operand is a letter."""
    places = ", ".join(f"{{{k}}}" for k, _ in enumerate(operands))
    parameters = ", ".join(f"tb_float_{{lanes}} {x}" for x in operands)
    head = f"tb_{kind}_{{lanes}} tb_{name}_{{lanes}}({parameters})"
    return _wide(f"wide_{name}", f"tb_{name}_{{lanes}}({places})", f"{head} {{{{ return {body}; }}}}")


_SIZE: Final = "((tb_float_{lanes})((tb_places_{lanes})({0}) & 0x7fffffff))"
VECTOR_EXPRESSIONS: Final[dict[str, str | Helper]] = {
    "select": "TB_CHOOSE_{lanes}({1}, {2}, {0})", "logical_and": "({0} & {1})", "logical_or": "({0} | {1})",
    "logical_not": "(~{0})", "abs": _SIZE, "sqrt": "TB_ROOT_{lanes}({0})", "ramp": "TB_RAMP_{lanes}",
    "rsqrt": "(1.0f / TB_ROOT_{lanes}({0}))", "reciprocal": "(1.0f / {0})",
    "isinf": f"({_SIZE} == INFINITY)", "isfinite": f"({_SIZE} < INFINITY)", "remainder": _REMAINDER,
    "round": "TB_ROUND_{lanes}({0}, 8)", "floor": "TB_ROUND_{lanes}({0}, 9)",
    "ceil": "TB_ROUND_{lanes}({0}, 10)", "trunc": "TB_ROUND_{lanes}({0}, 11)",
    "maximum": _function("maximum", "ab", "TB_CHOOSE_{lanes}(a, TB_GREATER_{lanes}(a, b), a != a)"),
    "minimum": _function("minimum", "ab", "TB_CHOOSE_{lanes}(a, TB_LESSER_{lanes}(a, b), a != a)"),
    "square": _function("square", "a", "a * a"), "isnan": _function("isnan", "a", "a != a", kind="places"),
}  # fmt: skip
"""What ops are in vectors."""
MAPS: Final = frozenset(
    """add subtract multiply divide remainder negative abs maximum minimum square reciprocal sqrt rsqrt exp
    tanh erf floor ceil trunc round select ramp load_float16 store_float16 round_float16 load_bfloat16
    store_bfloat16 round_bfloat16""".split()
)
"""The ops that are written in them."""

"""Functions of floats in single precision, in C and OpenCL C: no branches, so that vectors are made of them.

Each is a polynomial or a quotient of two, fitted over the range in which the result changes (least maximal
relative error); what lies beyond is cut off in the bits of the number, where NaN is kept apart. At most one
unit in the last place off (exp), three epsilons (tanh, erf); results of exp may be too small to be normal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .dialect import Helper

_TANH: Final = (
    (1.0, 0.13382684108443776, 0.00349745400221845, 2.0635765706181344e-05, 1.3384219633144834e-08),
    (1.0, 0.46716005358282386, 0.02588434674085215, 0.00032885114971258447, 7.790218457072674e-07),
)
"""tanh(x) / x over powers of x * x: numerator and denominator."""
_ERF: Final = (
    (1.1283791454163776, 0.19077867735226575, 0.052789630406077946, 0.0037793985010486707,
     0.00028480553160528123, 2.042029343523763e-06),
    (1.0, 0.5024059209680743, 0.1142554163449762, 0.014997010041585006, 0.0011651650096785344,
     3.8004528661034244e-05),
)  # fmt: skip
_EXP: Final = (
    0.4999999334641829,
    0.16666519129866098,
    0.041668405726683816,
    0.008368898694723556,
    0.0013814221636560403,
)
"""(exp(r) - 1 - r) / (r * r) over powers of r, from -ln(2) / 2 to ln(2) / 2."""
_SIGN, _INFINITY, _ONE = "0x80000000u", "0x7f800000", "0x3f800000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How a language says what the functions need, for one number or for a vector of them.

    ``bits`` and ``number`` turn floats into signed integers of their width and back; ``mask`` makes all bits
    of a condition; ``least`` and ``greatest`` give one of two integers.
    """

    real: str
    whole: str
    suffix: str
    bits: str
    number: str
    mask: str
    least: str
    greatest: str
    constant: str
    integer: str
    fma: str


_C: Final = Words(
    real="float", whole="int32_t", suffix="", bits="(int32_t)tb_bits({0})",
    number="tb_from_bits((uint32_t)({0}))", mask="-(int32_t)({0})",
    least="({0} < {1} ? {0} : {1})", greatest="({0} > {1} ? {0} : {1})",
    constant="{0}f", integer="(int32_t){0}", fma="fmaf",
)  # fmt: skip
_OPENCL: Final = Words(
    real="float", whole="int", suffix="", bits="as_int({0})", number="as_float({0})", mask="-({0})",
    least="min({0}, {1})", greatest="max({0}, {1})", constant="{0}f", integer="(int){0}", fma="fma",
)  # fmt: skip
_OPENCL_WIDE: Final = Words(
    real="float{lanes}", whole="int{lanes}", suffix="_{lanes}", bits="as_int{{lanes}}({0})",
    number="as_float{{lanes}}({0})", mask="({0})", least="min({0}, {1})", greatest="max({0}, {1})",
    constant="(float{{lanes}})({0}f)", integer="(int{{lanes}})((int){0})", fma="fma",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Writer:
    words: Words

    def _helper(self, name: str, lines: Sequence[str]) -> Helper:
        w = self.words
        symbol = f"tb_{name}_single{w.suffix}"
        head = f"{{inline}}{w.real} {symbol}({w.real} x) {{{{"
        fused = Helper(
            "fma_single", "",
            f"#if defined FP_FAST_FMAF || defined TB_FUSED\n#define TB_FMA {w.fma}\n#else\n"
            "#define TB_FMA(a, b, c) ((a) * (b) + (c))\n#endif",
        )  # fmt: skip
        body = "\n".join(f"  {line}" for line in lines)
        return Helper(f"{name}_single", f"{symbol}({{0}})", f"{head}\n{body}\n}}}}", (fused,))

    def _constant(self, value: float) -> str:
        return self.words.constant.format(repr(value))

    def _integer(self, value: str) -> str:
        return self.words.integer.format(value)

    def _polynomial(self, x: str, factors: Sequence[float]) -> str:
        text = self._constant(factors[-1])
        for factor in reversed(factors[:-1]):
            text = f"TB_FMA({x}, {text}, {self._constant(factor)})"
        return text

    def _cut(self, beyond: str) -> list[str]:
        """Return what takes a number apart: its size in bits, also cut, and its sign."""
        w = self.words
        return [
            f"const {w.whole} bits = {w.bits.format('x')}, size = bits & {self._integer('0x7fffffff')};",
            f"const {w.whole} sign = bits & {self._integer(_SIGN)}, most = {self._integer(beyond)};",
            f"const {w.whole} cut = {w.least.format('size', 'most')};",
        ]

    def _nan(self) -> str:
        return self.words.mask.format(f"size > {self._integer(_INFINITY)}")

    def quotient(self, name: str, above: Sequence[float], below: Sequence[float], beyond: str) -> Helper:
        """Return an odd function that grows up to 1, a quotient of polynomials of ``x * x`` times ``x``."""
        w = self.words
        result = f"({w.least.format('found', 'one')} | sign | {self._nan()})"
        lines = [
            *self._cut(beyond),
            f"const {w.real} y = {w.number.format('cut')}, z = y * y;",
            f"const {w.real} above = {self._polynomial('z', above)};",
            f"const {w.real} below = {self._polynomial('z', below)};",
            f"const {w.whole} found = {w.bits.format('(y * above / below)')}, one = {self._integer(_ONE)};",
            f"return {w.number.format(result)};",
        ]
        return self._helper(name, lines)

    def exp(self) -> Helper:
        """Return exp: 2^k times a polynomial, k in two steps, as its range is wider than that of exponents.

        Where the result is 0 the polynomial is too: products that are not normal take processors long. NaN
        comes through the polynomial.
        """
        w, c = self.words, self._constant
        a, b, d, e, f = map(c, _EXP)
        some = f"({w.bits.format('p')} & ~{w.mask.format(f'x < {c(-104.0)}')})"
        first, rest = (w.number.format(f"({name} + 127) << 23") for name in ("first", "rest"))
        return self._helper("exp", [
            f"const {w.real} even = {c(12582912.0)};",  # what is added to it loses its fraction
            f"const {w.real} near = TB_FMA(x, {c(1.4426950408889634)}, even);",
            f"const {w.whole} bits = {w.bits.format('near')}, zero = {w.bits.format('even')};",
            f"const {w.whole} top = zero + 129, bottom = zero - 150;",
            f"const {w.whole} less = {w.least.format('bits', 'top')};",
            f"const {w.whole} cut = {w.greatest.format('less', 'bottom')};",
            f"const {w.real} n = {w.number.format('cut')} - even;",
            f"const {w.real} high = TB_FMA(n, {c(-0.693359375)}, x);",
            f"const {w.real} r = TB_FMA(n, {c(0.000212194440)}, high), s = r * r;",
            f"const {w.real} p1 = TB_FMA(r, {b}, {a}), p2 = TB_FMA(r, {e}, {d});",
            f"const {w.real} p = TB_FMA(s, TB_FMA(s, TB_FMA(s, {f}, p2), p1), r) + {c(1.0)};",
            f"const {w.real} q = {w.number.format(some)};",
            f"const {w.whole} k = cut - zero, first = k >> 1, rest = k - first;",
            f"return q * {first} * {rest};",
        ])  # fmt: skip


def _functions(words: Words) -> Mapping[str, Helper]:
    """Return the functions as expressions of a dialect, by the names of the ops."""
    writer = _Writer(words)
    return {
        "tanh": writer.quotient("tanh", *_TANH, beyond="0x411051ec"),  # 9.02
        "erf": writer.quotient("erf", *_ERF, beyond="0x407b851f"),  # 3.93
        "exp": writer.exp(),
    }


C_SINGLE: Final = _functions(_C)
OPENCL_SINGLE: Final = _functions(_OPENCL)
OPENCL_WIDE_SINGLE: Final = _functions(_OPENCL_WIDE)

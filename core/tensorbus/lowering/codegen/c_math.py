"""Functions of floats in single precision, in C and OpenCL C: no branches, so that compilers vectorize them.

Each is a polynomial or a quotient of two, fitted over the range in which the result changes (least maximal
relative error); what lies beyond is cut off by the lesser and the greater of two, of which the second is the
result where one is NaN, as processors have it. At most one unit in the last place off (exp), three epsilons
(tanh, erf); results of exp may be too small to be normal.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A language's words for what the functions need, for one number or for a vector of them.

    ``bits`` and ``number`` turn floats into signed integers of their width and back. ``lesser`` and
    ``greater`` give one of two floats, the second unless the first is known to be. ``fma`` calls what makes
    ``a * b + c``, rounded once or twice: whichever is quick; ``fused`` defines it, where the language's
    prologue does not.
    """

    real: str
    whole: str
    suffix: str
    bits: str
    number: str
    lesser: str
    greater: str
    constant: str
    fma: str = "TB_FMA"
    fused: str = ""


_FUSED_C: Final = """\
#ifdef __FP_FAST_FMAF
#define TB_FMA fmaf
#else
#define TB_FMA(a, b, c) ((a) * (b) + (c))
#endif"""
_FUSED_OPENCL: Final = "#define TB_FMA mad"
"""Not every device whose compiler fuses in ``mad`` says that it has ``fma``."""
_C: Final = Words(
    real="float", whole="int32_t", suffix="", bits="(int32_t)tb_bits({0})",
    number="tb_from_bits((uint32_t)({0}))", lesser="({0} < {1} ? {0} : {1})",
    greater="({0} > {1} ? {0} : {1})", constant="{0}f", fused=_FUSED_C,
)  # fmt: skip
_C_WIDE: Final = Words(
    real="tb_float_{lanes}", whole="tb_places_{lanes}", suffix="_{lanes}", bits="(tb_places_{{lanes}})({0})",
    number="(tb_float_{{lanes}})({0})", lesser="TB_LESSER_{{lanes}}({0}, {1})",
    greater="TB_GREATER_{{lanes}}({0}, {1})", constant="((tb_float_{{lanes}}){{{{}}}} + {0}f)",
    fma="TB_FMA_{lanes}",
)  # fmt: skip
_OPENCL: Final = Words(
    real="float", whole="int", suffix="", bits="as_int({0})", number="as_float({0})",
    lesser="({0} < {1} ? {0} : {1})", greater="({0} > {1} ? {0} : {1})", constant="{0}f",
    fused=_FUSED_OPENCL,
)  # fmt: skip
_OPENCL_WIDE: Final = Words(
    real="float{lanes}", whole="int{lanes}", suffix="_{lanes}", bits="as_int{{lanes}}({0})",
    number="as_float{{lanes}}({0})", lesser="select({1}, {0}, {0} < {1})",
    greater="select({1}, {0}, {0} > {1})", constant="(float{{lanes}})({0}f)", fused=_FUSED_OPENCL,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Writer:
    words: Words

    def _helper(self, name: str, lines: Sequence[str]) -> Helper:
        w = self.words
        symbol = f"tb_{name}_single{w.suffix}"
        head = f"{{inline}}{w.real} {symbol}({w.real} x) {{{{"
        needs = (Helper("fma_single", "", w.fused),) if w.fused else ()
        body = "\n".join(f"  {line}" for line in lines)
        return Helper(f"{name}_single", f"{symbol}({{0}})", f"{head}\n{body}\n}}}}", needs)

    def _constant(self, value: float) -> str:
        return self.words.constant.format(repr(value))

    def _polynomial(self, x: str, factors: Sequence[float], text: str) -> str:
        """Return a polynomial of which ``text`` is all but the first ``factors``, by as many ``x``."""
        for factor in reversed(factors):
            text = f"{self.words.fma}({x}, {text}, {self._constant(factor)})"
        return text

    def quotient(self, name: str, above: Sequence[float], below: Sequence[float], beyond: float) -> Helper:
        """Return an odd function that grows up to 1, a quotient of polynomials of ``x * x`` times ``x``.

        Beyond ``beyond`` the polynomials stay as they are and ``x`` grows, so that what is cut off is above
        1. Both are divided by the last factor of the lower one, which saves a product.
        """
        w, c = self.words, self._constant
        up, low = ([factor / below[-1] for factor in factors] for factors in (above, below))
        first = f"(z + {c(low[-2])})"
        rest = self._polynomial("z", low[:-2], first)
        return self._helper(name, [
            f"const {w.real} square = x * x;",
            f"const {w.real} z = {w.lesser.format(c(beyond * beyond), 'square')};",
            f"const {w.real} above = {self._polynomial('z', up[:-1], c(up[-1]))};",
            f"const {w.real} below = {rest};",
            f"const {w.real} found = x * above / below;",
            f"const {w.real} most = {w.lesser.format(c(1.0), 'found')};",
            f"return {w.greater.format(c(-1.0), 'most')};",
        ])  # fmt: skip

    def exp(self) -> Helper:
        """Return exp: 2^k times a polynomial, k in two steps, as its range is wider than that of exponents.

        The low bits of ``near`` are k + 254: each half of it is what the exponent of a number has. Far below
        all results both halves are 0, and so is the product, at once: processors take long for products that
        are not normal. NaN comes through the polynomial.
        """
        w, c = self.words, self._constant
        a, b, d, e, f = map(c, _EXP)
        first, rest = (w.number.format(name) for name in ("first", "rest"))
        return self._helper("exp", [
            f"const {w.real} low = {w.greater.format(c(-176.0), 'x')};",
            f"const {w.real} y = {w.lesser.format(c(89.0), 'low')};",
            f"const {w.real} even = {c(12583166.0)};",  # what is added to it loses its fraction
            f"const {w.real} near = {w.fma}(y, {c(1.4426950408889634)}, even), n = near - even;",
            f"const {w.real} high = {w.fma}(n, {c(-0.693359375)}, y);",
            f"const {w.real} r = {w.fma}(n, {c(0.000212194440)}, high), s = r * r;",
            f"const {w.real} p1 = {w.fma}(r, {b}, {a}), p2 = {w.fma}(r, {e}, {d});",
            f"const {w.real} p = {w.fma}(s, {w.fma}(s, {w.fma}(s, {f}, p2), p1), r) + {c(1.0)};",
            f"const {w.whole} bits = {w.bits.format('near')};",
            f"const {w.whole} first = (bits >> 1) << 23, rest = (bits << 23) - first;",
            f"return p * {first} * {rest};",
        ])  # fmt: skip


def _functions(words: Words) -> Mapping[str, Helper]:
    """Return the functions as expressions of a dialect, by the names of the ops."""
    writer = _Writer(words)
    return {
        "tanh": writer.quotient("tanh", *_TANH, beyond=9.02),
        "erf": writer.quotient("erf", *_ERF, beyond=3.93),
        "exp": writer.exp(),
    }


C_SINGLE: Final = _functions(_C)
C_WIDE_SINGLE: Final = _functions(_C_WIDE)
OPENCL_SINGLE: Final = _functions(_OPENCL)
OPENCL_WIDE_SINGLE: Final = _functions(_OPENCL_WIDE)

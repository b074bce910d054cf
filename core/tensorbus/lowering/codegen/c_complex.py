"""Complex numbers in C, OpenCL C, CUDA C++ and MSL: functions over a struct of two parts, ``x`` and ``y``.

They need no complex type of the language. Special cases are those of the array API standard 2025.12, which
follows C99 Annex G; inverse functions are Kahan's, "Branch Cuts for Complex Elementary Functions" (1987),
which keep the sign of zero. In the sources below ``Z`` is the complex type, ``R`` that of its parts, ``@``
the suffix of the language's functions and ``#`` that of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .dialect import Helper

_WORDS: Final = {
    "Z": "{T}", "R": "{P}", "TOP": "{top}", "TINY": "{tiny}", "INF": "(({P}){inf})", "NAN": "(({P}){nan})",
    "PI": "(({P})3.141592653589793238)", "LN2": "(({P})0.693147180559945309)",
    "PRODUCT": "{product}",
}  # fmt: skip
_TOKEN: Final = re.compile(r"\b(?:Z|R|TOP|TINY|INF|NAN|PI|LN2|PRODUCT)\b|\b\d+\.\d+(?:e-?\d+)?\b")


def _text(source: str) -> str:
    """Return a source as a template: literals in the type of the parts, words replaced."""
    source = source.replace("{", "{{").replace("}", "}}").replace("@", "{f}").replace("#", "_{S}")
    return _TOKEN.sub(lambda m: _WORDS.get(m[0]) or f"(({{P}}){m[0]})", " ".join(source.split()))


def _function(name: str, arity: int, body: str, *needs: Helper, gives: str = "Z", takes: str = "Z") -> Helper:
    letters = "ab"[:arity]
    head = f"{gives} tb_{name}#({', '.join(f'{takes} {letter}' for letter in letters)})"
    call = f"tb_{name}_{{S}}({', '.join(f'{{{k}}}' for k in range(arity))})"
    return Helper(f"complex_{name}", call, "{inline}" + _text(f"{head} {{ {body} }}"), needs)


PAIR: Final = _function("pair", 2, "Z z; z.x = a; z.y = b; return z;", takes="R")
"""A complex number from its parts, which is also how literals are written."""
FROM_REAL: Final = Helper("complex_real", "tb_pair_{S}(({P}){0}, 0)", "", (PAIR,))
FROM_COMPLEX: Final = Helper(
    "complex_cast", "tb_{S}_from_{F}({0})",
    "{inline}{T} tb_{S}_from_{F}({R} z) {{ return tb_pair_{S}(({P})z.x, ({P})z.y); }}", (PAIR,),
)  # fmt: skip
TO_BOOL: Final = Helper(
    "complex_bool", "tb_bool_from_{F}({0})",
    "{inline}bool tb_bool_from_{F}({R} z) {{ return z.x != 0 || z.y != 0; }}",
)  # fmt: skip

_ADD: Final = _function("add", 2, "return tb_pair#(a.x + b.x, a.y + b.y);", PAIR)
_MULTIPLY: Final = _function("multiply", 2, "return PRODUCT;", PAIR)
_FMA: Final = Helper(
    "complex_fma", "tb_add_{S}(tb_multiply_{S}({0}, {1}), {2})", "", (_ADD, _MULTIPLY)
)  # fmt: skip
# Smith's division; where it gives NaN for both parts, infinities are sorted out as in Annex G.5.1.
_DIVIDE: Final = _function("divide", 2, """
    R re, im;
    if (b.x == 0 && b.y == 0) return tb_pair#(a.x / b.x, a.y / b.x);
    if (fabs@(b.x) >= fabs@(b.y)) {
      R r = b.y / b.x, q = b.x + b.y * r;
      re = (a.x + a.y * r) / q; im = (a.y - a.x * r) / q;
    } else {
      R r = b.x / b.y, q = b.y + b.x * r;
      re = (a.x * r + a.y) / q; im = (a.y * r - a.x) / q;
    }
    if (isnan(re) && isnan(im)) {
      if ((isinf(a.x) || isinf(a.y)) && isfinite(b.x) && isfinite(b.y)) {
        R u = copysign@((R)(isinf(a.x) ? 1 : 0), a.x), v = copysign@((R)(isinf(a.y) ? 1 : 0), a.y);
        re = INF * (u * b.x + v * b.y); im = INF * (v * b.x - u * b.y);
      } else if ((isinf(b.x) || isinf(b.y)) && isfinite(a.x) && isfinite(a.y)) {
        R u = copysign@((R)(isinf(b.x) ? 1 : 0), b.x), v = copysign@((R)(isinf(b.y) ? 1 : 0), b.y);
        re = 0 * (a.x * u + a.y * v); im = 0 * (a.y * u - a.x * v);
      }
    }
    return tb_pair#(re, im);""", PAIR)  # fmt: skip
_SQRT: Final = _function("sqrt", 1, """
    R x = a.x, y = a.y, s = 1.0;
    if (x == 0 && y == 0) return tb_pair#(0, y);
    if (isinf(y)) return tb_pair#(INF, y);
    if (isnan(x)) return tb_pair#(x, x);
    if (isinf(x)) {
      if (x > 0) return tb_pair#(x, isnan(y) ? y : copysign@((R)0, y));
      return tb_pair#(isnan(y) ? y : (R)0, copysign@(INF, y));
    }
    if (fabs@(x) > TOP / 4 || fabs@(y) > TOP / 4) { x *= 0.25; y *= 0.25; s = 2.0; }
    else if (fabs@(x) < 4 * TINY && fabs@(y) < 4 * TINY) { x *= 16.0; y *= 16.0; s = 0.25; }
    R t = sqrt@((fabs@(x) + hypot@(x, y)) * 0.5);
    if (x >= 0) return tb_pair#(s * t, s * (y / (2 * t)));
    return tb_pair#(s * (fabs@(y) / (2 * t)), copysign@(s * t, y));""", PAIR)  # fmt: skip
_EXP: Final = _function("exp", 1, """
    R x = a.x, y = a.y;
    if (y == 0) return tb_pair#(exp@(x), y);
    if (!isfinite(y)) return isinf(x) ? x < 0 ? tb_pair#(0, 0) : tb_pair#(x, NAN) : tb_pair#(NAN, NAN);
    R e = exp@(x);
    if (!isinf(e) || isinf(x)) return tb_pair#(e * cos@(y), e * sin@(y));
    e = exp@(x * 0.5);
    return tb_pair#(e * cos@(y) * e, e * sin@(y) * e);""", PAIR)  # fmt: skip
_EXPM1: Final = _function("expm1", 1, """
    if (isfinite(a.y) && fabs@(a.x) < 1) {
      R s = sin@(a.y * 0.5);
      return tb_pair#(expm1@(a.x) * cos@(a.y) - 2 * s * s + 0, exp@(a.x) * sin@(a.y));
    }
    Z z = tb_exp#(a);
    return tb_pair#(z.x - 1, z.y);""", _EXP)  # fmt: skip
_LOG: Final = _function("log", 1, """
    R u = fabs@(a.x), v = fabs@(a.y), m = u > v ? u : v, n = u > v ? v : u, r;
    if (isnan(u) || isnan(v)) r = isinf(u) || isinf(v) ? INF : NAN;
    else if (m > TOP / 4) r = log@(hypot@(u * 0.5, v * 0.5)) + LN2;
    else if (m > 0.5 && m < 2) r = log1p@((m - 1) * (m + 1) + n * n) * 0.5;
    else r = log@(hypot@(u, v));
    return tb_pair#(r, atan2@(a.y, a.x));""", PAIR)  # fmt: skip
_LOG1P: Final = _function("log1p", 1, """
    if (fabs@(a.x) < 0.5 && fabs@(a.y) < 0.5)
      return tb_pair#(log1p@(a.x * (a.x + 2) + a.y * a.y) * 0.5, atan2@(a.y, 1 + a.x));
    return tb_log#(tb_pair#(a.x + 1, a.y));""", _LOG)  # fmt: skip


def _log(name: str, factor: str) -> Helper:
    return _function(name, 1, f"Z z = tb_log#(a); return tb_pair#(z.x * {factor}, z.y * {factor});", _LOG)


_SINH: Final = _function("sinh", 1, """
    R x = a.x, y = a.y;
    if (y == 0) return tb_pair#(sinh@(x), y);
    if (!isfinite(y)) return tb_pair#(x == 0 || isinf(x) ? x : NAN, NAN);
    R c = cosh@(x);
    if (!isinf(c) || isinf(x)) return tb_pair#(sinh@(x) * cos@(y), c * sin@(y));
    R e = exp@(fabs@(x) * 0.5);
    return tb_pair#(copysign@(e * 0.5, x) * cos@(y) * e, e * 0.5 * sin@(y) * e);""", PAIR)  # fmt: skip
_COSH: Final = _function("cosh", 1, """
    R x = a.x, y = a.y;
    if (y == 0) return tb_pair#(cosh@(x), signbit(x) ? -y : y);
    if (!isfinite(y)) return tb_pair#(isinf(x) ? INF : NAN, x == 0 ? x : NAN);
    if (x == 0) return tb_pair#(cos@(y), x * sin@(y));
    R c = cosh@(x);
    if (!isinf(c) || isinf(x)) return tb_pair#(c * cos@(y), sinh@(x) * sin@(y));
    R e = exp@(fabs@(x) * 0.5);
    return tb_pair#(e * 0.5 * cos@(y) * e, copysign@(e * 0.5, x) * sin@(y) * e);""", PAIR)  # fmt: skip
_TANH: Final = _function("tanh", 1, """
    R x = a.x, y = a.y;
    if (isinf(x)) return tb_pair#(copysign@((R)1, x), isfinite(y) ? copysign@((R)0, y) : (R)0);
    if (isnan(x)) return tb_pair#(x, y == 0 ? y : x);
    if (!isfinite(y)) return tb_pair#(x == 0 ? x : NAN, NAN);
    if (fabs@(x) > 22.0) return tb_pair#(copysign@((R)1, x), 4 * sin@(y) * cos@(y) * exp@(-2 * fabs@(x)));
    R t = tan@(y), b = 1 + t * t, s = sinh@(x), r = sqrt@(1 + s * s), d = 1 + b * s * s;
    return tb_pair#(b * r * s / d, t / d);""", PAIR)  # fmt: skip
_ASINH: Final = _function("asinh", 1, """
    R x = a.x, y = a.y, m = fabs@(x) > fabs@(y) ? fabs@(x) : fabs@(y);
    if (!isfinite(x) || !isfinite(y)) {
      if (isinf(x)) return tb_pair#(x, isinf(y) ? copysign@(PI / 4, y) : isnan(y) ? y : copysign@((R)0, y));
      if (isinf(y)) return tb_pair#(isnan(x) ? INF : copysign@(INF, x), isnan(x) ? x : copysign@(PI / 2, y));
      return tb_pair#(NAN, y == 0 ? y : NAN);
    }
    if (m > 1.0e10)
      return tb_pair#(copysign@(log@(hypot@(x * 0.5, y * 0.5)) + 2 * LN2, x), atan2@(y, fabs@(x)));
    Z p = tb_sqrt#(tb_pair#(1 - y, x)), q = tb_sqrt#(tb_pair#(1 + y, -x));
    return tb_pair#(asinh@(p.y * q.x - p.x * q.y), atan2@(y, p.x * q.x - p.y * q.y));""", _SQRT)  # fmt: skip
_ACOS: Final = _function("acos", 1, """
    R x = a.x, y = a.y, m = fabs@(x) > fabs@(y) ? fabs@(x) : fabs@(y);
    if (!isfinite(x) || !isfinite(y)) {
      if (isinf(x) && isnan(y)) return tb_pair#(y, INF);
      R turn = isinf(y) ? x < 0 ? -PI / 4 : PI / 4 : 0;
      if (isinf(x)) return tb_pair#((x < 0 ? PI : 0) + turn, -copysign@(INF, y));
      if (isinf(y)) return tb_pair#(isnan(x) ? x : PI / 2, -y);
      return tb_pair#(x == 0 ? PI / 2 : NAN, NAN);
    }
    if (m > 1.0e10)
      return tb_pair#(atan2@(fabs@(y), x), -copysign@(log@(hypot@(x * 0.5, y * 0.5)) + 2 * LN2, y));
    Z p = tb_sqrt#(tb_pair#(1 + x, y)), q = tb_sqrt#(tb_pair#(1 - x, -y));
    return tb_pair#(2 * atan2@(q.x, p.x), asinh@(p.x * q.y - p.y * q.x));""", _SQRT)  # fmt: skip
_ACOSH: Final = _function("acosh", 1, """
    Z z = tb_acos#(a);
    return tb_pair#(fabs@(z.y), copysign@(z.x, a.y));""", _ACOS)  # fmt: skip
_ATANH: Final = _function("atanh", 1, """
    R x = a.x, y = a.y, u = fabs@(x), v = fabs@(y);
    if (!isfinite(x) || !isfinite(y)) {
      if (isinf(x) || isinf(y))
        return tb_pair#(isnan(x) ? 0 : copysign@((R)0, x), isnan(y) ? y : copysign@(PI / 2, y));
      return tb_pair#(x == 0 ? x : NAN, NAN);
    }
    if (u > 1.0e10 || v > 1.0e10) {
      R h = hypot@(x, y);
      return tb_pair#(x / h / h, copysign@(PI / 2, y));
    }
    if (u == 1 && v < 1.0e-15)
      return tb_pair#(copysign@((LN2 - log@(v)) * 0.5, x), y == 0 ? y : copysign@(PI / 4, y));
    return tb_pair#(copysign@(log1p@(4 * u / ((1 - u) * (1 - u) + y * y)) * 0.25, x),
                    atan2@(2 * y, (1 - u) * (1 + u) - y * y) * 0.5);""", PAIR)  # fmt: skip


def _circular(name: str, other: Helper, function: str) -> Helper:
    """Return ``-i f(i z)`` of a function ``f``, which is how the circular ones follow from the hyperbolic."""
    return _function(
        name, 1, f"Z z = tb_{function}#(tb_pair#(-a.y, a.x)); return tb_pair#(z.y, -z.x);", other
    )


_POWER: Final = _function("power", 2, """
    if (b.x == 0 && b.y == 0) return tb_pair#(1, 0);
    if (a.x == 0 && a.y == 0) return b.x > 0 ? tb_pair#(0, 0) : tb_pair#(NAN, NAN);
    if (b.y == 0 && fabs@(b.x) <= 64 && b.x == trunc@(b.x) && isfinite(a.x) && isfinite(a.y)) {
      Z r = tb_pair#(1, 0), s = a;
      for (int n = (int)fabs@(b.x); n != 0; n >>= 1) {
        if (n & 1) r = tb_multiply#(r, s);
        s = tb_multiply#(s, s);
      }
      return b.x < 0 ? tb_divide#(tb_pair#(1, 0), r) : r;
    }
    return tb_exp#(tb_multiply#(b, tb_log#(a)));""", _MULTIPLY, _DIVIDE, _EXP, _LOG)  # fmt: skip
_SIGN: Final = _function("sign", 1, """
    if (a.x == 0 && a.y == 0) return tb_pair#(0, 0);
    if (isnan(a.x) || isnan(a.y) || (isinf(a.x) && isinf(a.y))) return tb_pair#(NAN, NAN);
    if (isinf(a.x)) return tb_pair#(copysign@((R)1, a.x), 0);
    if (isinf(a.y)) return tb_pair#(0, copysign@((R)1, a.y));
    R h = hypot@(a.x, a.y);
    if (!isinf(h)) return tb_pair#(a.x / h, a.y / h);
    h = hypot@(a.x * 0.5, a.y * 0.5);
    return tb_pair#(a.x * 0.5 / h, a.y * 0.5 / h);""", PAIR)  # fmt: skip


def _bool(name: str, arity: int, body: str) -> Helper:
    return _function(name, arity, f"return {body};", gives="bool")


EXPRESSIONS: Final[Mapping[str, Helper]] = {
    "complex": PAIR,
    "add": _ADD,
    "subtract": _function("subtract", 2, "return tb_pair#(a.x - b.x, a.y - b.y);", PAIR),
    "multiply": _MULTIPLY,
    "divide": _DIVIDE,
    "fma": _FMA,
    "negative": _function("negative", 1, "return tb_pair#(-a.x, -a.y);", PAIR),
    "reciprocal": _function("reciprocal", 1, "return tb_divide#(tb_pair#(1, 0), a);", _DIVIDE),
    "square": _function("square", 1, "return tb_multiply#(a, a);", _MULTIPLY),
    "power": _POWER,
    "abs": _function("abs", 1, "return hypot@(a.x, a.y);", gives="R"),
    "real": _function("real", 1, "return a.x;", gives="R"),
    "imag": _function("imag", 1, "return a.y;", gives="R"),
    "round": _function("round", 1, "return tb_pair#(rint@(a.x), rint@(a.y));", PAIR),
    "conj": _function("conj", 1, "return tb_pair#(a.x, -a.y);", PAIR),
    "sign": _SIGN,
    "sqrt": _SQRT,
    "rsqrt": _function("rsqrt", 1, "return tb_divide#(tb_pair#(1, 0), tb_sqrt#(a));", _DIVIDE, _SQRT),
    "exp": _EXP,
    "expm1": _EXPM1,
    "log": _LOG,
    "log1p": _LOG1P,
    "log2": _log("log2", "1.4426950408889634074"),
    "log10": _log("log10", "0.43429448190325182765"),
    "sinh": _SINH,
    "cosh": _COSH,
    "tanh": _TANH,
    "asinh": _ASINH,
    "acosh": _ACOSH,
    "atanh": _ATANH,
    "sin": _circular("sin", _SINH, "sinh"),
    "cos": _function("cos", 1, "return tb_cosh#(tb_pair#(-a.y, a.x));", _COSH),
    "tan": _circular("tan", _TANH, "tanh"),
    "asin": _circular("asin", _ASINH, "asinh"),
    "acos": _ACOS,
    "atan": _circular("atan", _ATANH, "atanh"),
    "equal": _bool("equal", 2, "a.x == b.x && a.y == b.y"),
    "not_equal": _bool("not_equal", 2, "a.x != b.x || a.y != b.y"),
    "isnan": _bool("isnan", 1, "isnan(a.x) || isnan(a.y)"),
    "isinf": _bool("isinf", 1, "isinf(a.x) || isinf(a.y)"),
    "isfinite": _bool("isfinite", 1, "isfinite(a.x) && isfinite(a.y)"),
}  # fmt: skip

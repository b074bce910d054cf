"""The expressions of the prims that C, OpenCL C, CUDA C++ and MSL share.

Each result is defined for every operand: integers wrap, division by zero gives 0, shifts have no limit. A
helper is used wherever an operand would be written twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import c_complex
from .dialect import ByKind, Helper, Template

_KINDS: Final = ("bool", "int", "uint", "float")


def _every(template: Template) -> dict[str, Template]:
    return dict.fromkeys(_KINDS, template)


def _ints(template: Template) -> dict[str, Template]:
    return {"int": template, "uint": template}


def _function(name: str, arguments: str, body: str) -> Helper:
    """Return the helper ``name`` with arguments ``a``, ``b`` ... of the operands' type."""
    letters = arguments.split()
    parameters = ", ".join(f"{{T}} {letter}" for letter in letters)
    call = f"tb_{name}_{{S}}({', '.join(f'{{{k}}}' for k in range(len(letters)))})"
    return Helper(name, call, f"{{inline}}{{T}} tb_{name}_{{S}}({parameters}) {{{{ {body} }}}}")


def _call(name: str, arity: int = 1) -> dict[str, Template]:
    return {"float": f"{name}{{f}}({', '.join(f'{{{k}}}' for k in range(arity))})"}


def _wrap(operator: str, of_bools: str = "") -> dict[str, Template]:
    return {
        **({"bool": f"({{0}} {of_bools} {{1}})"} if of_bools else {}),
        "int": f"({{T}})(({{U}}){{0}} {operator} ({{U}}){{1}})",
        "uint": f"({{T}})({{0}} {operator} {{1}})",
        "float": f"({{0}} {operator} {{1}})",
        "index": f"({{0}} {operator} {{1}})",
    }


def _compare(operator: str) -> dict[str, Template]:
    return {**_every(f"({{0}} {operator} {{1}})"), "index": f"({{0}} {operator} {{1}})"}


_INT_FLOOR = "if (b == 0) return 0; if (b == -1) return ({T})(0 - ({U})a); {T} q = a / b;" \
    " return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;"  # fmt: skip
_INT_REST = "if (b == 0 || b == -1) return 0; {T} r = a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r;"
_FLOAT_FLOOR = (
    "if (isinf(a) || isinf(b) || b == 0 || isnan(a) || isnan(b)) return a / b;"
    " {T} r = fmod{f}(a, b); {T} q = (a - r) / b;"
    " if (r != 0 && (b < 0) != (r < 0)) q = q - 1;"
    " if (q == 0) return copysign{f}(({T})0, a / b);"
    " {T} w = floor{f}(q); return q - w > ({T})0.5 ? w + 1 : w;"
)
_FLOAT_REST = (
    "{T} r = fmod{f}(a, b); if (r != 0) return (b < 0) != (r < 0) ? r + b : r;"
    " return isnan(r) ? r : copysign{f}(r, b);"
)
_POWER = (
    "if (b < 0) return a == 1 ? 1 : a == ({T})-1 ? (b & 1 ? ({T})-1 : 1) : 0;"
    " {U} base = ({U})a, result = 1; for ({U} left = ({U})b; left != 0; left >>= 1)"
    " {{ if (left & 1) result = ({U})(({M})result * base); base = ({U})(({M})base * base); }}"
    " return ({T})result;"
)
_GCD = (
    "{U} x = a < 0 ? ({U})(0 - ({U})a) : ({U})a, y = b < 0 ? ({U})(0 - ({U})b) : ({U})b;"
    " while (y != 0) {{ const {U} rest = x % y; x = y; y = rest; }} return ({T})x;"
)
_BITS = (
    "{inline}{U} tb_bits_{S}({T} x) {{ union {{ {T} value; {U} bits; }} both; both.value = x;"
    " return both.bits; }}"
)


RANDOM: Final[Mapping[str, ByKind]] = {
    "philox": {"uint": Helper("philox", "tb_philox({0}, {1}, {2})", """\
{inline}{T} tb_philox({T} key, {T} block, {T} word) {{
  unsigned int x0 = (unsigned int)block, x1 = (unsigned int)(block >> 32), x2 = 0, x3 = 0;
  unsigned int k0 = (unsigned int)key, k1 = (unsigned int)(key >> 32);
  for (int round = 0; round < 10; ++round) {{
    const {T} left = ({T})x0 * 3528531795u, right = ({T})x2 * 3449720151u;
    x0 = (unsigned int)(right >> 32) ^ x1 ^ k0;
    x1 = (unsigned int)right;
    x2 = (unsigned int)(left >> 32) ^ x3 ^ k1;
    x3 = (unsigned int)left;
    k0 += 2654435769u;
    k1 += 3144134277u;
  }}
  return word < 2 ? (word == 0 ? x0 : x1) : (word == 2 ? x2 : x3);
}}""")},
}  # fmt: skip
"""Philox4x32-10 in one expression, for work-items that take the four words of a block side by side."""
_REAL: Final[Mapping[str, ByKind]] = {
    "add": _wrap("+", "||"),
    "subtract": _wrap("-"),
    "multiply": {**_wrap("*", "&&"), "int": "({T})(({M}){0} * ({M}){1})", "uint": "({T})(({M}){0} * {1})"},
    "divide": {"float": "({0} / {1})"},
    "quotient": {"index": "({0} / {1})"},
    "modulo": {"index": "({0} % {1})"},
    "fma": {"float": "fma{f}({0}, {1}, {2})", "uint": "({0} * {1} + {2})"},
    "floor_divide": {
        "int": _function("floor_divide", "a b", _INT_FLOOR),
        "uint": _function("floor_divide", "a b", "return b == 0 ? 0 : a / b;"),
        "float": _function("floor_divide", "a b", _FLOAT_FLOOR),
    },
    "remainder": {
        "int": _function("remainder", "a b", _INT_REST),
        "uint": _function("remainder", "a b", "return b == 0 ? 0 : a % b;"),
        "float": _function("remainder", "a b", _FLOAT_REST),
    },
    "power": {**_ints(_function("power", "a b", _POWER)), **_call("pow", 2)},
    "negative": {**_ints("({T})(0 - ({U}){0})"), "float": "(-{0})"},
    "abs": {
        "int": _function("abs", "a", "return a < 0 ? ({T})(0 - ({U})a) : a;"), "uint": "{0}",
        "float": "fabs{f}({0})",
    },
    "sign": {
        "bool": "{0}", "uint": "({T})({0} > 0)",
        "int": _function("sign", "a", "return (a > 0) - (a < 0);"),
        "float": _function("sign", "a", "return isnan(a) ? a : ({T})((a > 0) - (a < 0));"),
    },
    "square": {**_ints(_function("square", "a", "return ({T})(({M})a * ({M})a);")),
               "float": _function("square", "a", "return a * a;")},
    "reciprocal": {"float": "(({T})1 / {0})"},
    "rsqrt": {"float": "(({T})1 / sqrt{f}({0}))"},
    **{name: _call(name) for name in
       ("sqrt exp expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh"
        " erf").split()},
    "atan2": _call("atan2", 2),
    **{name: {**_ints("{0}"), **_call(name)} for name in ("floor", "ceil", "trunc")},
    "round": {**_ints("{0}"), **_call("rint")},
    "maximum": {
        **_ints(_function("maximum", "a b", "return a > b ? a : b;")), "bool": "({0} | {1})",
        "float": _function("maximum", "a b", "const {T} most = a > b ? a : b; return a != a ? a : most;"),
        "index": _function("maximum", "a b", "return a > b ? a : b;"),
    },
    "minimum": {
        **_ints(_function("minimum", "a b", "return a < b ? a : b;")), "bool": "({0} & {1})",
        "float": _function("minimum", "a b", "const {T} least = a < b ? a : b; return a != a ? a : least;"),
        "index": _function("minimum", "a b", "return a < b ? a : b;"),
    },
    "equal": _compare("=="),
    "not_equal": _compare("!="),
    "less": _compare("<"),
    "less_equal": _compare("<="),
    "greater": _compare(">"),
    "greater_equal": _compare(">="),
    "logical_and": {"bool": "({0} && {1})"},
    "logical_or": {"bool": "({0} || {1})"},
    "logical_xor": {"bool": "({0} != {1})"},
    "logical_not": {"bool": "(!{0})"},
    "bitwise_and": {**_ints("({T})({0} & {1})"), "bool": "({0} & {1})"},
    "bitwise_or": {**_ints("({T})({0} | {1})"), "bool": "({0} | {1})"},
    "bitwise_xor": {**_ints("({T})({0} ^ {1})"), "bool": "({0} != {1})"},
    "bitwise_invert": {**_ints("({T})(~{0})"), "bool": "(!{0})"},
    "bitwise_left_shift": _ints(
        _function("left_shift", "a b", "return ({U})b >= {W} ? 0 : ({T})(({U})a << b);")
    ),
    "bitwise_right_shift": {
        "int": _function("right_shift", "a b", "return a >> (({U})b >= {W} ? {W} - 1 : b);"),
        "uint": _function("right_shift", "a b", "return b >= {W} ? 0 : a >> b;"),
    },
    "bits": {"float": Helper("bits", "tb_bits_{S}({0})", _BITS)},
    "signbit": {"float": "(signbit({0}) != 0)"},
    "nextafter": _call("nextafter", 2),
    "gcd": _ints(_function("gcd", "a b", _GCD)),
    "isnan": {**_ints("({0} != {0})"), "float": "(isnan({0}) != 0)"},
    "isinf": {**_ints("({0} != {0})"), "float": "(isinf({0}) != 0)"},
    "isfinite": {**_ints("({0} == {0})"), "float": "(isfinite({0}) != 0)"},
}  # fmt: skip

EXPRESSIONS: Final[Mapping[str, ByKind]] = {
    name: {**_REAL.get(name, {}), **({"complex": function} if function is not None else {})}
    for name in dict.fromkeys((*_REAL, *c_complex.EXPRESSIONS))
    for function in (c_complex.EXPRESSIONS.get(name),)
}

CASTS: Final[Mapping[tuple[str, str], Template]] = {
    **{(kind, "bool"): "({0} != 0)" for kind in ("int", "uint", "float", "index")},
    **{
        (a, b): "({T}){0}"
        for a in ("bool", "int", "uint", "index")
        for b in ("int", "uint", "float", "index")
    },
    ("float", "float"): "({T}){0}",
    **{(kind, "complex"): c_complex.FROM_REAL for kind in _KINDS},
    ("complex", "complex"): c_complex.FROM_COMPLEX,
    ("complex", "bool"): c_complex.TO_BOOL,
}
"""Conversions by kind of source and target. From float to integers a dialect adds its own, or these:"""

# What gives 0 is told apart, as NaN is: gcc 12 makes floats of such integers by rounding, and -0 of -0.5.
_TO_INT: Final = Helper("to_int", "tb_{S}_from_{F}({0})", """\
{inline}{T} tb_{S}_from_{F}({R} x) {{
  const {R} end = ({R})(({U})1 << ({W} - 1));
  if (!(x * x >= 1)) return 0;
  return x >= end ? ({T})(({U})~({U})0 >> 1) : x < -end ? ({T})(({U})1 << ({W} - 1)) : ({T})x;
}}""")  # fmt: skip
_TO_UINT: Final = Helper("to_uint", "tb_{S}_from_{F}({0})", """\
{inline}{T} tb_{S}_from_{F}({R} x) {{
  const {R} end = 2 * ({R})(({U})1 << ({W} - 1));
  return !(x > 0) ? 0 : x >= end ? ({T})~({U})0 : ({T})x;
}}""")  # fmt: skip
SATURATING: Final[Mapping[tuple[str, str], Template]] = {
    ("float", "int"): _TO_INT,
    ("float", "uint"): _TO_UINT,
}
"""The conversions that C leaves undefined beyond the integers' ends: the nearest value, and 0 for NaN."""

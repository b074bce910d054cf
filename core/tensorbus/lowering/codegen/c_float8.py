"""Floats of 8 bits in C, OpenCL C and CUDA C++: stored in a byte, computed in float, rounded after each op.

The formats are those of "FP8 Formats for Deep Learning" (Micikevicius et al., 2022): e4m3 has no infinities,
e5m2 is the upper byte of a half. Values round to the nearest, ties to even; beyond the largest one e4m3 gives
NaN and e5m2 infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...dtypes.definition import DType, float8_e4m3fn, float8_e5m2
from .dialect import Helper, TypeRule


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """Digits, the exponent of 1, the first byte that is no number, and what overflow gives."""

    digits: int
    bias: int
    nan: int
    beyond: int

    @property
    def least(self) -> int:
        """The exponent of the smallest number."""
        return 1 - self.bias - self.digits


_FORMATS: Final = {
    float8_e4m3fn: ("e4m3", _Format(digits=3, bias=7, nan=0x7F, beyond=0x7F)),
    float8_e5m2: ("e5m2", _Format(digits=2, bias=15, nan=0x7D, beyond=0x7C)),
}


def float8_types(byte: str, word: str, bits: str, value: str, math: str = "") -> dict[DType, TypeRule]:
    """Return the rules of both formats.

    ``byte`` and ``word`` name unsigned integers of 8 and 32 bits; ``bits`` and ``value`` are functions that
    reread a float as a word and back; ``math`` is what the names of functions of floats end in.
    """
    rules: dict[DType, TypeRule] = {}
    for dtype, (name, f) in _FORMATS.items():
        spelling = (name, f, byte, word, bits, value)
        from_ = Helper(f"from_{name}", f"tb_from_{name}({{p}}[{{i}}])", _from(*spelling))
        to = Helper(f"to_{name}", f"{{p}}[{{i}}] = tb_to_{name}({{v}})", _to(*spelling))
        rules[dtype] = TypeRule(
            storage=byte, register="float", unsigned=word, math=math, suffix="f", load=from_, store=to,
            rounded=Helper(f"round_{name}", f"tb_from_{name}(tb_to_{name}({{0}}))", "", (from_, to)),
        )  # fmt: skip
    return rules


def _to(name: str, f: _Format, byte: str, word: str, bits: str, value: str) -> str:
    # Below the least normal number, digits are those of a float whose last one has the least number's weight.
    cut, small = 23 - f.digits, f"0x{(127 + f.least + 23) << 23:x}u"
    half, rebias = f"0x{(1 << (cut - 1)) - 1:x}u", f"0x{(127 - f.bias) << f.digits:x}u"
    return f"""\
{{inline}}{byte} tb_to_{name}(float x) {{{{
  const {word} whole = {bits}(x), size = whole & 0x7fffffffu, sign = whole >> 24 & 0x80u;
  if (size > 0x7f800000u) return ({byte})(sign | 0x7fu);
  if (size < 0x{(128 - f.bias) << 23:x}u)
    return ({byte})(sign | ({bits}({value}(size) + {value}({small})) - {small}));
  const {word} near = ((size + {half} + (size >> {cut} & 1u)) >> {cut}) - {rebias};
  return ({byte})(sign | (near >= 0x{f.beyond:x}u ? 0x{f.beyond:x}u : near));
}}}}"""


def _from(name: str, f: _Format, byte: str, word: str, bits: str, value: str) -> str:
    end = f"size == 0x{f.beyond:x}u ? {value}(0x7f800000u) : " if f.beyond != f.nan else ""
    return f"""\
{{inline}}float tb_from_{name}({byte} given) {{{{
  const {word} size = given & 0x7fu, sign = ({word})(given & 0x80u) << 24;
  const float found = size >= 0x{f.nan:x}u ? {value}(0x7fc00000u) : {end}size < 0x{1 << f.digits:x}u
      ? (float)size * 0x1p{f.least}f : {value}((size << {23 - f.digits}) + 0x{(127 - f.bias) << 23:x}u);
  return {value}({bits}(found) | sign);
}}}}"""

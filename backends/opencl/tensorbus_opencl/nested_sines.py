"""A shield for kernels that take the sine and the cosine of a sine or a cosine.

Intel's compiler for processors joins ``sin(x)`` and ``cos(x)`` into one call, and ends the process where
``x`` is itself a result that it joined so. There each result is passed through a minimum with 2, which
changes no result and parts the two. That costs an instruction, and now and then how wide the compiler makes
its vectors, so other kernels are left as they are: ``has_nested_sines`` errs to the side of the shield.
"""

from __future__ import annotations

import re
from typing import Final

_NAMES: Final = ("sin", "cos", "native_sin", "native_cos")
_CALL: Final = re.compile(rf"\b(?:{'|'.join(_NAMES)})\s*\(")
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STATEMENT: Final = re.compile(r"([^;{}]+)([;{}]|$)")
_ASSIGNMENT: Final = re.compile(  # to a variable, an element or a member: its name, and the value
    r"(\w+)(?:\s*\[[^=]*\]|\s*\.\s*\w+|\s*->\s*\w+)*\s*[-+*/]?(?<![=!<>])=(?!=)(.*)", re.DOTALL
)
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_MACROS: Final = (f"#define {f}(x) ({{ __auto_type tb_s = {f}(x); 2 < tb_s ? 2 : tb_s; }})\n" for f in _NAMES)
_SHIELD: Final = "".join(_MACROS) + "#line 1\n"


def shield_nested_sines(source: str) -> str:
    """Return source that the compiler survives: with macros before it where it needs them."""
    return _SHIELD + source if has_nested_sines(source) else source


def has_nested_sines(source: str) -> bool:
    """Return whether both are taken, and an operand may be a result: by the names in the statements.

    >>> has_nested_sines("const float s = sin(x); out[0] = cos(s) * sin(s);")
    True
    >>> has_nested_sines("out[0] = sin(x) * cos(x) + cos(y);")
    False
    """
    source = _COMMENT.sub(" ", source)
    calls = {match[0].rstrip("( \t\n").removeprefix("native_") for match in _CALL.finditer(source)}
    if len(calls) < 2:
        return False
    if re.search(rf"^\s*#\s*define\b.*\b(?:{'|'.join(_NAMES)})\b", source, re.MULTILINE):
        return True
    effects = [_effect(match[1]) for match in _STATEMENT.finditer(source) if not _is_header(match)]
    results: set[str] = set()
    while True:
        reached = {
            name for names, value in effects if _CALL.search(value) or not results.isdisjoint(_words(value))
            for name in names
        } - results  # fmt: skip
        if not reached:
            break
        results |= reached
    if "return" in results:  # of a function, whose calls are not followed
        return True
    operands = [_argument(source, match.end()) for match in _CALL.finditer(source)]
    return any(_CALL.search(operand) or not results.isdisjoint(_words(operand)) for operand in operands)


def _is_header(statement: re.Match[str]) -> bool:
    """Return whether a statement, with what ends it, only opens a block."""
    return statement[2] == "{" and not _CALL.search(statement[1]) and "=" not in statement[1]


def _effect(statement: str) -> tuple[set[str], str]:
    """Return the names that a statement gives values to, all of its names where it is no assignment."""
    match = _ASSIGNMENT.search(statement)
    return ({match[1]}, match[2]) if match else (_words(statement), statement)


def _argument(source: str, start: int) -> str:
    """Return what is between a parenthesis, which ends at ``start``, and its other one."""
    depth = 1
    for at in range(start, len(source)):
        depth += {"(": 1, ")": -1}.get(source[at], 0)
        if depth == 0:
            return source[start:at]
    return source[start:]


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text))

"""``SymInt``: a length that stands for any number, of an axis that a captured program leaves open.

A ``SymInt`` is an expression over symbols ``s0``, ``s1`` ... with the value that it had at the capture. What
Python decides by lengths becomes a condition on the symbols, evaluated for the lengths of each later call.
Where Python needs a plain int, the length is specialized: the condition is that it is the same again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from math import ceil, floor
from types import CodeType
from typing import Any, Final

_INFIX: Final[dict[str, Callable[[int, int], Any]]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "**": lambda a, b: a**b, "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b,
}  # fmt: skip
FUNCTIONS: Final[Mapping[str, Callable[..., int]]] = {"ceil": ceil, "floor": floor, "round": round}
"""What the texts of lengths may call."""
_NEUTRAL: Final = {("+", 0), ("-", 0), ("*", 1), ("//", 1)}


class ShapeEnv:
    """The symbols of one capture, and the conditions that Python's decisions put on them.

    ``symbols`` maps each to the code that finds it at a call, ``hints`` to what it was at the capture.
    ``number(text, plain)`` makes a number of an expression that gives no integer.
    """

    def __init__(self, number: Callable[[str, float], Any]) -> None:
        self.symbols: dict[str, str] = {}
        self.hints: dict[str, int] = {}
        self.guards: list[str] = []
        self.number = number

    def new_symbol(self, hint: int, at: str, least: int = 2, most: int | None = None) -> SymInt:
        """Return a new symbol for what the code ``at`` finds, which was ``hint`` at the capture."""
        name = f"s{len(self.symbols)}"
        self.symbols[name], self.hints[name] = at, hint
        self.add_guard(f"{name} >= {least}")
        if most is not None:
            self.add_guard(f"{name} <= {most}")
        return SymInt(self, name, hint)

    def add_guard(self, condition: str) -> None:
        """Add a condition, once."""
        if condition not in self.guards:
            self.guards.append(condition)

    def is_specialized(self, name: str) -> bool:
        """Return whether the conditions on this symbol alone hold for none of many other values."""
        codes = [compile(text, "<condition>", "eval") for text in self.guards]
        codes = [code for code in codes if self.symbols.keys() & code.co_names == {name}]
        hint = self.hints[name]
        near = [n for away in range(1, 257) for n in (hint + away, hint - away)]
        return not any(all(_holds(code, name, n) for code in codes) for n in (*near, 2 * hint, hint // 2))


def _holds(code: CodeType, name: str, n: int) -> bool:
    try:
        return bool(eval(code, {"__builtins__": {}, **FUNCTIONS}, {name: n}))
    except (ArithmeticError, ValueError):
        return False


class SymInt:
    """A length: ``text`` over the symbols, and its value ``hint`` at the capture."""

    __slots__ = ("_lengths", "env", "hint", "text")
    _lengths: tuple[Any, ...]

    def __init__(self, home: ShapeEnv, text: str, hint: int) -> None:
        self.env, self.text, self.hint = home, text, hint

    def with_shape(self, shape: tuple[Any, ...]) -> SymInt:
        """Return this number as that of the elements of ``shape``, which it gives when it is called."""
        count = SymInt(self.env, self.text, self.hint)
        count._lengths = shape
        return count

    def __call__(self, dim: int | None = None) -> Any:
        """Return the shape that this is the number of elements of, or one of its lengths."""
        if not hasattr(self, "_lengths"):
            raise TypeError("a length is not callable; a tensor's x.size is.")
        return self._lengths if dim is None else self._lengths[dim]

    def _with(self, sign: str, other: Any, swapped: bool = False) -> Any:
        kind = type(other)
        if issubclass(kind, int):
            text, hint = str(int(other)), int(other)
            if (sign, hint) == ("*", 0):
                return 0
            if not swapped and (sign, hint) in _NEUTRAL:
                return self
            if swapped and ((sign, hint) in (("+", 0), ("*", 1))):
                return self
        elif type(other) is SymInt:
            text, hint = other.text, other.hint
        elif type(other) is float or hasattr(other, "plain"):  # a number, of Python or of the host prologue
            number = self.number()
            return _INFIX[sign](other, number) if swapped else _INFIX[sign](number, other)
        else:
            return NotImplemented
        left, right = (
            ((text, hint), (self.text, self.hint)) if swapped else ((self.text, self.hint), (text, hint))
        )
        return SymInt(self.env, f"({left[0]} {sign} {right[0]})", _INFIX[sign](left[1], right[1]))

    def __add__(self, other: Any) -> Any:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._with("+", other, True)

    def __sub__(self, other: Any) -> Any:
        if type(other) is SymInt and other.text == self.text:
            return 0
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("-", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Any:
        return self._with("*", other, True)

    def __floordiv__(self, other: Any) -> Any:
        if type(other) is SymInt and other.text == self.text:
            return 1
        return self._with("//", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with("//", other, True)

    def __mod__(self, other: Any) -> Any:
        return self._with("%", other)

    def __rmod__(self, other: Any) -> Any:
        return self._with("%", other, True)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: Any) -> Any:
        if type(other) in (int, SymInt) and other >= 0:
            return self._with("**", other)
        return self.number() ** (other.number() if type(other) is SymInt else other)

    def __rpow__(self, other: Any) -> Any:
        return self._with("**", other, True) if self >= 0 else other ** self.number()

    def __and__(self, other: Any) -> Any:
        return self._with("&", other)

    def __or__(self, other: Any) -> Any:
        return self._with("|", other)

    def __xor__(self, other: Any) -> Any:
        return self._with("^", other)

    def __lshift__(self, other: Any) -> Any:
        return self._with("<<", other)

    def __rlshift__(self, other: Any) -> Any:
        return self._with("<<", other, True)

    def __rshift__(self, other: Any) -> Any:
        return self._with(">>", other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def bit_length(self) -> Any:
        """Return how many bits the length takes."""
        return SymInt(self.env, f"{self.text}.bit_length()", self.hint.bit_length())

    def __neg__(self) -> Any:
        return self._with("*", -1)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.guard_int(), digits) if digits is not None and digits < 0 else self

    __ceil__ = __floor__ = __trunc__ = __pos__

    def __truediv__(self, other: Any) -> Any:
        if type(other) not in (int, float, SymInt):
            return self.number() / other if hasattr(other, "plain") else NotImplemented
        text, hint = (other.text, other.hint) if type(other) is SymInt else (repr(other), other)
        return self.env.number(f"({self.text} / {text})", self.hint / hint)

    def __rtruediv__(self, other: Any) -> Any:
        if type(other) not in (int, float):
            return other / self.number() if hasattr(other, "plain") else NotImplemented
        return self.env.number(f"({other!r} / {self.text})", other / self.hint)

    def number(self) -> Any:
        """Return the length as a number that ops take as an operand."""
        return self.env.number(self.text, self.hint)

    def _compare(self, sign: str, other: Any) -> Any:
        if type(other) is SymInt and other.text == self.text:
            return sign in ("==", "<=", ">=")
        condition = self._with(sign, other)
        if condition is NotImplemented or type(condition) is bool:  # which a number has decided
            return condition
        if condition is self:  # compared with a neutral number
            condition = SymInt(
                self.home, f"({self.text} {sign} {int(other)})", _INFIX[sign](self.hint, int(other))
            )
        holds = bool(condition.hint)
        self.env.add_guard(condition.text if holds else f"not {condition.text}")
        return holds

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", other)

    def __lt__(self, other: Any) -> Any:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare(">=", other)

    def __hash__(self) -> int:
        return hash(self.guard_int())

    def __bool__(self) -> bool:
        return bool(self._compare("!=", 0))

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """``int``, so that ``isinstance`` decides as it does for the integer."""
        return int

    def guard_int(self) -> int:
        """Return the value at the capture, which later calls must have again."""
        self.env.add_guard(f"{self.text} == {self.hint}")
        return self.hint

    def __index__(self) -> int:
        return self.guard_int()

    def __int__(self) -> int:
        return self.guard_int()

    def __float__(self) -> float:
        return float(self.guard_int())

    def __repr__(self) -> str:
        return str(self.guard_int())

    def __format__(self, spec: str) -> str:
        return format(self.guard_int(), spec)


def integer(n: Any) -> int:
    """Return ``n``, an int and nothing like one. Raises ``TypeError`` for others."""
    if type(n) is not int:
        raise TypeError(f"{n!r} is no int")
    return n


def index(n: Any) -> Any:
    """Return ``n`` as an int; a ``Length`` as it is. Raises ``TypeError`` for what is no integer."""
    return n if type(n) is SymInt else operator.index(n)


def hints(x: Any) -> Any:
    """Return ``x`` with the lengths within tuples, lists and dicts as they were at the capture."""
    return _mapped(x, lambda length: length.hint)


def closed(x: Any) -> Any:
    """Return ``x`` without open lengths: lists and dicts are changed, tuples made anew where they had any."""
    if type(x) is SymInt:
        return x.hint
    if type(x) is list:
        x[:] = [closed(v) for v in x] if any(map(is_open, x)) else x
    elif type(x) is dict:
        x.update({k: closed(v) for k, v in x.items() if is_open(v)})
    elif type(x) is tuple and is_open(x):
        return tuple(closed(v) for v in x)
    return x


def distinct(numbers: Iterable[Any]) -> list[Any]:
    """Return the numbers without those that an earlier one is equal to, which later calls must have again."""
    different: list[Any] = []
    for n in numbers:
        if not any(n is m or (closed(n) == closed(m) and n == m) for m in different):
            different.append(n)
    return different


def texts(x: Any) -> Any:
    """Return a form of ``x`` that names its lengths, and hashes where ``x`` does."""
    return _mapped(x, lambda length: ("length", length.text))


def at(x: Any, sizes: Mapping[str, int]) -> Any:
    """Return ``x`` with its lengths for these values of the symbols."""
    return substitute(sizes)(x)


def substitute(sizes: Mapping[str, int]) -> Callable[[Any], Any]:
    """Return what gives things with lengths for these values of the symbols, each computed once."""
    scope, known = {"__builtins__": {}, **FUNCTIONS, **sizes}, dict(sizes)

    def value(length: SymInt) -> int:
        length_value = known.get(length.text)
        if length_value is None:
            length_value = known[length.text] = eval(length.text, scope)
        return length_value

    return lambda x: _mapped(x, value)


def is_open(x: Any) -> bool:
    """Return whether there is a length in ``x``."""
    if type(x) in (tuple, list):
        return any(map(is_open, x))
    return any(map(is_open, x.values())) if type(x) is dict else type(x) is SymInt


def _mapped(x: Any, change: Callable[[SymInt], Any]) -> Any:
    if type(x) is SymInt:
        return change(x)
    if type(x) in (tuple, list):
        return type(x)(_mapped(v, change) for v in x)
    return {k: _mapped(v, change) for k, v in x.items()} if type(x) is dict else x

"""``SymInt``: a length that stands for any number, of an axis that a captured program leaves open.

A ``SymInt`` is an expression over symbols ``s0``, ``s1`` ... with the value that it had at the capture. What
Python decides by lengths becomes a condition on the symbols, evaluated for the lengths of each later call.
Where Python needs a plain int, the length is specialized: the condition is that it is the same again.
What a length does it asks its ``env``: that of a plan (``plan_env``) keeps lengths in a normal form.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, floor, gcd
from types import CodeType
from typing import Any, Final

INFIX: Final[dict[str, Callable[[int, int], Any]]] = {
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

    def of_name(self, name: str) -> SymInt:
        """Return the symbol of this name."""
        return SymInt(self, name, self.hints[name])

    def add_guard(self, condition: str) -> None:
        """Add a condition, once."""
        if condition not in self.guards:
            self.guards.append(condition)

    def combined(self, sign: str, left: Any, right: Any) -> Any:
        """Return what an operator makes of two lengths, or of a length and an integer."""
        a, b = (x.text if type(x) is SymInt else str(x) for x in (left, right))
        return SymInt(self, f"({a} {sign} {b})", INFIX[sign](plain(left), plain(right)))

    def ratio(self, left: Any, right: Any) -> Any:
        """Return the number that a length divided by a number gives."""
        text = right.text if type(right) is SymInt else repr(right)
        return self.number(f"({left.text} / {text})", left.hint / plain(right))

    def compared(self, sign: str, left: Any, right: Any) -> bool:
        """Return what a comparison gave at the capture: a condition from now on."""
        condition = self.combined(sign, left, right)
        holds = bool(condition.hint)
        self.add_guard(condition.text if holds else f"not {condition.text}")
        return holds

    def bits_of(self, x: SymInt) -> Any:
        """Return how many bits a length takes."""
        return SymInt(self, f"{x.text}.bit_length()", x.hint.bit_length())

    def hash_of(self, x: SymInt) -> int:
        """Return the hash of a length: that of the integer, which it must be again."""
        return hash(x.guard_int())

    def text_of(self, x: SymInt) -> str:
        """Return what a length shows as: the integer, which it must be again."""
        return str(x.guard_int())

    def specialize(self, x: SymInt) -> None:
        """Make it a condition that a length is what it was at the capture."""
        self.add_guard(f"{x.text} == {x.hint}")

    def near(self, x: SymInt) -> int:
        """Return a length as it was at the capture, which it must be again."""
        return x.guard_int()

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

    __slots__ = ("_lengths", "env", "form", "hint", "text")
    _lengths: tuple[Any, ...]

    def __init__(self, home: ShapeEnv, text: str, hint: int, form: Any = None) -> None:
        self.env, self.text, self.hint, self.form = home, text, hint, form

    def with_shape(self, shape: tuple[Any, ...]) -> SymInt:
        """Return this number as that of the elements of ``shape``, which it gives when it is called."""
        count = SymInt(self.env, self.text, self.hint, self.form)
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
            other = int(other)
            if (sign, other) == ("*", 0):
                return 0
            if not swapped and (sign, other) in _NEUTRAL:
                return self
            if swapped and ((sign, other) in (("+", 0), ("*", 1))):
                return self
        elif kind is SymInt:
            pass
        elif kind is float or hasattr(other, "plain"):  # a number, of Python or of the host prologue
            number = self.number()
            return INFIX[sign](other, number) if swapped else INFIX[sign](number, other)
        else:
            return NotImplemented
        return self.env.combined(sign, other, self) if swapped else self.env.combined(sign, self, other)

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

    @property
    def real(self) -> SymInt:
        """The length itself, as of an integer."""
        return self

    @property
    def imag(self) -> int:
        """0, as of an integer."""
        return 0

    def bit_length(self) -> Any:
        """Return how many bits the length takes."""
        return self.env.bits_of(self)

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
        return self.env.ratio(self, other)

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
        if type(other) is SymInt:
            return other.env is self.env and self.env.compared(sign, self, other)
        if issubclass(type(other), int):
            return self.env.compared(sign, self, int(other))
        return self._with(sign, other)

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
        return self.env.hash_of(self)

    def __bool__(self) -> bool:
        return bool(self._compare("!=", 0))

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """``int``, so that ``isinstance`` decides as it does for the integer."""
        return int

    def guard_int(self) -> int:
        """Return the value at the capture, which later calls must have again."""
        self.env.specialize(self)
        return self.hint

    def __index__(self) -> int:
        return self.guard_int()

    def __int__(self) -> int:
        return self.guard_int()

    def __float__(self) -> float:
        return float(self.guard_int())

    def __repr__(self) -> str:
        return self.env.text_of(self)

    def __format__(self, spec: str) -> str:
        return format(self.guard_int(), spec) if spec else self.env.text_of(self)


def plain(n: Any) -> Any:
    """Return what a length was at the capture; anything else as it is."""
    return n.hint if type(n) is SymInt else n


def near(n: Any) -> int:
    """Return a length as it is now, for what only decides how fast something is; anything else as it is.

    What was decided serves lengths near this one.
    """
    number: int = n.env.near(n) if type(n) is SymInt else n
    return number


def always_same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Return whether shapes are the same for all lengths; False for those that happen to be the same now.

    It is for what may go on as with other shapes where they are: no condition says that they differ.
    """
    return len(a) == len(b) and all(
        x.text == y.text if type(x) is SymInt and type(y) is SymInt
        else type(x) is not SymInt and type(y) is not SymInt and x == y
        for x, y in zip(a, b, strict=True)
    )  # fmt: skip


def known_divisor(*numbers: Any) -> int:
    """Return the greatest integer that divides all of these, whatever lengths among them may be."""
    return gcd(*[_divisor(n) for n in numbers])


def _divisor(n: Any) -> int:
    if type(n) is not SymInt:
        return int(n)
    return gcd(*[coefficient for _, coefficient in n.form]) if n.form is not None else 1


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


def substitution(
    symbols: Iterable[str], lengths_of: Callable[[Callable[[Any], Any]], object]
) -> Callable[[Mapping[str, int]], Callable[[Any], Any]]:
    """Return ``substitute`` for things that are known already: one function computes all their lengths.

    ``lengths_of`` calls its argument with all things that have lengths; it returns them as they are.
    """
    known: dict[str, None] = {}

    def note(length: SymInt) -> SymInt:
        known[length.text] = None
        return length

    lengths_of(lambda x: _mapped(x, note))
    scope: dict[str, Any] = {"__builtins__": {}, **FUNCTIONS}
    entries = "".join(f"{text!r}: {text}, " for text in known)
    exec(f"def values({', '.join(symbols)}): return {{{entries}}}", scope)
    values: Callable[..., dict[str, int]] = scope["values"]

    def substitute_known(sizes: Mapping[str, int]) -> Callable[[Any], Any]:
        by_text = values(**sizes)
        return lambda x: _mapped(x, lambda length: by_text[length.text])

    return substitute_known


def is_open(x: Any) -> bool:
    """Return whether there is a length in ``x``."""
    if type(x) in (tuple, list):
        return any(map(is_open, x))
    return any(map(is_open, x.values())) if type(x) is dict else type(x) is SymInt


def _mapped(x: Any, change: Callable[[SymInt], Any]) -> Any:
    kind = type(x)
    if kind is SymInt:
        return change(x)
    if kind is tuple or kind is list:  # lengths and plain integers, mostly: no call for each
        items = [v if type(v) is int else _mapped(v, change) for v in x]
        return items if kind is list else tuple(items)
    return {k: _mapped(v, change) for k, v in x.items()} if kind is dict else x

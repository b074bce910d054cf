"""Python numbers that vary from one run of a captured program to the next."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .host_prologue import HostPrologue

OPERATORS: Final[dict[str, tuple[str, Callable[..., Any]]]] = {
    "add": ("({} + {})", operator.add), "sub": ("({} - {})", operator.sub),
    "mul": ("({} * {})", operator.mul), "truediv": ("({} / {})", operator.truediv),
    "pow": ("({} ** {})", operator.pow), "mod": ("({} % {})", operator.mod),
    "floordiv": ("({} // {})", operator.floordiv), "lt": ("({} < {})", operator.lt),
    "le": ("({} <= {})", operator.le), "gt": ("({} > {})", operator.gt), "ge": ("({} >= {})", operator.ge),
    "eq": ("({} == {})", operator.eq), "ne": ("({} != {})", operator.ne), "neg": ("(-{})", operator.neg),
    "bool": ("bool({})", operator.truth),
}  # fmt: skip
"""How each operator is written, and what it computes."""


class SymNumber:
    """A number of the host prologue: ``name`` is its variable there, ``plain`` its value at the capture.

    Arithmetic gives further numbers. Where Python decides by one, or needs its value, the outcome becomes a
    condition of the prologue: a run for which it differs is captured anew.
    """

    __slots__ = ("name", "plain", "prologue")

    def __init__(self, prologue: HostPrologue, name: str, plain: Any) -> None:
        self.prologue, self.name, self.plain = prologue, name, plain

    def _binary(self, op: str, other: Any, swapped: bool = False) -> Any:
        if type(other) not in (SymNumber, int, float, bool):
            return NotImplemented
        return self.prologue.apply(op, *((other, self) if swapped else (self, other)))

    def __add__(self, other: Any) -> Any:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("add", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("sub", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("mul", other, True)

    def __truediv__(self, other: Any) -> Any:
        return self._binary("truediv", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary("truediv", other, True)

    def __pow__(self, other: Any) -> Any:
        return self._binary("pow", other)

    def __rpow__(self, other: Any) -> Any:
        return self._binary("pow", other, True)

    def __mod__(self, other: Any) -> Any:
        return self._binary("mod", other)

    def __floordiv__(self, other: Any) -> Any:
        return self._binary("floordiv", other)

    def __rmod__(self, other: Any) -> Any:
        return self._binary("mod", other, True)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._binary("floordiv", other, True)

    def __neg__(self) -> Any:
        return self.prologue.apply("neg", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __ceil__(self) -> Any:
        return self.prologue.rounded("ceil", self)

    def __floor__(self) -> Any:
        return self.prologue.rounded("floor", self)

    def __round__(self, digits: int | None = None) -> Any:
        return self.prologue.rounded("round", self) if digits is None else round(self._value(), digits)

    def conjugate(self) -> Any:
        """Return the number itself: it is real. Derivatives ask for it."""
        return self

    def _decides(self, op: str, other: Any) -> Any:
        condition = self._binary(op, other)
        return condition if condition is NotImplemented else self.prologue.decide(condition)

    def __lt__(self, other: Any) -> Any:
        return self._decides("lt", other)

    def __le__(self, other: Any) -> Any:
        return self._decides("le", other)

    def __gt__(self, other: Any) -> Any:
        return self._decides("gt", other)

    def __ge__(self, other: Any) -> Any:
        return self._decides("ge", other)

    def __eq__(self, other: object) -> Any:
        return self._decides("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._decides("ne", other)

    def __bool__(self) -> bool:
        return bool(self.prologue.decide(self.prologue.apply("bool", self)))

    def _value(self) -> Any:
        self.prologue.decide(self)
        return self.plain

    def __float__(self) -> float:
        return float(self._value())

    def __int__(self) -> int:
        return int(self._value())

    def __index__(self) -> int:
        return operator.index(self._value())

    def __hash__(self) -> int:
        return hash(self._value())

    def __repr__(self) -> str:
        if self.name in self.prologue.varying:
            self.prologue.decide(self)
        return f"{self.plain!r}"

    def __format__(self, spec: str) -> str:
        return format(self._value(), spec)

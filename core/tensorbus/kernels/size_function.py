"""The function of a plan's symbols that computes all numbers of a size, written as Python source once a plan.

What does not depend on sizes is a constant in it. Each length is computed once, however often it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..dtypes.definition import DType, integer_range
from ..tracing.sym_int import FUNCTIONS, SymInt


class SizeFunction:
    """The source of such a function, which returns None for sizes that the plan cannot serve."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self._head = f"def at({', '.join(symbols)}):"
        self._lines: list[str] = []
        self._names: dict[str, str] = {}
        self._constants: dict[int, str] = {}
        self._checked: set[tuple[str, str]] = set()
        self._scope: dict[str, Any] = {"__builtins__": {}, **FUNCTIONS}

    def text(self, x: Any) -> str:
        """Return the expression of ``x``, whose lengths may be symbols."""
        kind = type(x)
        if kind is SymInt:
            return self.named(x.text)
        if kind is int:
            return repr(x)
        if kind is tuple:
            return f"({', '.join(map(self.text, x))}{',' if len(x) == 1 else ''})"
        if kind is list:
            return f"[{', '.join(map(self.text, x))}]"
        if kind is dict:
            return f"{{{', '.join(f'{self.text(key)}: {self.text(value)}' for key, value in x.items())}}}"
        return self.constant(x)

    def named(self, text: str) -> str:
        """Return the variable that has the value of an expression."""
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = f"_v{len(self._names)}"
            self._lines.append(f"    {name} = {text}")
        return name

    def constant(self, x: Any) -> str:
        """Return the name of an object: the same one for the same object, which is kept."""
        name = self._constants.get(id(x))
        if name is None:
            name = self._constants[id(x)] = f"_c{len(self._constants)}"
            self._scope[name] = x
        return name

    def fits(self, x: SymInt, dtype: DType) -> None:
        """Let there be no such size where ``x`` does not fit into an integer parameter."""
        if dtype.kind in ("int", "uint"):
            low, high = integer_range(dtype)
            self._refuse(f"not {low} <= {self.named(x.text)} <= {high}")

    def needs(self, name: str) -> None:
        """Let there be no such size where a variable is None."""
        self._refuse(f"{name} is None")

    def _refuse(self, condition: str) -> None:
        line = f"    if {condition}: return None"
        if line not in self._lines:
            self._lines.append(line)

    def compiled(self, result: str) -> Callable[..., Any]:
        """Return the function, whose result is an expression."""
        exec("\n".join([self._head, *self._lines, f"    return {result}"]), self._scope)
        function: Callable[..., Any] = self._scope["at"]
        return function

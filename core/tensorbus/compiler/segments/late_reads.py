"""Reads of numbers that nothing needs yet are put off until Python needs the number.

Of ``value = loss.item()``, ``loss.backward()``, ``optimizer.step()``, ``return value`` the first line would
end a segment. A copy of the value is taken in its place, which is part of the program, and the number is read
before the statement that uses it. What is read is what was there, and nobody can tell when: such a read has
no effect and cannot fail, and where what lies between fails, the name is not used any more.

Others stay where they are written, as what lies behind them must not happen if they fail: ``int`` of a dtype
that has nan and inf, ``float`` of a complex one, and each read of a device that queues its work, which raises
what failed in any of it (``SupportsImmediateErrors``). Dtype and device are known to the capture that comes
to the snapshot: it breaks there, and the function is divided anew with the read in its place.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Sequence
from typing import Any, Final

from ...dispatch.modes import is_value_mode
from ...dtypes.definition import bool_
from ...tensor.tensor import Tensor
from ..capture.side_effect_observer import unobserved
from ..state.value_identity import exact_isinstance
from .evaluation_order import BreakMarks
from .name_flow import names_bound, names_read

SNAPSHOT: Final = ".snapshot"
"""The name of ``snapshot`` in rewritten functions."""
_NUMBERS: Final = frozenset({"float", "int"})
_HANDLING: Final = (ast.Try, ast.With)
_CLOSING: Final = (ast.Lambda, ast.FunctionDef, ast.GeneratorExp, ast.ClassDef)


class ReadNumber:
    """A number that was read at once: not one of a tensor, or one whose reading may fail."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def item(self) -> Any:
        """Return the number."""
        return self._value

    def __float__(self) -> float:
        return float(self._value)

    def __int__(self) -> int:
        return int(self._value)


def snapshot(x: Any, kind: str) -> Any:
    """Return what ``x.item()``, ``float(x)`` or ``int(x)``, by ``kind``, gives later what it gives now.

    Where that may fail it is called now, which ends a capture, and raises what it raises.
    """
    if exact_isinstance(x, Tensor) and x.size == 1 and never_fails(x, kind):
        return x.detach().clone()
    return ReadNumber(read_number(x, kind))


def read_number(x: Any, kind: str) -> Any:
    """Return what a read gives now."""
    return x.item() if kind == "item" else float(x) if kind == "float" else int(x)


def never_fails(x: Tensor, kind: str) -> bool:
    """Return whether a read by ``kind`` raises for no value of ``x``, nor the error of other work."""
    from ...backend_interface.capabilities import SupportsImmediateErrors

    if not has_numbers(x, kind):
        return False
    runtime = x.device.runtime
    with unobserved():  # code of the device is none of the function
        return isinstance(runtime, SupportsImmediateErrors) and runtime.raises_at_once(x.device.index)


def has_numbers(x: Tensor, kind: str) -> bool:
    """Return whether a read by ``kind`` raises for no value of ``x``."""
    if kind == "int" and not (x.dtype.is_integer or x.dtype is bool_):
        return False
    return not ((kind == "float" and x.dtype.is_complex) or is_value_mode(x.device.type))


class LateReads:
    """Finds the reads of a function that can be put off; ``late`` has the ids of those that were."""

    def __init__(self, node: ast.FunctionDef, marks: BreakMarks, local: Container[str]) -> None:
        self._marks, self._local = marks, local
        self.late: set[int] = set()
        inner = [n for s in node.body for n in ast.walk(s)]
        self.handled = {id(n) for s in inner if isinstance(s, _HANDLING) for n in ast.walk(s)}
        """Ids of what stands in blocks that somebody may leave by an error, and go on."""
        self._shared = frozenset[str]().union(
            *(names_read(n, local) for n in inner if isinstance(n, _CLOSING))
        )

    def put_off(self, body: Sequence[ast.stmt], fresh: Any) -> list[ast.stmt]:
        """Return the statements of a block, with reads where they are needed; ``fresh()`` gives new names."""
        out = [*body]
        k = 0
        while k < len(out):
            s = out[k]
            place = self._place(s, out[k + 1 :])
            if place is not None:
                name = fresh()
                out[k] = self._snapshot(s, name)
                late = self._read(s, name)
                self.late.add(id(late))
                out.insert(k + 1 + place, late)
            k += 1
        return out

    def _place(self, s: Any, later: Sequence[ast.stmt]) -> int | None:
        """Return before which of the later statements a read is needed, if work lies between."""
        name = _target(s)
        if name is None or name not in self._local or name in self._shared or id(s) in self.handled:
            return None
        kind, operand = _operand(s.value, self._local)
        if not kind or not self._marks.breaks_at(s.value) or self._marks.leads(s.value):
            return None
        if self._marks.within(operand) or id(s) in self._marks.whole | self._marks.at_once:
            return None
        has_work = False
        for k, statement in enumerate(later):
            if name in names_read(statement, self._local):
                return k if has_work else None
            if name in names_bound(statement, self._local) or _may_leave(statement):
                return None
            has_work = has_work or self._marks.has_ops(statement) or self._marks.within(statement)
        return None

    def _snapshot(self, s: Any, name: str) -> ast.stmt:
        kind, operand = _operand(s.value, self._local)
        call = ast.Call(ast.Name(SNAPSHOT, ast.Load()), [operand, ast.Constant(kind)], [])
        statement = ast.Assign([ast.Name(name, ast.Store())], call)
        return _located(statement, s, operand)

    def _read(self, s: Any, name: str) -> ast.stmt:
        kind, operand = _operand(s.value, self._local)
        value: ast.expr = ast.Name(name, ast.Load())
        if kind == "item":
            value = ast.Call(ast.Attribute(value, "item", ast.Load()), [], [])
        else:
            value = ast.Call(ast.Name(kind, ast.Load()), [value], [])
        target = s.targets[0] if isinstance(s, ast.Assign) else s.target
        return _located(ast.Assign([target], value), s, operand)


def _target(s: Any) -> str | None:
    """Return the only name that a statement binds to a value; None where it is another statement."""
    if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name):
        return s.targets[0].id
    if isinstance(s, ast.AnnAssign) and s.value is not None and isinstance(s.target, ast.Name):
        return s.target.id
    return None


def _operand(e: Any, local: Container[str]) -> tuple[str, Any]:
    """Return how an expression reads a number, and of what; an empty text where it does not."""
    if not isinstance(e, ast.Call) or e.keywords:
        return "", None
    if isinstance(e.func, ast.Attribute) and e.func.attr == "item" and not e.args:
        return "item", e.func.value
    if isinstance(e.func, ast.Name) and e.func.id in _NUMBERS and e.func.id not in local and len(e.args) == 1:
        return ("", None) if isinstance(e.args[0], ast.Starred) else (e.func.id, e.args[0])
    return "", None


def _may_leave(s: ast.stmt) -> bool:
    """Return whether a statement may leave the block that it stands in, with the name bound or not."""
    return any(isinstance(n, (ast.Return, ast.Break, ast.Continue, ast.Delete)) for n in ast.walk(s))


def _located(statement: ast.stmt, like: ast.stmt, operand: ast.expr) -> ast.stmt:
    """Give all new nodes of a statement the place of another."""
    old = {id(n) for n in ast.walk(operand)}
    for n in ast.walk(statement):
        if id(n) not in old:
            ast.copy_location(n, like)
    return statement

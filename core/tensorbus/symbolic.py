"""Python numbers and effects that a captured program needs anew at each run: rates, counts of steps.

Optimizers, schedules and random generators change a little Python state at each step. Where they do so
through this module a captured step stays one program: the script of those small things runs before it.
Outside a capture everything here does what plain Python does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from .lengths import Length, hints
from .pending import recorder

T = TypeVar("T")

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


class Number:
    """A number of the script: ``name`` is its variable there, ``plain`` its value at the capture.

    Arithmetic gives further numbers. Where Python decides by one, or needs its value, the outcome becomes a
    condition of the script: a run for which it differs is captured anew.
    """

    __slots__ = ("name", "plain", "script")

    def __init__(self, script: Script, name: str, plain: Any) -> None:
        self.script, self.name, self.plain = script, name, plain

    def _binary(self, op: str, other: Any, swapped: bool = False) -> Any:
        if type(other) not in (Number, int, float, bool):
            return NotImplemented
        return self.script.apply(op, *((other, self) if swapped else (self, other)))

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

    def __neg__(self) -> Any:
        return self.script.apply("neg", self)

    def _decides(self, op: str, other: Any) -> Any:
        found = self._binary(op, other)
        return found if found is NotImplemented else self.script.decide(found)

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
        return bool(self.script.decide(self.script.apply("bool", self)))

    def _value(self) -> Any:
        self.script.decide(self)
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
        return f"{self.plain!r}"


class Script:
    """What Python does before a run of a captured program, line by line, in the order in which it happened.

    ``constants`` are the objects that the lines name. ``reads`` and ``owners`` say which state belongs to the
    script alone: it needs no guard. ``obstacle`` says why the script cannot run again, where it cannot.
    """

    def __init__(self, dry: bool = False) -> None:
        self.dry = dry
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.reads: dict[tuple[int, Any], Any] = {}
        self.owners: list[Any] = []
        self.writes: list[str] = []
        self.obstacle: str | None = None
        self._known: dict[tuple[Any, ...], Number] = {}
        self._names: dict[int, str] = {}
        self._written: dict[tuple[int, Any], Number] = {}
        self._called = False

    def name(self, thing: Any) -> str:
        """Return the name under which the lines find ``thing``."""
        found = self._names.get(id(thing))
        if found is None:
            found = self._names[id(thing)] = f"c{len(self.constants)}"
            self.constants[found] = thing
        return found

    def _text(self, x: Any) -> str:
        return x.name if type(x) is Number else repr(x) if x == x and abs(x) != float("inf") else self.name(x)

    def _number(self, key: tuple[Any, ...], plain: Any, line: str) -> Number:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Number(self, f"n{len(self._known)}", plain)
            self.lines.append(f"{found.name} = {line}")
        return found

    def number(self, text: str, plain: Any) -> Number:
        """Return the number that an expression over lengths gives."""
        return self._number(("length", text), plain, text)

    def read(self, container: Any, key: Any) -> Any:
        """Return ``container[key]`` as it will be at each run: numbers, also within a tuple."""
        written = self._written.get((id(container), key))
        if written is not None:
            return written
        value = container[key]
        if type(value) is tuple and value and all(type(v) in (int, float) for v in value):
            self.reads[id(container), key] = container
            parts = range(len(value))
            where = f"{self.name(container)}[{key!r}]"
            return tuple(
                self._number(("read", id(container), key, k, self._called), value[k], f"{where}[{k}]")
                for k in parts
            )
        if type(value) not in (int, float):
            return value
        self.reads[id(container), key] = container
        line = f"{self.name(container)}[{key!r}]"
        return self._number(("read", id(container), key, self._called), value, line)

    def apply(self, op: str, *operands: Any) -> Number:
        """Return the number that an operator makes of others."""
        text, function = OPERATORS[op]
        plain = function(*[x.plain if type(x) is Number else x for x in operands])
        parts = [self._text(x) for x in operands]
        return self._number((op, *parts), plain, text.format(*parts))

    def decide(self, found: Number) -> Any:
        """Return the value of ``found`` at the capture, which a later run must have again."""
        if self._called:
            self.obstacle = self.obstacle or "Python decides by a number after it has called into a schedule"
        self.lines.append(f"if {found.name} != {self._text(found.plain)}: return None")
        return found.plain

    def write(self, container: Any, key: Any, value: Number) -> None:
        """Make ``container[key]`` the number, now and at each run."""
        if not self.dry:
            container[key] = value.plain
        self._written[id(container), key] = value
        self.reads[id(container), key] = container
        self.writes.append(f"{self.name(container)}[{key!r}] = {value.name}")

    def call(
        self, owner: Any, function: Callable[..., T], touched: Iterable[tuple[Any, Any]] = (),
        sizes: tuple[Any, ...] = (),
    ) -> T:  # fmt: skip
        """Call ``function(*sizes)`` now and at each run; only it may depend on what it changes in ``owner``.

        ``touched``: containers and keys that it changes besides. ``sizes`` may be open lengths.
        """
        self._called = True
        self._written = {}
        self.owners.append(owner)
        self.reads.update({(id(container), key): container for container, key in touched})
        self.lines.extend(self.writes)
        self.writes = []
        given = ", ".join(n.text if type(n) is Length else repr(n) for n in sizes)
        self.lines.append(f"{self.name(function)}({given})")
        return function(*hints(sizes)) if not self.dry else None  # type: ignore[return-value]


def script() -> Script | None:
    """Return the script of the capture that is going on in this thread, if any."""
    active = recorder()
    return active.script if active is not None else None


def numbers(container: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return a copy of ``container`` whose numbers under ``keys`` are those of each run."""
    found = dict(container)
    active = script()
    if active is not None:
        for key in keys:
            if key in found:
                found[key] = active.read(container, key)
    return found


def store(container: dict[str, Any], key: str, value: Any) -> None:
    """Make ``container[key]`` a number, at each run."""
    if type(value) is Number:
        value.script.write(container, key, value)
    else:
        container[key] = value


def call(owner: Any, function: Callable[[], T], touched: Iterable[tuple[Any, Any]] = ()) -> T:
    """Call ``function``, at each run: it changes numbers of ``owner`` and those ``touched``, no tensor."""
    active = recorder()
    if active is None:
        return function()
    return active.aside(lambda: active.script.call(owner, function, touched))  # type: ignore[no-any-return]


def value(owner: Any, function: Callable[..., Any], *sizes: int) -> Any:
    """Return the tensor ``function(*sizes)``, made from Python state of ``owner``: at each run another."""
    active = recorder()
    return function(*sizes) if active is None else active.made(owner, function, sizes)


def reading(what: str) -> None:
    """Say that Python is told state that belongs to a script: the program cannot run without Python then."""
    active = script()
    if active is not None:
        active.obstacle = active.obstacle or f"Python reads {what}"

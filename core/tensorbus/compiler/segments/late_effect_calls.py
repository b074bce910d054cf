"""The calls by which rewritten functions put effects off, and run them: see ``late_effects``.

Of each call of such a function there is a ``LateCalls``, known to the thread. Where a segment is captured, or
runs as a program, its effects run behind it. Where Python runs it they run where they are written, and where
a capture breaks, those before the break run first.
"""

from __future__ import annotations

import builtins
import io
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dis import get_instructions
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from ...tensor.tensor import Tensor
from ...tracing.active_tracer import active_tracer
from ..replay.late_errors import known_values
from ..replay.read_values import ReadValue
from ..state.value_identity import exact_isinstance
from .late_read_calls import (
    SCALARS,
    VALUE,
    copies,
    is_fixed,
    is_readable,
    may_wait_for_errors,
    never_fails,
    read,
)

_WRITERS: Final = frozenset({"logging", "tqdm", "rich", "ipykernel", "_pytest"})
"""Packages of handlers, streams and progress bars that show what they are given and do nothing else."""
_SHOWING: Final = frozenset(
    {"set_postfix", "set_postfix_str", "set_description", "set_description_str", "write"}
)
_ONLY_COMPUTES: Final = frozenset(
    """RESUME CACHE NOP LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_LOAD_FAST LOAD_FAST_BORROW_LOAD_FAST_BORROW
    STORE_FAST STORE_FAST_LOAD_FAST LOAD_CONST LOAD_SMALL_INT LOAD_ATTR STORE_ATTR BINARY_OP POP_TOP COPY SWAP
    RETURN_VALUE RETURN_CONST""".split()
)
"""Instructions of a method that reads and sets attributes of its object, and computes numbers."""


class LateCalls:
    """The effects of one call of a function, and what each shows on or adds to, its ``targets``.

    ``waiting`` are those that a capture has come to, in order.
    """

    __slots__ = ("_done", "_effects", "targets", "waiting")

    def __init__(self, effects: Sequence[Callable[..., Any]], targets: Sequence[Sequence[Any]]) -> None:
        self._effects, self.targets = effects, targets
        self._done: set[int] = set()
        self.waiting: list[tuple[int, Sequence[Any]]] = []

    def run(self, number: int, values: Sequence[Any]) -> None:
        """Run an effect where it is written."""
        self._done.add(number)
        self._effects[number](*values)

    def run_now(self, number: int, values: Sequence[Any]) -> None:
        """Run an effect where it is written, behind those before it."""
        self.run_waiting()
        self.run(number, values)

    def run_waiting(self) -> None:
        """Run the effects that wait, as something else happens now."""
        while self.waiting:
            self.run(*self.waiting.pop(0))

    def finish(self, number: int, values: Any) -> None:
        """Run an effect whose segment is through, unless it has run."""
        self.waiting = [x for x in self.waiting if x[0] != number]
        if number in self._done or values is None:  # None: the call has not come to it
            self._done.discard(number)
            return
        try:
            self._effects[number](*values)
        except BaseException:
            self.waiting = []  # of these nothing would have happened
            raise


class _Current(threading.local):
    calls: tuple[LateCalls, ...] = ()


_current: Final = _Current()


def begin(effects: Sequence[Callable[..., Any]], targets: Sequence[Sequence[Any]]) -> LateCalls:
    """Return what the effects of a call of a function are known by, until ``end``."""
    calls = LateCalls(effects, targets)
    _current.calls = (*_current.calls, calls)
    return calls


def end(calls: LateCalls) -> None:
    """Forget the effects of a call; where it fails, run those which a capture had come to before."""
    _current.calls = _current.calls[:-1]
    calls.run_waiting()


def finish(calls: LateCalls, number: int, values: Any) -> None:
    """Run an effect behind its segment."""
    calls.finish(number, values)


def put_off(number: int, is_rare: bool, *reads: Any) -> Any:
    """Return copies of what an effect reads, given by ``kind, x, kind, x ...``; run it, if it cannot wait.

    ``is_rare``: it stands below an ``if``. What queues its work is not to wait for it in each call then.
    """
    calls, operands = _current.calls[-1], reads[1::2]
    tracer = active_tracer()
    if tracer is None:
        calls.run(number, operands)
        return None
    reads = tuple(zip(reads[::2], operands, strict=True))
    is_reached = any(id(x) in tracer.sites.reached for x in calls.targets[number])
    if not is_reached and all(_is_shown(x, kind) for kind, x in reads):
        tensors = [(kind, x) for kind, x in reads if exact_isinstance(x, Tensor)]
        is_read = any(type(x) is ReadValue for x in operands)  # behind the program, by what copied it
        if not is_read and all(never_fails(x, kind) for kind, x in tensors):
            values = tuple([x.detach().clone() if exact_isinstance(x, Tensor) else x for x in operands])
            if not tracer.prologue.dry:
                calls.waiting.append((number, values))
                tracer.at_breaks.append(calls.run_waiting)
            return values
        known = None
        if not is_rare and all(may_wait_for_errors(x, kind) for kind, x in tensors):
            known = known_values(tracer, [x for _, x in tensors])
        if known is not None:
            values = tuple(copies(tracer, reads, known))
            if not tracer.prologue.dry:
                tracer.untraced(lambda: calls.run_now(number, values))
            return values
    for kind, x in reads:  # at the line, which a capture then notes
        read(x, kind)
    tracer.materialize("a number is shown that cannot wait")
    tracer.untraced(lambda: calls.run(number, operands))
    return None


def _is_shown(x: Any, kind: str) -> bool:
    if kind.startswith(VALUE):
        return is_fixed(x, kind)
    if type(x) is ReadValue:
        return x.copy is not None
    return is_readable(x, kind) and not x.dtype.is_complex


def is_calm(parts: Callable[[], Sequence[tuple[str, Any]]]) -> bool:
    """Return whether what effects call only shows or adds, and what else they show stays as it is."""
    try:
        return all(_is_calm(kind, x) for kind, x in parts())
    except Exception:  # whatever it is, Python meets it where it is written
        return False


def checked(segment: Any, looked: Callable[[], Sequence[tuple[str, Any]]]) -> Callable[..., Any]:
    """Return a segment behind other lines, or, where these changed what it shows on, its function."""
    call: Callable[..., Any] = segment if is_calm(looked) else segment.function
    return call


def _is_calm(kind: str, x: Any) -> bool:
    kind, _, name = kind.partition(".")
    if kind == "if":
        names, test, holds, inner = x
        is_known = all(type(value) in SCALARS for value in names())
        return (is_known and bool(test()) is not holds) or all(_is_calm(*part) for part in inner())
    if kind == "value":
        return type(x) in SCALARS
    if kind == "print":
        return x[0] is builtins.print and _is_file(sys.stdout if x[1] is None else x[1])
    if kind == "append":
        return type(x) is list or type(x) is deque
    if kind == "log":
        return _is_logger(logging.getLogger() if x is logging else x)
    if kind == "call":
        return _is_bar(x[0], name) or (_is_meter(x[0], name) and _runs_on_a_copy(x[0], name, x[1]))
    if kind == "tensor":
        return exact_isinstance(x, Tensor)
    return x is getattr(builtins, kind)


def _package(x: Any) -> str:
    return type(x).__module__.partition(".")[0]


def _is_file(x: Any) -> bool:
    write: Any = getattr(type(x), "write", None)
    own: tuple[Any, ...] = (io.TextIOWrapper.write, io.StringIO.write)
    return (write in own or _package(x) in _WRITERS) and not x.closed


def _is_logger(x: Any) -> bool:
    if x is None:
        return False
    while x is not None:
        if type(x) not in (logging.Logger, logging.RootLogger) or x.filters:
            return False
        for handler in x.handlers:
            if _package(handler) not in _WRITERS or handler.filters:
                return False
        x = x.parent if x.propagate else None
    return logging.getLogRecordFactory() is logging.LogRecord


def _is_bar(x: Any, name: str) -> bool:
    package = x.__name__.partition(".")[0] if isinstance(x, (type, ModuleType)) else _package(x)
    return package == "tqdm" and name in _SHOWING


def _is_meter(x: Any, name: str) -> bool:
    """Return whether a method only computes with numbers that are attributes of its object."""
    method = getattr(type(x), name, None)
    if type(method) is not FunctionType or isinstance(x, ModuleType) or not hasattr(x, "__dict__"):
        return False
    kind = type(x)
    plain: Any = object
    if any(getattr(kind, n) is not getattr(plain, n) for n in ("__setattr__", "__getattribute__")):
        return False
    if isinstance(getattr(x, name), MethodType) is False or not _only_computes(method.__code__):
        return False
    names = method.__code__.co_names
    if any(hasattr(kind, n) and type(getattr(kind, n)) not in SCALARS for n in names):
        return False
    return all(type(x.__dict__[n]) in (int, float) for n in names if n in x.__dict__)


def _runs_on_a_copy(x: Any, name: str, arguments: Any) -> bool:
    """Return whether a method that only computes does not fail for the arguments that it will have."""
    for number in (0.0, 1.0):
        stand = object.__new__(type(x))
        stand.__dict__.update(x.__dict__)
        try:
            args, named = arguments(*[ReadValue(number)] * arguments.__code__.co_argcount)
            getattr(stand, name)(*args, **named)
        except (ArithmeticError, TypeError, AttributeError):
            return False
    return True


_known: Final[dict[CodeType, bool]] = {}


def _only_computes(code: CodeType) -> bool:
    if code not in _known:
        _known[code] = all(i.opname in _ONLY_COMPUTES for i in get_instructions(code))
    return _known[code]

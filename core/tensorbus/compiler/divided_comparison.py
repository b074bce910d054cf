"""Calls of a divided function, from its first line to its last, beside Python's calls of the original one.

Segments are compared with Python one by one, but what lies between them costs too: taking arguments and
giving back results at each edge, guards for each of them, and histories that end there. So some calls of the
whole function go Python's way as well, once nothing in them is captured, compiled or measured any more. A
call is made one way or the other, and never twice.

The guards of a divided function are those of its segments, and which of them run is known only behind a call.
So calls count as alike here by what is known before: modes, the arguments' types, lengths, dtypes and
devices, and which modules train.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import get_ident
from types import CellType, FunctionType, MethodType
from typing import Any, Final

from ..devices.device import Device, _default_device, _device_stack
from ..dispatch.modes import value_modes
from ..nn.module import Module
from ..system.rank_of_thread import rank_of_thread
from ..tensor.grad_mode import grad_enabled
from ..tensor.tensor import Tensor
from ..tracing.autocast_state import autocast_dtype
from .programs import one_time_work
from .replay.eager_comparison import EagerComparison
from .state.value_identity import exact_isinstance, is_transformed

MAX_EXACT: Final = 8
"""The number of kinds of calls from which lengths only count by their magnitude, and numbers not at all."""
MAX_ALIKE: Final = 64
"""The number of kinds of calls that are compared; segments run any other."""
PATIENCE: Final = 128
"""The number of calls after which those count too that capture, compile or measure something."""
SAME_WAY, LOOK_EVERY = 32, 4
"""After how many calls in a row that went the same way one of how many is looked at: telling calls apart
takes some 10 us of a call of 200, and either way is right for any."""
MAX_ITEMS, MAX_DEPTH = 8, 2
"""Up to how many items, and how far down, containers are looked into."""
_BY_VALUE: Final = frozenset({bool, str, type(None)})
_CONTAINERS: Final = frozenset({tuple, list, dict})

Flag = Callable[[], Any]


class DividedComparison:
    """The comparisons of one divided function, one for each kind of calls.

    ``decided`` is called with a comparison when it is over. ``keeps_segments``: Python is not to take calls.
    """

    def __init__(self, function: Any, decided: Callable[[EagerComparison], object]) -> None:
        self.keeps_segments = False
        self._function, self._decided = function, decided
        self._flags = [*_training_flags(function)]
        self._devices: dict[Device, None] = {}
        self._kinds: dict[Any, _CallsAlike] = {}
        self._is_coarse = False
        self._eager_wins = False
        """The way of the last calls that were looked at, ``_in_a_row``; the next ``_unseen`` go it too."""
        self._in_a_row = self._unseen = 0
        self._in_python: set[int] = set()
        """The threads in which a measured call is Python's: it runs calls of the function within it too."""

    def add_devices(self, devices: Iterable[Device]) -> None:
        """Add devices on which segments compute: measured calls wait for them."""
        self._devices.update(dict.fromkeys(devices))

    def run(self, callee: Callable[[Any], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the function returns; ``callee`` gives what runs its segments in its place."""
        if self._unseen > 0 and not self.keeps_segments and rank_of_thread() is None:
            self._unseen -= 1
            return (self._function if self._eager_wins else callee(self._function))(*args, **kwargs)
        if self._in_python and get_ident() in self._in_python:
            return self._function(*args, **kwargs)
        alike = None if self.keeps_segments else self._alike(args, kwargs, is_new=True)
        comparison = alike.comparison if alike is not None else None
        if comparison is not None and comparison.eager_wins is not None:
            self._note_way(comparison.eager_wins)
            return (self._function if comparison.eager_wins else callee(self._function))(*args, **kwargs)
        self._in_a_row = 0
        divided = callee(self._function)
        if alike is None:
            return divided(*args, **kwargs)
        if comparison is not None and comparison.is_steady:
            return comparison.run(lambda: divided(*args, **kwargs), lambda: self._run_in_python(args, kwargs))
        before = one_time_work.count()
        result = divided(*args, **kwargs)
        alike.unsteady += 1
        if one_time_work.count() == before or alike.unsteady > PATIENCE:
            if comparison is None:
                comparison = alike.comparison = self._new_comparison()
            comparison.is_steady = True
            comparison.steady_only = alike.unsteady <= PATIENCE
        return result

    def comparison(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> EagerComparison | None:
        """Return the comparison of calls like this one; None where there is none yet."""
        alike = None if self.keeps_segments else self._alike(args, kwargs, is_new=False)
        return None if alike is None else alike.comparison

    def _note_way(self, eager_wins: bool) -> None:
        """Note which way a call goes; after many that go the same, not each one is looked at."""
        self._in_a_row = self._in_a_row + 1 if eager_wins is self._eager_wins else 1
        self._eager_wins = eager_wins
        if self._in_a_row > SAME_WAY:
            self._unseen = LOOK_EVERY - 1

    def _new_comparison(self) -> EagerComparison:
        def decided(_: bool) -> None:
            self._decided(comparison)

        comparison = EagerComparison([*self._devices], True, decided, arguments_vary=True, steady_only=True)
        return comparison

    def _run_in_python(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        me = get_ident()
        self._in_python.add(me)
        try:
            return self._function(*args, **kwargs)
        finally:
            self._in_python.discard(me)

    def _alike(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_new: bool) -> _CallsAlike | None:
        """Return the calls that are like this one; None for those that are not compared."""
        kind = self._kind(args, kwargs)
        alike = self._kinds.get(kind)
        if alike is not None or kind is None or not is_new:
            return alike
        if not self._is_coarse and len(self._kinds) >= MAX_EXACT:
            self._is_coarse = True
            self._kinds = {}
            kind = self._kind(args, kwargs)
        if len(self._kinds) >= MAX_ALIKE:
            return None
        return self._kinds.setdefault(kind, _CallsAlike())

    def _kind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what calls that are alike have in common; None for those of ranks and transforms."""
        if rank_of_thread() is not None or (value_modes and is_transformed(args, kwargs)):
            return None
        coarse = self._is_coarse
        kind = [grad_enabled.get(), autocast_dtype.get(), _device_stack.get(), _default_device[0]]
        kind += [flag() for flag in self._flags]
        kind += [_likeness(x, coarse) for x in args]
        for name in kwargs:
            kind += name, _likeness(kwargs[name], coarse)
        return tuple(kind)


class _CallsAlike:
    """Calls that have in common what is known before: ``comparison`` is there once one of them was steady."""

    __slots__ = ("comparison", "unsteady")

    def __init__(self) -> None:
        self.comparison: EagerComparison | None = None
        self.unsteady = 0
        """The calls that were not measured, as calls before them were not steady."""


def _likeness(x: Any, coarse: bool, depth: int = 0) -> Any:
    """Return what arguments have in common that make calls alike."""
    kind = type(x)
    if kind is Tensor or issubclass(kind, Tensor):
        return kind, x.size.bit_length() if coarse else x.shape, x._vtype.materialized, x.requires_grad
    if kind in _BY_VALUE:
        return kind, x
    if kind is int:
        return kind if coarse else (kind, x)
    if issubclass(kind, Module):
        return kind, x.training
    if kind in _CONTAINERS:
        if len(x) > MAX_ITEMS or depth == MAX_DEPTH:
            return kind, len(x).bit_length()
        if kind is list and coarse:  # it may grow from call to call
            return kind, len(x).bit_length(), *[_likeness(item, coarse, depth + 1) for item in x[:1]]
        items = x.values() if kind is dict else x
        return kind, *[_likeness(item, coarse, depth + 1) for item in items]
    return kind


def _training_flags(function: Any) -> Iterable[Flag]:
    """Yield what reads whether a module trains: the function itself, and those that its code names."""
    if isinstance(function, Module):
        yield lambda: function.training
        return
    if isinstance(function, MethodType):
        owner = function.__self__
        if isinstance(owner, Module):
            yield lambda: owner.training
        function = function.__func__
    if not isinstance(function, FunctionType):
        return
    code, scope = function.__code__, function.__globals__
    for name in code.co_names:
        if exact_isinstance(scope.get(name), Module):
            yield _flag_of_global(scope, name)
    for cell in function.__closure__ or ():
        if exact_isinstance(_content(cell), Module):
            yield _flag_of_cell(cell)


def _flag_of_global(scope: dict[str, Any], name: str) -> Flag:
    return lambda: _trains(scope.get(name))


def _flag_of_cell(cell: CellType) -> Flag:
    return lambda: _trains(_content(cell))


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _trains(x: Any) -> Any:
    return x.training if exact_isinstance(x, Module) else None

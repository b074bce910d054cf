"""``fuse_in_eager``: a function of several ops runs as one program where a device makes programs at once.

Such a function is written in ops and stays what it is: captured, inside of transforms, and on devices that
have a kernel for each op only, its ops run one by one. A device that generates code runs all of them in one
or two launches, made from the function itself and kept for each signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, TypeVar, cast

from ..tracing.active_modes import active_modes

Function = TypeVar("Function", bound=Callable[..., Any])
RUNNERS: Final[dict[Any, Callable[..., Any] | None]] = {}
"""The runner of fused functions by type of value; None: ops run one by one. A type is looked up once."""
_caches: Final[list[dict[Any, Any]]] = [RUNNERS]
_saved: Final[ContextVar[list[Any] | None]] = ContextVar("saved", default=None)
"""What the function that is being traced saves for its derivative; None: nobody asks."""
_find_runner: list[Callable[[Any], Callable[..., Any] | None]] = []


def bind(find_runner: Callable[[Any], Callable[..., Any] | None]) -> None:
    """Set what finds the runner of a type of values. Called once, by the module that runs ops."""
    _find_runner.append(find_runner)


def forget_programs() -> None:
    """Drop every program: plugins were added or removed."""
    for cache in _caches:
        cache.clear()


def save_for_backward(x: Any) -> Any:
    """Return ``x``: the derivative of the fused function has it from the call, and does not compute it again.

    It is for what is small, takes a pass over the operands, and stays in memory as long as the history does.
    """
    saved = _saved.get()
    if saved is not None:
        saved.append(x)
    return x


@contextmanager
def saving() -> Iterator[list[Any]]:
    """Within it what functions save gathers in the list, in the order in which they do."""
    token = _saved.set([])
    saved = _saved.get()
    assert saved is not None
    try:
        yield saved
    finally:
        _saved.reset(token)


def without_history(*places: int) -> Callable[[Function], Function]:
    """Return the decorator of a function whose results at ``places`` depend on nothing with a history.

    It sees to that itself, where its ops run one by one; a program of it records nothing for them.
    """

    def decorate(function: Function) -> Function:
        function.without_history = frozenset(places)  # type: ignore[attr-defined]
        return function

    return decorate


def fuse_in_eager(function: Function) -> Function:
    """Return ``function``, which runs as one program where the device of its first operand makes programs.

    Its arguments are tensors, and values that a program is specialized on: None, numbers, texts and tuples of
    them; with others it runs op by op. It returns a tensor or a tuple of them, and depends on nothing else:
    neither on anything that can change, nor on the elements of its tensors.
    """
    known: dict[Any, Any] = {}
    _caches.append(known)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if active_modes:
            return function(*args, **kwargs)
        first: Any = args[0] if args else next(iter(kwargs.values()), None)
        try:
            run = RUNNERS[first._vtype]
        except (AttributeError, KeyError):
            kind = getattr(first, "_vtype", None)
            run = None if kind is None else RUNNERS.setdefault(kind, _find_runner[0](kind))
        return function(*args, **kwargs) if run is None else run(function, known, args, kwargs)

    return cast("Function", call)

"""Functions of several ops that run as one program where a device makes programs at once.

Such a function is written in ops and stays what it is: captured, inside of transforms, and on devices that
have a kernel for each op only, its ops run one by one. A device that generates code runs all of them in one
or two launches, made from the function itself and kept for each signature.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

from ..tracing.active_tracer import active_tracers

Function = TypeVar("Function", bound=Callable[..., Any])
SERVED: Final[dict[Any, Callable[..., Any] | None]] = {}
"""By type of value, what runs such functions; None: its ops run one by one. Others are asked about."""
_caches: Final[list[dict[Any, Any]]] = [SERVED]
_asks: list[Callable[[Any], Callable[..., Any] | None]] = []


def bind(ask: Callable[[Any], Callable[..., Any] | None]) -> None:
    """Say who knows what runs the functions of a type of values; called once, by who runs ops."""
    _asks.append(ask)


def forget() -> None:
    """Forget every program: plugins came or went."""
    for cache in _caches:
        cache.clear()


def joined(function: Function) -> Function:
    """Return ``function``, which runs as one program where the device of its first operand makes them.

    Its arguments are tensors, and what a program is made for: None, numbers, texts and tuples of them; with
    others it runs as it is. It returns a tensor or a tuple of them, and depends on nothing else: neither on
    anything that can change, nor on the elements of its tensors.
    """
    known: dict[Any, Any] = {}
    _caches.append(known)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if active_tracers:
            return function(*args, **kwargs)
        first: Any = args[0] if args else next(iter(kwargs.values()), None)
        try:
            run = SERVED[first._vtype]
        except (AttributeError, KeyError):
            kind = getattr(first, "_vtype", None)
            run = None if kind is None else SERVED.setdefault(kind, _asks[0](kind))
        return function(*args, **kwargs) if run is None else run(function, known, args, kwargs)

    return call  # type: ignore[return-value]

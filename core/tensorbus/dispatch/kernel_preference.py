"""The kernel that the user prefers for an op: ``with tb.prefer_kernel(softmax="generated"):``.

Plans depend on it. While nobody prefers anything dispatch does not look; while somebody does, in any thread,
plans are known by the preference as well, and the fast paths to them are off.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar, Token
from functools import partial
from types import TracebackType
from typing import ParamSpec, TypeVar

from ..ops.definition import table
from ..system import fork_safe_locks
from ..system.context_decorator import decorated

P = ParamSpec("P")
R = TypeVar("R")

_preferred: ContextVar[dict[str, str]] = ContextVar("tensorbus_preferred", default={})  # noqa: B039 - never changed
_lock = fork_safe_locks.simple()
_listeners: list[Callable[[], None]] = []
_active = 0


def active() -> bool:
    """Return whether anybody prefers anything now."""
    return _active > 0


def preferred(op: str) -> str | None:
    """Return the name of the kernel that is preferred for ``op`` here, or None."""
    return _preferred.get().get(op) if _active else None


def preferred_kernels(ops: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return which of ``ops`` have a preferred kernel here, and its name, in order."""
    return tuple(sorted((op, name) for op, name in _preferred.get().items() if op in ops)) if _active else ()


def on_first_preference(listener: Callable[[], None]) -> None:
    """Call ``listener`` whenever a preference is stated and there was none."""
    _listeners.append(listener)


def push(choices: Mapping[str, str]) -> Token[dict[str, str]]:
    """State preferences for this thread or task, until ``pop``: for ops, or for who asks by another name."""
    token = _preferred.set({**_preferred.get(), **choices})
    _count(1)
    return token


def pop(token: Token[dict[str, str]]) -> None:
    """Take back what ``push`` stated."""
    _preferred.reset(token)
    _count(-1)


def _count(by: int) -> None:
    global _active
    with _lock:
        first = by > 0 and _active == 0
        _active += by
    if first:
        for listener in _listeners:
            listener()


class prefer_kernel:  # noqa: N801 - a function to its users
    """Choose kernels by name inside a ``with`` block or a decorated function, for this thread or task.

    ``prefer_kernel(softmax="generated")`` names a kernel for each op; where two plugins supply kernels of one
    name, ``"distribution:name"`` says whose. ``tb.explain`` lists the names. A call that the chosen kernel
    cannot serve raises ``UnsupportedOpError`` with the reason: no other kernel takes its place. So does a
    name of no op, where the block is entered. A program that is compiled inside calls the kernel, too, and
    generates no code for that op.

    >>> import tensorbus as tb
    >>> x = tb.asarray([1.0, 2.0])
    >>> with tb.prefer_kernel(add="no such kernel"):
    ...     x + x
    Traceback (most recent call last):
        ...
    tensorbus.errors.UnsupportedOpError: add: cpu has no kernel 'no such kernel' for it; it has 'numpy'.
    """

    def __init__(self, **kernels: str) -> None:
        for op, name in kernels.items():
            if not isinstance(name, str):
                raise TypeError(f"prefer_kernel: the kernel of {op} is chosen by its name, got {name!r}.")
        self._kernels = kernels
        self._tokens: list[Token[dict[str, str]]] = []

    def __enter__(self) -> None:
        for op in self._kernels:
            table[op]  # raises, with the near names
        self._tokens.append(push(self._kernels))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pop(self._tokens.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function`` as it runs inside; of a generator function, each step does."""
        return decorated(partial(prefer_kernel, **self._kernels), function)

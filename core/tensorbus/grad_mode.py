"""Whether ops record their history: per thread and task."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import partial
from types import TracebackType
from typing import Final, ParamSpec, TypeVar

from .decorating import inside

P = ParamSpec("P")
R = TypeVar("R")

recording: Final[ContextVar[bool]] = ContextVar("tensorbus_recording", default=True)


class GradMode:
    """A context manager and decorator that sets whether history is recorded, in this thread or task."""

    def __init__(self, on: bool) -> None:
        self._on = on
        self._tokens: list[Token[bool]] = []

    def __enter__(self) -> None:
        self._tokens.append(recording.set(self._on))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recording.reset(self._tokens.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function`` as it runs inside; of a generator function, each step does."""
        return inside(partial(GradMode, self._on), function)


class no_grad(GradMode):  # noqa: N801 - PyTorch's name
    """Record no history inside: ``with tb.no_grad():`` or as a decorator.

    >>> import tensorbus as tb
    >>> x = tb.ones((2,)).requires_grad_()
    >>> with tb.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def __init__(self) -> None:
        super().__init__(False)


class enable_grad(GradMode):  # noqa: N801 - PyTorch's name
    """Record history inside, within a ``no_grad`` block."""

    def __init__(self) -> None:
        super().__init__(True)


def is_grad_enabled() -> bool:
    """Return whether ops on tensors that require gradients record their history here."""
    return recording.get()

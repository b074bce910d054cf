"""Grad mode: whether ops record their history, per thread and task."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import partial
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from ..system.context_decorator import decorated
from .flag import checked_flag

P = ParamSpec("P")
R = TypeVar("R")

grad_enabled: Final[ContextVar[bool]] = ContextVar("tensorbus_grad_enabled", default=True)


class GradMode:
    """A context manager and decorator that sets whether history is recorded, in this thread or task."""

    def __init__(self, on: bool) -> None:
        self._on = on
        self._tokens: list[Token[bool]] = []

    def __enter__(self) -> None:
        self._tokens.append(grad_enabled.set(self._on))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        grad_enabled.reset(self._tokens.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function`` as it runs inside; of a generator function, each step does."""
        return decorated(partial(GradMode, self._on), function)


class _Fixed(GradMode):
    """A mode that its class decides; the class itself is a decorator too."""

    on = False

    def __new__(cls, function: Any = None) -> Any:
        """Return the context, or ``function`` as it runs inside."""
        self = super().__new__(cls)
        if function is None:
            return self
        self.__init__()  # type: ignore[misc]
        return self(function)

    def __init__(self) -> None:
        super().__init__(self.on)


class no_grad(_Fixed):  # noqa: N801 - PyTorch's name
    """Record no history inside: ``with tb.no_grad():`` or as a decorator.

    >>> import tensorbus as tb
    >>> x = tb.ones((2,)).requires_grad_()
    >>> with tb.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """


class enable_grad(_Fixed):  # noqa: N801 - PyTorch's name
    """Record history inside, within a ``no_grad`` block."""

    on = True


class inference_mode(GradMode):  # noqa: N801 - PyTorch's name
    """PyTorch's name for ``no_grad``, with ``mode=False`` for ``enable_grad``; its tensors are like others.

    >>> import tensorbus as tb
    >>> with tb.inference_mode():
    ...     tb.is_grad_enabled()
    False
    """

    def __new__(cls, mode: Any = True) -> Any:
        """Return the context, or a function given in place of ``mode`` as it runs inside."""
        self = super().__new__(cls)
        if not callable(mode):
            return self
        self.__init__()  # type: ignore[misc]
        return self(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)


class set_grad_enabled(GradMode):  # noqa: N801 - PyTorch's name
    """Record history from now on, or none, in this thread or task; as a context, until its end.

    >>> import tensorbus as tb
    >>> with tb.set_grad_enabled(False):
    ...     tb.is_grad_enabled()
    False
    >>> tb.is_grad_enabled()
    True
    """

    def __init__(self, mode: bool) -> None:
        super().__init__(checked_flag("set_grad_enabled", "mode", mode))
        self._before = grad_enabled.get()
        grad_enabled.set(self._on)

    def __enter__(self) -> None:
        grad_enabled.set(self._on)

    def __exit__(self, *exception: object) -> None:
        grad_enabled.set(self._before)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function`` as it runs inside; what is outside stays as it was."""
        self.__exit__()
        return super().__call__(function)


def is_grad_enabled() -> bool:
    """Return whether ops on tensors that require gradients record their history here."""
    return grad_enabled.get()

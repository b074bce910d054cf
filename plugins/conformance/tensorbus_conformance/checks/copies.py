"""Copies that a kernel, counted as the device's own, makes of operands to the host or another device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tensorbus import fallback_counts, plugins

from ..trial import HOST, Trial, array

_EXPORTS = ("to_host", "to_numpy", "to_dlpack")
_INTO = ("from_host", "from_numpy", "from_dlpack")


def copies(trial: Trial) -> Iterator[str]:
    """A kernel of the device's own copies nothing to the host while it runs, and makes no tensors there.

    It is seen where it goes through a runtime. One that counts what it copies is told by the check of routes.
    """
    tensors = trial.tensors()
    counted = fallback_counts()
    with _calls_of(trial.device, _EXPORTS) as away, _calls_of(HOST, _INTO) as there:
        outs = trial.run(tensors)
        problems = [*away, *(there if trial.device != HOST else ())]
    for x in outs:
        array(x)  # queued work ends before the next check begins
    if problems and fallback_counts() == counted:
        names = ", ".join(sorted(set(problems)))
        yield f"it counts as a kernel of {trial.device}, but copied between devices while it ran ({names})"


@contextmanager
def _calls_of(device: str, names: tuple[str, ...]) -> Iterator[list[str]]:
    """Note which of a runtime's functions are called."""
    runtime, calls = plugins.backend(device).runtime, list[str]()
    with ExitStack() as stack:
        for name in names:
            function = getattr(runtime, name, None)
            if callable(function):
                stack.enter_context(_replaced(runtime, name, _noting(function, f"{device}.{name}", calls)))
        yield calls


def _noting(function: Callable[..., Any], name: str, calls: list[str]) -> Callable[..., Any]:
    def noting(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return function(*args, **kwargs)

    return noting


@contextmanager
def _replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Put ``function`` in the place of a method, on the object only; not where it takes no attributes."""
    try:
        object.__setattr__(owner, name, function)
    except AttributeError:
        yield
        return
    try:
        yield
    finally:
        object.__delattr__(owner, name)

"""Context managers as decorators: of functions, and of generators, each of whose steps runs inside."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from functools import partial, wraps
from inspect import isgeneratorfunction
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def decorated(make: Callable[[], AbstractContextManager[Any]], function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` as it runs inside of what ``make`` returns, which is made for each call.

    Whoever takes values from a generator is outside between them.
    """
    if isgeneratorfunction(function):
        return cast("Callable[P, R]", _generator(make, function))

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with make():
            return function(*args, **kwargs)

    return wrapped


def _generator(
    make: Callable[[], AbstractContextManager[Any]], function: Callable[P, Any]
) -> Callable[P, Generator[Any, Any, Any]]:
    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, Any]:
        steps = function(*args, **kwargs)
        resume = partial(next, steps)
        while True:
            try:
                with make():
                    item = resume()
            except StopIteration as end:
                return end.value
            try:
                sent = yield item
            except GeneratorExit:
                with make():
                    steps.close()
                raise
            except BaseException as error:
                resume = partial(steps.throw, error)
            else:
                resume = partial(steps.send, sent)

    return wrapped

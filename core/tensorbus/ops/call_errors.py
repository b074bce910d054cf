"""Errors for arguments that do not fit a function's signature, with more than Python's own text."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from inspect import Parameter, signature, unwrap
from types import FunctionType
from typing import Any, Final, ParamSpec, TypeVar

from ..errors import DtypeError

P = ParamSpec("P")
R = TypeVar("R")


_NO_TENSORS: Final = (bool, int, float, complex, str, list, tuple, dict, type(None))
_ASKED: Final = ("shape", "dtype", "device", "ndim", "size")


def misfit(function: Callable[..., Any], name: str, error: Exception) -> Exception | None:
    """Return the error of a call that ``function`` could not take, under ``name``; None: it is another.

    That is an argument too many or too few, or a Python value that was asked for its shape, as tensors are.

    >>> told = misfit(lambda x, /, axis=0: x, "flip", TypeError("<lambda>() missing 1 argument"))
    >>> print(told)
    flip() missing 1 argument. It is called as flip(x, /, axis=0).
    """
    if isinstance(error, AttributeError):
        if type(error.obj) not in _NO_TENSORS or error.name not in _ASKED:
            return None
        got = type(error.obj).__name__
        return DtypeError(f"{name}: needs tensors, got {got}. Make one with tensorbus.asarray(x).")
    said = str(error)
    for own in (function.__qualname__, function.__name__):
        if said.startswith(f"{own}()"):
            form = signature(function)
            bare = [p.replace(annotation=Parameter.empty) for p in form.parameters.values()]
            form = form.replace(parameters=bare, return_annotation=Parameter.empty)
            return TypeError(f"{name}(){said.removeprefix(f'{own}()')}. It is called as {name}{form}.")
    return None


def with_form(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function``, which says how it is called to those who call it otherwise, as PyTorch's is.

    >>> @with_form
    ... def total(x, /, axis=None): ...
    >>> total(1, dim=0)
    Traceback (most recent call last):
    TypeError: total() got an unexpected keyword argument 'dim'. It is called as total(x, /, axis=None).
    """
    tell = misfit

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (AttributeError, TypeError) as error:
            misuse = tell(function, function.__name__, error)
            if misuse is None:
                raise
            raise misuse from None

    home: Any = unwrap(function)  # doctest runs the examples of functions with a module's own globals
    form = FunctionType(call.__code__, home.__globals__, closure=call.__closure__)
    return update_wrapper(form, function)

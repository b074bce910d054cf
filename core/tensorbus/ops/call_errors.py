"""Errors for arguments that do not fit a function's signature, with more than Python's own text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


SECOND_KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
    "dim": ("axis", "axes"), "dims": ("axes", "axis"), "axis": ("dim", "dims"), "axes": ("dims", "dim"),
    "keepdim": ("keepdims",), "keepdims": ("keepdim",), "dim0": ("axis0",), "dim1": ("axis1",),
    "dim2": ("axis2",), "start_dim": ("start_axis",), "end_dim": ("end_axis",), "shifts": ("shift",),
    "diagonal": ("offset", "k"),
}  # fmt: skip
"""What an argument may be called as well: names of PyTorch's where ours are the standard's, and back."""


def second_keywords(
    name: str, function: Callable[..., Any], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return ``kwargs`` under the names that ``function`` has for them; None: there is nothing to rename.

    Asked for a call that the function did not take, so that a call by its own names costs nothing. Raises
    ``TypeError`` for one argument under two names.

    >>> second_keywords("sum", lambda x, axis=None: x, {"dim": 1})
    {'axis': 1}
    """
    if SECOND_KEYWORDS.keys().isdisjoint(kwargs):
        return None
    code = unwrap(function).__code__
    known = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    renamed = dict(kwargs)
    for key in kwargs:
        own = next((n for n in SECOND_KEYWORDS.get(key, ()) if n in known and key not in known), None)
        if own is not None:
            if own in renamed:
                raise TypeError(f"{name}() got both {own!r} and {key!r}, which name one argument; give one.")
            renamed[own] = renamed.pop(key)
    return None if renamed.keys() == kwargs.keys() else renamed


def with_form(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function``, which takes ``SECOND_KEYWORDS`` too and says how it is called to who errs.

    >>> @with_form
    ... def total(x, /, axis=None): ...
    >>> total(1, dim=0)
    >>> total(1, out=2)
    Traceback (most recent call last):
    TypeError: total() got an unexpected keyword argument 'out'. It is called as total(x, /, axis=None).
    """
    tell, rename = misfit, second_keywords

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (AttributeError, TypeError) as error:
            renamed = rename(function.__name__, function, kwargs) if kwargs else None
            if renamed is None:
                misuse = tell(function, function.__name__, error)
                if misuse is None:
                    raise
                raise misuse from None
        return form(*args, **renamed)  # type: ignore[no-any-return]

    home: Any = unwrap(function)  # doctest runs the examples of functions with a module's own globals
    form = FunctionType(call.__code__, home.__globals__, closure=call.__closure__)
    return update_wrapper(form, function)

"""Errors for arguments that do not fit a function's signature, with more than Python's own text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from inspect import Parameter, signature, unwrap
from types import FunctionType
from typing import Any, Final, ParamSpec, TypeVar

from ..errors import (
    ArgumentError,
    DeviceError,
    DtypeError,
    IndexingError,
    ShapeError,
    TensorbusError,
    UnsupportedOpError,
)
from ..tracing.active_modes import active_modes

P = ParamSpec("P")
R = TypeVar("R")


_RAW: Final = (AttributeError, ArithmeticError, LookupError, TypeError, ValueError)
"""Errors of Python itself, which come out where a function met a value that it did not expect."""
_NAMELESS: Final = (ShapeError, DtypeError, ArgumentError, IndexingError)
"""Errors of arguments, some of which are raised where nobody knows for which function."""
_OF_VALUES: Final = ("the truth of a tensor", "only a one-element tensor", "only an integer tensor")
"""How the errors begin of a tensor in the place of a Python number, which name no op."""
_NAMES: Final[set[str]] = set()
"""The names of all functions that ``with_form`` made, which begin the errors of one inside of another."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a kind that a function cannot use: a ``TypeError`` as well, as Python's own is."""


class UnhashableError(DtypeError):
    """An argument by which no plan can be looked up, an array mostly. What was needed is told instead."""


def misfit(function: Callable[..., Any], name: str, error: Exception) -> Exception | None:
    """Return the error of a call with too many arguments or too few, under ``name``; None: it is another.

    >>> misuse = misfit(lambda x, /, axis=0: x, "flip", TypeError("<lambda>() missing 1 argument"))
    >>> print(misuse)
    flip() missing 1 argument. It is called as flip(x, /, axis=0).
    """
    message = str(error)
    if " It is called as " in message:  # told already
        return None
    for own in (function.__qualname__, function.__name__):
        if message.startswith(f"{own}()"):
            form = form_of(function, name)
            return TypeError(f"{name}(){message.removeprefix(f'{own}()')}. It is called as {form}.")
    return None


def form_of(function: Callable[..., Any], name: str, skip: int = 0) -> str:
    """Return how a function is called, under ``name`` and without its first ``skip`` parameters.

    >>> form_of(lambda x, /, axis=0: x, "flip")
    'flip(x, /, axis=0)'
    """
    form = signature(function)
    bare = [p.replace(annotation=Parameter.empty) for p in form.parameters.values()][skip:]
    return f"{name}{form.replace(parameters=bare, return_annotation=Parameter.empty)}"


SECOND_KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
    "dim": ("axis", "axes"), "dims": ("axes", "axis"), "axis": ("dim", "dims"), "axes": ("dims", "dim"),
    "keepdim": ("keepdims",), "keepdims": ("keepdim",), "dim0": ("axis0",), "dim1": ("axis1",),
    "dim2": ("axis2",), "start_dim": ("start_axis",), "end_dim": ("end_axis",), "shifts": ("shift",),
    "diagonal": ("offset", "k"), "end": ("stop",), "steps": ("num",), "ddof": ("correction",),
    "unbiased": ("correction",),
}  # fmt: skip
"""What an argument may be called as well: names of PyTorch's where ours are the standard's, and back."""
_UNASKED: Final = frozenset(("out", "dtype"))
"""What NumPy's functions pass on to methods, as None where the caller gave none: it asks for nothing."""


def second_keywords(
    name: str, function: Callable[..., Any], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return ``kwargs`` under the names that ``function`` has for them; None: there is nothing to rename.

    Asked for a call that the function did not take, so that a call by its own names costs nothing. Raises
    ``TypeError`` for one argument under two names.

    >>> second_keywords("sum", lambda x, axis=None: x, {"dim": 1, "out": None})
    {'axis': 1}
    """
    if SECOND_KEYWORDS.keys().isdisjoint(kwargs) and _UNASKED.isdisjoint(kwargs):
        return None
    code = unwrap(function).__code__
    known = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    renamed = {key: v for key, v in kwargs.items() if key in known or v is not None or key not in _UNASKED}
    for key in kwargs:
        own = next((n for n in SECOND_KEYWORDS.get(key, ()) if n in known and key not in known), None)
        if own is not None:
            if own in renamed:
                raise TypeError(f"{name}() got both {own!r} and {key!r}, which name one argument; give one.")
            value = renamed.pop(key)
            renamed[own] = int(flags(name, unbiased=value)["unbiased"]) if key == "unbiased" else value
    return None if renamed.keys() == kwargs.keys() else renamed


def error_of_call(
    function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> Exception:
    """Return what a failed call of ``function`` is to raise: ``error`` itself where that says all.

    An argument of another kind than the signature asks for is named with what is needed; an error of Python's
    own from deep inside, and one that names an op that the caller did not call, are told under ``name``.
    """
    if not isinstance(error, (TensorbusError, *_RAW)) or isinstance(error, UnsupportedOpError):
        return error  # an op without a kernel is named, whichever op's decomposition asked for it
    text = str(error)
    if isinstance(error, (TypeError, TensorbusError)) and len(args) > 1 and _takes_a_list(function):
        from .argument_kinds import is_tensor  # only where something is already wrong

        if all(map(is_tensor, args)):
            return ArgumentTypeError(
                f"{name}: it takes its tensors in one list, {name}([x, y]), and got {len(args)} tensors as"
                f" arguments of their own."
            )
    if type(error) is TypeError and (misuse := misfit(function, name, error)) is not None:
        return misuse
    own = isinstance(error, TensorbusError)
    raw = (not own and isinstance(error, _RAW)) or isinstance(error, UnhashableError)
    raw = raw or text.startswith(_OF_VALUES)
    if not raw and (not own or text.startswith((f"{name}:", f"{name}("))):
        return error
    nested = own and _names_another(text)
    from .argument_kinds import misfit_of  # only where something is already wrong

    try:
        named = second_keywords(name, function, kwargs) or kwargs
        wrong = misfit_of(function, args, named, error) if raw or nested else None
    except TypeError:
        return error
    if wrong is not None and (raw or not wrong.is_of_a_name):
        return wrong.error(name, None if raw else error)
    if own and not any(map(callable, (*args, *kwargs.values()))):  # what those raise is the caller's own
        if nested:
            return renamed(name, error)
        if (isinstance(error, _NAMELESS) or type(error) is DeviceError) and name not in text:
            error.args = (f"{name}: {text}", *error.args[1:])
    return error


def _takes_a_list(function: Callable[..., Any]) -> bool:
    """Return whether the first argument of a function is a list of tensors."""
    first = next(iter(signature(unwrap(function)).parameters.values()), None)
    return first is not None and first.name == "xs" and first.kind is Parameter.POSITIONAL_ONLY


def error_of_function(
    function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> Exception:
    """Return what ``error_of_call`` does, and the arguments where all that there is is an error of Python's.

    What arguments raise that are functions, or files, is their own, and so is what a user's mode raises.
    """
    misuse = error_of_call(function, name, args, kwargs, error)
    if misuse is not error or isinstance(error, (TensorbusError, OSError)) or not isinstance(error, _RAW):
        return misuse
    if str(error).startswith((f"{name}:", f"{name}(")) or any(map(_has_code, (*args, *kwargs.values()))):
        return error
    if any(type(mode).__module__.partition(".")[0] != "tensorbus" for mode in active_modes.values()):
        return error
    described = of_arguments(name, args, kwargs, error)
    described.__cause__ = error
    return described


def _has_code(value: Any) -> bool:
    """Return whether a value is a function or a file, whose errors are its own."""
    return (callable(value) and not isinstance(value, type)) or hasattr(value, "read")


def with_signature(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function``, of which a call that does not fit is told what does; other errors are as they are.

    >>> @with_signature
    ... def total(x, /, axis=None): ...
    >>> total(1, out=2)
    Traceback (most recent call last):
    TypeError: total() got an unexpected keyword argument 'out'. It is called as total(x, /, axis=None).
    """

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            misuse = misfit(function, function.__name__, error)
            if misuse is None:
                raise
            raise misuse from None

    return update_wrapper(call, function)


def with_form_of_class(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor, one of tensorbus's own classes', whose errors tell what the class is called with.

    The class named is the one that was called, or the first of tensorbus's own that it derives from.

    >>> class Layer:
    ...     def __init__(self, size): ...
    ...     __init__ = with_form_of_class(__init__)
    >>> Layer.__module__ = "tensorbus.docs"
    >>> Layer(1, bias=True)
    Traceback (most recent call last):
    TypeError: Layer() got an unexpected keyword argument 'bias'. It is called as Layer(size).
    """

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except (TypeError, AttributeError) as error:
            misuse = _error_of_class(type(self), args, kwargs, error)
            if misuse is error:
                raise
            raise misuse from None

    return update_wrapper(construct, init)


def tell_form_of(cls: type) -> None:
    """Let errors of the constructor tell what a class is called with, if it is one of tensorbus's own."""
    init = vars(cls).get("__init__")
    if init is not None and cls.__module__.startswith("tensorbus."):
        type.__setattr__(cls, "__init__", with_form_of_class(init))


def _error_of_class(
    kind: type, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> Exception:
    own: Any = next(c for c in kind.__mro__ if c.__module__.partition(".")[0] == "tensorbus")
    name, init = own.__name__, vars(own).get("__init__", own.__init__)
    before, called, rest = str(error).partition("()")
    inits = [vars(c)["__init__"] for c in kind.__mro__ if "__init__" in vars(c)]
    if called and before in [getattr(unwrap(each), "__qualname__", "") for each in inits]:
        counted = re.sub(
            r"takes (from )?(\d+)( to (\d+))? positional arguments? but (\d+)",
            lambda m: (
                f"takes {m[1] or ''}{int(m[2]) - 1}{f' to {int(m[4]) - 1}' if m[4] else ''} positional"
                f" arguments but {int(m[5]) - 1}"
            ),
            rest,
        )
        return TypeError(f"{name}(){counted}. It is called as {form_of(init, name, 1)}.")
    if own is not kind or isinstance(error, TensorbusError) or str(error).startswith(name):
        return error
    from .argument_kinds import misfit_of

    try:
        wrong = misfit_of(init, (0, *args), kwargs, error)
    except TypeError:
        return error
    return error if wrong is None or wrong.parameter == "self" else wrong.error(name, None)


def renamed(name: str, error: Exception) -> Exception:
    """Return ``error``, which begins with ``name`` where it began with another function's."""
    text = str(error)
    if _names_another(text) and not isinstance(error, UnsupportedOpError):
        error.args = (f"{name}: {text.partition(': ')[2]}", *error.args[1:])
    return error


def of_arguments(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> Exception:
    """Return ``error``, which turning arguments into what an op works on has raised, as tensorbus's own."""
    if isinstance(error, TensorbusError) or not isinstance(error, _RAW):
        return error
    from .argument_kinds import shown

    call = ", ".join([*map(shown, args), *(f"{key}={shown(value)}" for key, value in kwargs.items())])
    kind = ArgumentTypeError if isinstance(error, TypeError) else ArgumentError
    return kind(f"{name}: the arguments ({call}) are not what it takes: {str(error).rstrip('.')}.")


def _names_another(text: str) -> bool:
    """Return whether a text begins with the name of a function or an op, and a colon."""
    from .definition import table

    word, colon, _ = text.partition(": ")
    return bool(colon) and word.isidentifier() and (word in _NAMES or word in table)


def with_form(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function``, which takes ``SECOND_KEYWORDS`` too, and whose errors name it and what it takes.

    What succeeds is not checked: the annotations are read once a call has failed (``error_of_call``).

    >>> @with_form
    ... def total(x, /, axis=None): ...
    >>> total(1, dim=0)
    >>> total(1, out=2)
    Traceback (most recent call last):
    TypeError: total() got an unexpected keyword argument 'out'. It is called as total(x, /, axis=None).
    """
    tell, rename = error_of_function, second_keywords
    _NAMES.add(function.__name__)

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            of_call = kwargs and isinstance(error, (AttributeError, TypeError))
            renamed = rename(function.__name__, function, kwargs) if of_call else None
            if renamed is None:
                misuse = tell(function, function.__name__, args, kwargs, error)
                if misuse is error:
                    raise
                raise misuse from misuse.__cause__
        result: R = form(*args, **renamed)
        return result

    home: Any = unwrap(function)  # doctest runs the examples of functions with a module's own globals
    form = FunctionType(call.__code__, home.__globals__, closure=call.__closure__)
    return update_wrapper(form, function)


def flags(name: str, **values: Any) -> dict[str, bool]:
    """Return settings that are true or false. Raises ``ArgumentError`` for what is merely taken as one.

    >>> flags("sum", keepdims=1)
    {'keepdims': True}
    """
    for parameter, value in values.items():
        if value is not True and value is not False:
            from .argument_kinds import fits, shown

            if not fits(value, bool):
                raise ArgumentError(f"{name}: {parameter!r} must be True or False, got {shown(value)}.")
            values[parameter] = bool(value)
    return values

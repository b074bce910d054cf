"""Kinds of arguments: what a function's annotations ask for, and which argument of a failed call is another.

Asked only once a call has failed, so that calls that succeed are not checked twice: an error from within a
function is then told in its own name, with the argument at fault, what was given and what is needed.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, signature, unwrap
from typing import Any, Final, Literal, NamedTuple

from ..devices.device import Device
from ..dtypes.definition import DType
from ..errors import ArgumentError, DeviceError, DtypeError, ShapeError, TensorbusError


class TensorKind:
    """Stands for a tensor in annotations, where its class lies above this package."""


class NumberOrTensor(TensorKind):
    """An operand: a tensor, or a Python number."""


class Misfit(NamedTuple):
    """An argument that is of another kind than its parameter asks for."""

    parameter: str
    value: Any
    hint: Any

    @property
    def is_of_a_name(self) -> bool:
        """Whether a dtype or a device is asked for: what refuses one says which names there are."""
        return bool({DType, Device} & {self.hint, *typing.get_args(self.hint)})

    def error(self, function: str, like: BaseException | None) -> TensorbusError:
        """Return the error that names the argument, of the class of ``like`` where that is one of core's."""
        if isinstance(like, (ShapeError, DtypeError, ArgumentError)):
            kind: type[TensorbusError] = type(like)
        else:
            kind = _class_of(self.parameter, self.hint)
        if self.hint in (TensorKind, NumberOrTensor):
            got = type_name(self.value)
            return kind(f"{function}: needs tensors, got {got}. Make one with tensorbus.asarray(x).")
        return kind(
            f"{function}: {self.parameter!r} must be {described(self.hint)}, got {shown(self.value)}."
        )


_NAMES: Final[dict[str, Any]] = {
    "Any": Any, "Tensor": TensorKind, "Operand": NumberOrTensor, "DType": DType, "Device": Device,
    "Literal": Literal, "Sequence": collections.abc.Sequence, "Callable": collections.abc.Callable,
    "Iterable": collections.abc.Iterable, "Mapping": collections.abc.Mapping,
}  # fmt: skip
"""What annotations mean whose names a module imports for type checkers only, or uses for any value."""
_BY_PARAMETER: Final[dict[str, Any]] = {
    "axis": int | tuple[int, ...] | list[int] | None,
    "dim": int | tuple[int, ...] | list[int] | None,
    "axes": int | Sequence[int] | None,
    "shape": int | Sequence[int],
    "xs": Sequence[TensorKind],
    "tensors": Sequence[TensorKind],
    "dtype": DType | str | None,
    "keepdims": bool,
    "keepdim": bool,
    "obj": Any,
    "data": Any,
}
"""What parameters without an annotation ask for by their names, which mean the same in all functions."""
ASKED_OF_TENSORS: Final = frozenset(
    {"shape", "dtype", "device", "ndim", "size", "is_integer", "is_floating", "is_complex", "is_inexact"}
)
"""What functions read of tensors, and of their dtypes."""
_SEQUENCES: Final = (tuple, list, collections.abc.Sequence, collections.abc.Iterable)
_SHAPES: Final = frozenset(
    {"axis", "axes", "dim", "dim0", "dim1", "shape", "size", "sizes", "num", "n_rows", "n_cols", "length"}
)


class _Scope(dict[str, Any]):
    """The names of a function's module; those that it does not have at run time stand for anything."""

    def __missing__(self, name: str) -> Any:
        return getattr(__import__("builtins"), name, Any)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what each parameter asks for, ``Any`` where nothing is known.

    >>> from tensorbus.ops.movement.movement import expand_dims
    >>> hints_of(lambda x, /, axis: x)["axis"]
    int | tuple[int, ...] | list[int] | None
    """
    home: Any = unwrap(function)
    scope = _Scope({**getattr(home, "__globals__", {}), **_NAMES})
    result = {}
    for name, parameter in signature(home).parameters.items():
        asked: Any = parameter.annotation
        if asked is Parameter.empty or asked in ("Any", "Sequence[Any]", "Iterable[Any]", "Operand", Any):
            tensors = Sequence[TensorKind] if str(asked).endswith("[Any]") else NumberOrTensor
            asked = _BY_PARAMETER.get(name, tensors if _is_operand(parameter) else Any)
        elif isinstance(asked, str):
            try:
                asked = eval(asked, scope)
            except Exception:  # a form that only type checkers understand
                asked = Any
        result[name] = asked
    return result


def _is_operand(parameter: Parameter) -> bool:
    """Tensors come first, without a default, and are annotated as anything."""
    return parameter.default is Parameter.empty and parameter.kind is not Parameter.VAR_POSITIONAL


def misfit_of(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> Misfit | None:
    """Return the argument at fault where it is another than its parameter asks for; None: it is not.

    That is one that was asked for its shape or dtype as tensors are (an ``AttributeError`` says of which
    object), or else the first that its annotation does not allow. Raises ``TypeError`` where the arguments do
    not fit the signature.
    """
    form, hints = signature(unwrap(function)), hints_of(function)
    bound = form.bind(*args, **kwargs).arguments
    if isinstance(error, AttributeError) and error.name in ASKED_OF_TENSORS:
        for name, value in bound.items():
            for each in (value, *(_items(value) or ())):
                if not is_tensor(each) and (each is error.obj or getattr(each, "dtype", None) is error.obj):
                    is_allowed = each is value and fits(value, hints[name])
                    return Misfit(name, each, TensorKind if is_allowed or each is not value else hints[name])
    for name, value in bound.items():
        parameter = form.parameters[name]
        several = parameter.kind is Parameter.VAR_POSITIONAL
        for each in value if several else (value,):
            if parameter.kind is not Parameter.VAR_KEYWORD and each is not parameter.default:
                misfit = _outlier(name, each, hints[name])
                if misfit is not None:
                    return misfit
    return None


def _outlier(name: str, value: Any, asked: Any) -> Misfit | None:
    """Return the value, or that one of its items which should be a tensor, where it does not fit."""
    if fits(value, asked):
        return None
    if typing.get_origin(asked) in _SEQUENCES and typing.get_args(asked)[0] is TensorKind:
        items = _items(value) or ()
        return next(
            (Misfit(name, item, TensorKind) for item in items if not is_tensor(item)), None
        ) or Misfit(name, value, asked)
    return Misfit(name, value, asked)


def is_tensor(value: Any) -> bool:
    """Return whether ``value`` is a tensor of tensorbus, whose class lies above this package."""
    return hasattr(type(value), "_vtype")


def is_number(value: Any, real: bool = True) -> bool:
    """Return whether ``value`` is a Python number, one of NumPy's or one that a program varies."""
    if isinstance(value, (int, float)) or (not real and isinstance(value, complex)):
        return True
    if is_tensor(value) or not _is_single(value):
        return False
    wanted = ("__index__", "__float__") if real else ("__index__", "__float__", "__complex__")
    return any(hasattr(type(value), name) for name in wanted)


def _is_single(value: Any) -> bool:
    """Return whether a value is no array of several elements."""
    return isinstance(shape := getattr(value, "shape", ()), tuple) and shape == ()


def fits(value: Any, asked: Any) -> bool:
    """Return whether ``value`` is what a parameter with this annotation asks for.

    >>> fits(3, int | None), fits(None, bool), fits((1, 2), tuple[int, ...]), fits([1.5], list[int])
    (True, False, True, False)
    """
    origin, parts = typing.get_origin(asked), typing.get_args(asked)
    if asked is Any or isinstance(asked, typing.TypeVar):
        return True
    if asked is None or asked is types.NoneType:
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return any(value is part or (type(value) is type(part) and value == part) for part in parts)
    if asked is TensorKind:
        return is_tensor(value)
    if asked is NumberOrTensor:
        return is_tensor(value) or is_number(value, real=False)
    if asked is bool:
        return fits(value, int) or type(value).__name__ in ("bool", "bool_")
    if asked is int:
        return not is_tensor(value) and hasattr(type(value), "__index__") and _is_single(value)
    if asked in (float, complex):
        return is_number(value, real=asked is float)
    if asked is DType:
        return isinstance(value, (DType, str)) or any(value is t for t in (bool, int, float, complex))
    if asked is Device:
        return isinstance(value, (Device, str))
    if asked is collections.abc.Callable or origin is collections.abc.Callable:
        return callable(value)
    if origin is tuple and parts and parts[-1] is not Ellipsis:
        items = _items(value)
        return items is not None and len(items) == len(parts) and all(map(fits, items, parts))
    if origin in _SEQUENCES:
        items = _items(value)
        return items is not None and all(fits(item, parts[0]) for item in items)
    if asked in (tuple, list, collections.abc.Sequence):
        return _items(value) is not None
    return not isinstance(asked, type) or isinstance(value, asked)


def _items(value: Any) -> Sequence[Any] | None:
    """Return the items of a tuple, a list or the like; None for a tensor, a text and what has none."""
    if isinstance(value, (str, bytes, dict, set)) or hasattr(value, "__array_interface__"):
        return None
    return (
        value
        if hasattr(value, "__len__") and hasattr(value, "__getitem__") and not is_tensor(value)
        else None
    )


def shown(value: Any) -> str:
    """Return a short text of what was given: values as they are, arrays and other objects by their types.

    >>> shown(None), shown((1, 2)), shown(object())
    ('None', '(1, 2)', 'object')
    """
    if is_tensor(value):
        return f"a tensor of shape {value.shape} and dtype {value.dtype}"
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, DType, Device, type(...))):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    if type(value) in (tuple, list):
        bare = ", ".join(shown(item) if not is_tensor(item) else "Tensor" for item in value[:4])
        more = ", ..." if len(value) > 4 else "," if len(value) == 1 and type(value) is tuple else ""
        return f"({bare}{more})" if type(value) is tuple else f"[{bare}{more}]"
    return type_name(value)


def type_name(value: Any) -> str:
    """Return the name of a value's type; that of another library's ``Tensor`` with the library's name.

    >>> type_name(1.5)
    'float'
    """
    kind = type(value)
    foreign = kind.__name__ == "Tensor" and not is_tensor(value)
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}" if foreign else kind.__name__


def described(asked: Any) -> str:
    """Return what an annotation asks for, in words.

    >>> described(int | tuple[int, ...] | None)
    'an integer, a tuple of integers or None'
    >>> described(Sequence[tuple[str, int]])
    'a sequence of tuples of 2 items'
    """
    origin, parts = typing.get_origin(asked), typing.get_args(asked)
    if origin in (typing.Union, types.UnionType):
        kinds = [p for p in _without_list(parts) if p is not str or not {DType, Device} & {*parts}]
        return _listed(described(kind) for kind in kinds)
    if origin is Literal:
        return _listed(map(repr, parts))
    if origin is tuple and parts[-1] is not Ellipsis:
        return f"a tuple of {len(parts)} items"
    if origin in _SEQUENCES:
        whole, each = "tuple" if origin in (tuple, list) else "sequence", described(parts[0])
        if " or " in each:
            return f"a {whole} whose items are each {each}"
        item, of, rest = each.removeprefix("an ").removeprefix("a ").partition(" of ")
        return f"a {whole} of {item}s{of}{rest}"
    if origin is collections.abc.Callable:
        return "a function"
    words_of = {
        type(None): "None", None: "None", bool: "True or False", int: "an integer", float: "a number",
        complex: "a number", str: "a text", DType: "a dtype or its name", Device: "a device or its name",
        TensorKind: "a tensor", NumberOrTensor: "a tensor", collections.abc.Callable: "a function",
    }  # fmt: skip
    return words_of.get(asked, getattr(asked, "__name__", str(asked)))


def _listed(words: Iterable[str]) -> str:
    *first, last = dict.fromkeys(words)
    return f"{', '.join(first)} or {last}" if first else last


def _without_list(parts: Sequence[Any]) -> list[Any]:
    """A list is taken wherever a tuple is; one of the two is enough to say."""
    has_tuple = any(typing.get_origin(p) is tuple for p in parts)
    return [p for p in parts if not (has_tuple and typing.get_origin(p) is list)]


def _takes_tensors(asked: Any) -> bool:
    parts = typing.get_args(asked)
    return asked in (TensorKind, NumberOrTensor) or any(_takes_tensors(p) for p in parts)


def _class_of(parameter: str, asked: Any) -> type[TensorbusError]:
    if parameter in _SHAPES:
        return ShapeError
    parts = (asked, *typing.get_args(asked))
    if DType in parts or any(_takes_tensors(p) for p in parts):
        return DtypeError
    return DeviceError if Device in parts else ArgumentError

"""Schema of a custom op: what its function takes and returns, read from the annotations."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from keyword import iskeyword
from operator import index
from typing import Any, Final, Literal, Union, get_args, get_origin

from ..dtypes import definition as dt
from ..dtypes.definition import DType, Scalar, check_scalar
from ..errors import ArgumentError, DtypeError
from ..tensor.tensor import Tensor
from ..tracing.sym_int import SymInt

Kind = Literal["tensor", "tensors", "int", "float", "bool", "str", "dtype", "sequence"]
SUPPORTED: Final = (
    "Tensor, list[Tensor] or Sequence[Tensor], int, float, bool, str, DType, a sequence of one of these such"
    " as list[float], Sequence[int], tuple[int, ...] or tuple[int, int], each also with `| None`"
)
_SCALARS: Final[dict[Any, Kind]] = {int: "int", float: "float", bool: "bool", str: "str", DType: "dtype"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaParameter:
    """A parameter of the function.

    Of a sequence ``element`` is the kind of each, and ``count`` how many there are, None where any number.
    ``dtype`` is what a number is passed to a kernel in; None: what its kind says.
    """

    name: str
    kind: Kind
    optional: bool
    keyword_only: bool
    default: Any
    element: Kind | None = None
    count: int | None = None
    dtype: DType | None = None

    @property
    def is_tensor(self) -> bool:
        """Whether tensors are passed here."""
        return self.kind in ("tensor", "tensors")

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The arguments and results of a custom op.

    ``results`` is how many tensors the function returns; None: a list of any number. ``mutated`` are the
    names of the arguments that it changes. ``single`` tells whether a call comes down to one value: a result
    and no mutation, or a mutation and no result. ``named`` tells that the op has its tensors as operands of
    their own names, each of them exactly one; ``result_names`` are those of a named tuple.
    """

    name: str
    parameters: tuple[SchemaParameter, ...]
    results: int | None
    returns: Literal["nothing", "tensor", "tuple", "list"]
    mutated: tuple[str, ...]
    named: bool = False
    result_names: tuple[str, ...] = ()

    @property
    def single(self) -> bool:
        """Whether a call comes down to exactly one value."""
        if not self.mutated:
            return self.returns == "tensor"
        changed = [p for p in self.parameters if p.name in self.mutated]
        return self.returns == "nothing" and len(changed) == 1 and self.is_plain(changed[0])

    @staticmethod
    def is_plain(parameter: SchemaParameter) -> bool:
        """Return whether a parameter takes exactly one tensor."""
        return parameter.kind == "tensor" and not parameter.optional

    @property
    def tensors(self) -> tuple[SchemaParameter, ...]:
        """The parameters that take tensors."""
        return tuple(p for p in self.parameters if p.is_tensor)

    @property
    def scalars(self) -> tuple[SchemaParameter, ...]:
        """The parameters that take anything else."""
        return tuple(p for p in self.parameters if not p.is_tensor)

    def __str__(self) -> str:
        texts = [_text(p, p.name in self.mutated) for p in self.parameters]
        ends = {"nothing": "None", "tensor": "Tensor", "list": "list[Tensor]"}
        end = ends.get(self.returns) or f"tuple[{', '.join(['Tensor'] * (self.results or 0))}]"
        return f"{self.name}({', '.join(texts)}) -> {end}"


def _text(parameter: SchemaParameter, mutated: bool) -> str:
    kinds = {"tensor": "Tensor", "tensors": "list[Tensor]", "dtype": "DType"}
    kind = kinds.get(parameter.kind, parameter.kind)
    if parameter.element is not None:
        element = kinds.get(parameter.element, parameter.element)
        inner = f"{element}, ..." if parameter.count is None else ", ".join([element] * parameter.count)
        kind = f"tuple[{inner}]"
    text = f"{parameter.name}: {kind}"
    if parameter.optional:
        text += " | None"
    if not parameter.required:
        text += f" = {parameter.default!r}"
    return text + (" (mutated)" if mutated else "")


def schema_of(name: str, function: Callable[..., Any], mutates_args: Collection[str]) -> Schema:
    """Return the schema of an annotated function. Raises ``ArgumentError`` saying what cannot be read."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise ArgumentError(
            f"custom op {name!r}: the annotation {error.name!r} of {function!r} names nothing that its module"
            f" has; import it there, not under TYPE_CHECKING only."
        ) from error
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"custom op {name!r}: {function!r} has no signature to read: {error}") from error
    parameters = tuple(_parameter(name, p) for p in signature.parameters.values())
    if not any(p.is_tensor for p in parameters):
        raise ArgumentError(
            f"custom op {name!r}: it needs a tensor among its arguments, whose device it runs on. A function"
            f" that makes a tensor of numbers alone may take one that says where."
        )
    if isinstance(mutates_args, str):
        raise ArgumentError(f"custom op {name!r}: mutates_args is a tuple of names, got {mutates_args!r}.")
    known = [p.name for p in parameters if p.is_tensor]
    for each in mutates_args:
        if each not in known:
            raise ArgumentError(
                f"custom op {name!r}: mutates_args names {each!r}; it may name {', '.join(known)}."
            )
    results, returns = _results(name, signature.return_annotation)
    if returns == "nothing" and not mutates_args:
        raise ArgumentError(
            f"custom op {name!r}: it returns nothing and mutates nothing. Annotate what it returns, or name"
            f" in mutates_args what it changes."
        )
    mutated = tuple(p.name for p in parameters if p.name in mutates_args)
    return Schema(name=name, parameters=parameters, results=results, returns=returns, mutated=mutated)


def _parameter(name: str, parameter: inspect.Parameter) -> SchemaParameter:
    where = f"custom op {name!r}: parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ArgumentError(f"{where} takes any number of arguments; take a list[Tensor], or name them.")
    if parameter.annotation is parameter.empty:
        raise ArgumentError(f"{where} has no annotation; it may be {SUPPORTED}.")
    if iskeyword(parameter.name) or parameter.name.startswith("_"):
        raise ArgumentError(f"{where}: a name does not begin with an underscore.")
    inner, optional = _without_none(parameter.annotation)
    kind, element, count = _kind(inner)
    if kind is None:
        shown = getattr(parameter.annotation, "__name__", None) or str(parameter.annotation)
        raise ArgumentError(f"{where} is annotated with {shown}; it may be {SUPPORTED}.")
    described = SchemaParameter(
        name=parameter.name, kind=kind, element=element, count=count, optional=optional,
        keyword_only=parameter.kind is parameter.KEYWORD_ONLY, default=parameter.empty,
    )  # fmt: skip
    if parameter.default is parameter.empty:
        return described
    if described.is_tensor and parameter.default is not None:
        raise ArgumentError(f"{where}: the default of a tensor is None, got {parameter.default!r}.")
    default = None if parameter.default is None else scalar(name, described, parameter.default)
    if default is None and not optional:
        raise ArgumentError(f"{where}: its default is None, so its annotation must say `| None`.")
    return replace(described, default=default)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Return an annotation without ``| None``, and whether it had that."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    rest = [a for a in get_args(annotation) if a is not type(None)]
    if len(rest) != 1 or len(get_args(annotation)) != 2:
        return annotation, False
    return rest[0], True


def _kind(annotation: Any) -> tuple[Kind | None, Kind | None, int | None]:
    """Return the kind that an annotation means, and those of a sequence's elements and how many there are."""
    if isinstance(annotation, type) and issubclass(annotation, Tensor) and get_origin(annotation) is None:
        return "tensor", None, None
    if annotation in _SCALARS:
        return _SCALARS[annotation], None, None
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin not in (list, tuple, Sequence) or not arguments:
        return None, None, None
    any_number = origin is not tuple or (len(arguments) == 2 and arguments[1] is ...)
    if any_number and arguments[0] is Tensor:
        return "tensors", None, None
    element = _SCALARS.get(arguments[0])
    if element is not None and (any_number or all(a is arguments[0] for a in arguments)):
        return "sequence", element, None if any_number else len(arguments)
    return None, None, None


def _results(name: str, annotation: Any) -> tuple[int | None, Literal["nothing", "tensor", "tuple", "list"]]:
    """Return how many tensors are returned, and as what."""
    if annotation is None or annotation is type(None):
        return 0, "nothing"
    if annotation is Tensor:
        return 1, "tensor"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (list, Sequence) and arguments == (Tensor,):
        return None, "list"
    if origin is tuple and arguments and all(a is Tensor for a in arguments):
        return len(arguments), "tuple"
    shown = "no annotation" if annotation is inspect.Signature.empty else str(annotation)
    raise ArgumentError(
        f"custom op {name!r}: what it returns has {shown}; it may be Tensor, a tuple of Tensor such as"
        f" tuple[Tensor, Tensor], list[Tensor], or None."
    )


def scalar(name: str, parameter: SchemaParameter, value: Any) -> Any:
    """Return an argument that is no tensor in the type of its parameter. Raises ``DtypeError``."""
    if value is None and parameter.optional:
        return None
    if parameter.dtype is not None:
        return number_in(name, parameter.name, parameter.dtype, value)
    kind = parameter.kind
    try:
        if parameter.element is None:
            return _scalar_of(kind, value)
        if not isinstance(value, (str, bytes, Tensor)):
            plain = parameter.element == "int" and type(value) is tuple and {*map(type, value)} == {int}
            values = value if plain else tuple([_scalar_of(parameter.element, each) for each in value])
            if parameter.count in (None, len(values)):
                return values
    except TypeError:
        pass
    needed = _NEEDED.get(kind, "")
    if parameter.element is not None:
        count = "" if parameter.count is None else f"{parameter.count} "
        needed = f"a tuple of {count}{_NEEDED[parameter.element].removeprefix('an ').removeprefix('a ')}"
    advice = " Pass its .item(), or annotate the parameter with Tensor." if isinstance(value, Tensor) else ""
    got = "a tensor" if isinstance(value, Tensor) else f"{value!r} of {type(value).__name__}"
    raise DtypeError(f"{name}: {parameter.name} must be {needed}, got {got}.{advice}")


_NEEDED: Final = {"int": "an int", "float": "a float", "bool": "a bool", "str": "a str", "dtype": "a dtype"}


def _scalar_of(kind: Kind, value: Any) -> Any:
    """Return a value in the type that a kind means. Raises ``TypeError``."""
    if isinstance(value, Tensor):
        raise TypeError
    if kind == "int":
        return value if type(value) in (int, SymInt) else int(index(value))
    if kind == "float" and not isinstance(value, (str, bytes)):
        return float(value)
    if kind == "bool" and getattr(type(value), "__name__", "") in ("bool", "bool_"):
        return bool(value)
    if kind == "str" and isinstance(value, str):
        return str(value)
    if kind == "dtype":
        return dt.dtype(value)
    raise TypeError


def number_in(name: str, key: str, dtype: DType, value: Any) -> Scalar:
    """Return a number as it is passed in ``dtype``. Raises ``DtypeError`` where it is none, or too large."""
    if hasattr(value, "shape"):
        raise DtypeError(
            f"{name}: {key} is a Python number, got a tensor. Pass its .item(), or declare {key}"
            f" among the tensors, of shape () if you like: its value may then change at each call."
        )
    try:
        if dtype.is_floating:
            return float(value if hasattr(value, "__float__") else index(value))
        number = index(value)
    except TypeError:
        kind = "a number" if dtype.is_floating else "an integer"
        raise DtypeError(
            f"{name}: {key} must be {kind} for {dtype}, got {value!r} of {type(value).__name__}."
        ) from None
    return bool(number) if dtype is dt.bool_ else check_scalar(name, number, dtype)

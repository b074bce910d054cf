"""Layout of a call: which of its arguments the operands of the op are, and back.

An op has operands, which are tensors, and attributes. Lists and absent tensors of a call's arguments are
noted in the attribute ``layout``: for each parameter that takes tensors how many of the operands are its own,
``ABSENT`` for None. So arguments are rebuilt from operands and attributes, wherever these have gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import ArgumentError, DtypeError
from ..tensor.tensor import Tensor
from .schema import Schema, SchemaParameter, scalar

ABSENT: Final = -1
_RESERVED: Final = frozenset(
    {"g", "out", "wanted", "tensors", "tensors_shape", "tensors_t", "layout", "device"}
)


def attribute(parameter: SchemaParameter) -> str:
    """Return the name of the attribute for a parameter: its own, unless that means something in a vjp."""
    if parameter.dtype is not None:
        return parameter.name
    return f"{parameter.name}_" if parameter.name in _RESERVED else parameter.name


def layout_of(schema: Schema, attrs: Mapping[str, Any]) -> Sequence[int]:
    """Return the layout of a call with these attributes."""
    layout: Sequence[int] = (1,) * len(schema.tensors) if schema.named else attrs["layout"]
    return layout


def split(schema: Schema, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the operands and the attributes of a call with these arguments, in the order of parameters."""
    operands: list[Any] = []
    layout: list[int] = []
    attrs: dict[str, Any] = {}
    for parameter, value in zip(schema.parameters, values, strict=True):
        if not parameter.is_tensor:
            attrs[attribute(parameter)] = scalar(schema.name, parameter, value)
        elif value is None and parameter.optional:
            layout.append(ABSENT)
        elif parameter.kind == "tensor":
            if not isinstance(value, Tensor):
                raise _no_tensor(schema, parameter.name, value)
            layout.append(1)
            operands.append(value)
        else:
            if not isinstance(value, (list, tuple)):
                raise DtypeError(
                    f"{schema.name}: {parameter.name} must be a list of tensors, got {type(value).__name__}."
                )
            for k, x in enumerate(value):
                if not isinstance(x, Tensor):
                    raise _no_tensor(schema, f"{parameter.name}[{k}]", x)
            layout.append(len(value))
            operands += value
    if not operands:
        raise ArgumentError(
            f"{schema.name}: none of {', '.join(p.name for p in schema.tensors)} holds a tensor; the op runs"
            f" on the device of its tensors, so one is needed."
        )
    if not schema.named:
        attrs["layout"] = tuple(layout)
    return tuple(operands), attrs


def _no_tensor(schema: Schema, name: str, value: Any) -> DtypeError:
    return DtypeError(
        f"{schema.name}: {name} must be a tensor, got {type(value).__name__}. Make one with"
        f" tensorbus.asarray(x)."
    )


def arguments_of(schema: Schema, operands: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a call, in the order of parameters: what ``split`` took apart."""
    counts, place = iter(layout_of(schema, attrs)), 0
    values: list[Any] = []
    for parameter in schema.parameters:
        if not parameter.is_tensor:
            values.append(attrs[attribute(parameter)])
            continue
        count = next(counts)
        if count == ABSENT:
            values.append(None)
        elif parameter.kind == "tensor":
            values.append(operands[place])
        else:
            values.append(list(operands[place : place + count]))
        place += max(count, 0)
    return values


def mutated_places(schema: Schema, layout: Sequence[int]) -> list[int]:
    """Return the numbers of the operands that are mutated, in order."""
    places: list[int] = []
    place = 0
    for parameter, count in zip(schema.tensors, layout, strict=True):
        if parameter.name in schema.mutated:
            places += range(place, place + max(count, 0))
        place += max(count, 0)
    return places


def flattened(values: Any) -> list[Any]:
    """Return what a function returned as a list of results."""
    if values is None:
        return []
    return list(values) if isinstance(values, (tuple, list)) else [values]


def call(function: Any, schema: Schema, values: Sequence[Any]) -> Any:
    """Call a function with arguments in the order of parameters, those that are keyword-only by name."""
    positional = [v for p, v in zip(schema.parameters, values, strict=True) if not p.keyword_only]
    named = {p.name: v for p, v in zip(schema.parameters, values, strict=True) if p.keyword_only}
    return function(*positional, **named)

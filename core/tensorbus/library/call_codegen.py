"""The Python function of a custom op: its parameters, and a fast path for calls that were seen before.

The fast path is for ops of single tensors and Python scalars that give one result: one dictionary look-up by
dtypes, shapes and scalars, then the kernel. All else goes through ``slow``, which also fills the dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Final

from .call_layout import attribute
from .schema import Schema, SchemaParameter

_FILE: Final = __file__.removesuffix(".py") + " (generated)"
"""A name that no file has, under which it is code of tensorbus: captured programs have no guard for it."""
_TYPES = {"int": "int", "float": "float", "bool": "bool", "str": "str"}


def has_fast_path(schema: Schema) -> bool:
    """Return whether calls can be known by dtypes, shapes and scalars as they stand."""
    return (
        schema.returns == "tensor" and not schema.mutated
        and all(schema.is_plain(p) or (p.kind in _TYPES and not p.optional) for p in schema.parameters)
    )  # fmt: skip


def call_function(schema: Schema, names: dict[str, Any]) -> FunctionType:
    """Return the function; ``names`` are what its code refers to: ``_slow``, and for the fast path more."""
    scope = {"__builtins__": __builtins__, "__name__": "tensorbus", **names}
    head = f"def call({_parameters(schema, scope)}):"
    values = ", ".join(p.name for p in schema.parameters)
    lines = [head]
    if has_fast_path(schema):
        lines += _fast_path(schema)
    lines.append(f"    return _slow(({values},))")
    exec(compile("\n".join(lines), _FILE, "exec"), scope)
    function: FunctionType = scope["call"]
    return function


def arguments_function(schema: Schema, split: Callable[..., Any]) -> FunctionType:
    """Return ``Op.arguments``: the function with these parameters that gives operands and attributes."""
    scope: dict[str, Any] = {"_split": split}
    values = ", ".join(p.name for p in schema.parameters)
    text = f"def arguments({_parameters(schema, scope)}): return _split(({values},))"
    exec(compile(text, _FILE, "exec"), scope)
    function: FunctionType = scope["arguments"]
    return function


def _parameters(schema: Schema, scope: dict[str, Any]) -> str:
    parts: list[str] = []
    starred = False
    for k, parameter in enumerate(schema.parameters):
        if parameter.keyword_only and not starred:
            parts.append("*")
            starred = True
        if parameter.required:
            parts.append(parameter.name)
        else:
            scope[f"_default{k}"] = parameter.default
            parts.append(f"{parameter.name}=_default{k}")
    return ", ".join(parts)


def _fast_path(schema: Schema) -> list[str]:
    conditions, key, tensors = ["not _modes"], [], []
    for parameter in schema.parameters:
        conditions += _conditions(parameter)
        if parameter.is_tensor:
            tensors.append(parameter.name)
            key += [f"{parameter.name}._vtype", f"{parameter.name}._value.shape"]
        else:
            key.append(parameter.name)
    tracked = " or ".join(f"{x}._node is not None" for x in tensors)
    operands = f"({', '.join(tensors)},)"
    return [
        f"    if {' and '.join(conditions)}:",
        f"        known = _plans.get(({', '.join(key)},))",
        "        if known is not None:",
        "            plan, run = known",
        "            out = _Tensor()",
        "            try:",
        f"                out._value = run({', '.join(f'{x}._value' for x in tensors)})",
        "            except Exception as error:",
        f"                _fail(plan, {operands}, plan.attrs, error)",
        "            out._vtype = plan.out",
        "            out._node = None",
        f"            if {tracked}:",
        f"                _record(plan, {operands}, out)",
        "            return out",
    ]


def _conditions(parameter: SchemaParameter) -> list[str]:
    if parameter.is_tensor:
        return [f"type({parameter.name}) is _Tensor"]
    own = f"type({parameter.name}) is {_TYPES[parameter.kind]}"
    return [own, parameter.name] if parameter.kind == "float" else [own]  # 0.0 and -0.0 are equal keys


def fast_key(schema: Schema, values: Any) -> Any:
    """Return the key of a call on the fast path."""
    key: list[Any] = []
    for parameter, value in zip(schema.parameters, values, strict=True):
        key += [value._vtype, value._value.shape] if parameter.is_tensor else [value]
    return tuple(key)


def kernel_function(schema: Schema, attrs: Mapping[str, Any], names: dict[str, Any]) -> FunctionType:
    """Return a kernel for the fast path: it takes values, calls ``_function`` on tensors, returns the value.

    ``names`` has ``_function``, ``_kinds`` of the operands, the ``_kind`` and ``_shape`` of the result, what
    else the code refers to, and ``_check(result, values)`` for results that need a closer look.
    """
    scope: dict[str, Any] = {"__builtins__": __builtins__, **names}
    values = [f"v{k}" for k in range(len(schema.tensors))]
    arguments: list[str] = []
    lines = [f"def run({', '.join(values)}):"]
    places = iter(range(len(values)))
    for parameter in schema.parameters:
        if parameter.is_tensor:
            k = next(places)
            scope[f"_kind{k}"] = names["_kinds"][k]
            lines += [f"    x{k} = _Tensor()", f"    x{k}._value = v{k}"]
            lines += [f"    x{k}._vtype = _kind{k}", f"    x{k}._node = None"]
            text = f"x{k}"
        else:
            text = f"_scalar_{parameter.name}"
            scope[text] = attrs[attribute(parameter)]
        arguments.append(f"{parameter.name}={text}" if parameter.keyword_only else text)
    called = f"_function({', '.join(arguments)})"
    own = " and ".join(f"value is not {v}" for v in values)
    lines += [
        "    token = _grad_enabled.set(False)",
        "    try:",
        f"        x = _below_modes(lambda: {called}) if _modes else {called}",
        "    finally:",
        "        _grad_enabled.reset(token)",
        "    if type(x) is _Tensor and x._vtype is _kind:",
        "        value = x._value",
        f"        if value.shape == _shape and {own} and not _may_be_view(value):",
        "            return value",
        f"    return _check(x, ({', '.join(values)},))",
    ]
    exec(compile("\n".join(lines), _FILE, "exec"), scope)
    function: FunctionType = scope["run"]
    return function


def named(name: str, parameters: Sequence[str], target: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``target``, which takes its arguments in order, as a function with these parameters."""
    text = ", ".join(parameters)
    scope: dict[str, Any] = {"_target": target}
    exec(compile(f"def {name}({text}): return _target({text})", _FILE, "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function

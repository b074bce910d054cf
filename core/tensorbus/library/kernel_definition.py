"""The arguments of ``kernel``, checked: rules and attributes, in the form that an op has them in."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any, Final

from ..dtypes import definition as dt
from ..dtypes.definition import DType
from ..errors import ArgumentError, DtypeError, ShapeError, suggest
from ..ops.definition import Spec
from .call_codegen import named
from .kernel_source import Rule, ask

_SCALARS: Final = frozenset(
    (dt.bool_, dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8, dt.uint16, dt.uint32, dt.uint64, dt.float32,
     dt.float64)
)  # fmt: skip
_RESERVED_WORDS: Final = frozenset({"g", "out", "wanted", "device"})
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDefinition:
    """The checked arguments of ``kernel``. ``results`` are the names of the results in source."""

    name: str
    tensors: Mapping[str, frozenset[DType]]
    scalars: Mapping[str, DType]
    results: tuple[str, ...]
    several: bool
    out: Rule
    grid: Rule | None
    sizes: Rule | None

    def values(self, attrs: Mapping[str, Any]) -> list[Any]:
        """Return the scalars among the attributes of a call, in order."""
        return [attrs[key] for key in self.scalars]

    def infer(self, operands: Sequence[Spec], **attrs: Any) -> Any:
        """Return what the shape rule says of the results, the operands' dtypes being right."""
        for (key, allowed), spec in zip(self.tensors.items(), operands, strict=True):
            if spec.dtype not in allowed:
                names = ", ".join(sorted(d.name for d in allowed))
                raise DtypeError(
                    f"{self.name}: {key} is {spec.dtype}, and the kernel takes {names}; cast with .to(dtype)."
                )
        scalars = {key: attrs[key] for key in self.scalars}
        returned = ask(self.name, "out", self.out, [*self.tensors], operands, scalars)
        specs = tuple(returned) if self.several and isinstance(returned, (tuple, list)) else (returned,)
        outs = tuple(Spec(*x) if isinstance(x, tuple) and len(x) == 2 else x for x in specs)
        for x in outs:
            if not isinstance(x, Spec) or not isinstance(x.shape, tuple) or not isinstance(x.dtype, DType):
                raise ArgumentError(
                    f"{self.name}: the shape rule `out` must return a (shape, dtype) pair"
                    f"{' for each result' if self.several else ''}, or a spec that it was given; got {x!r}."
                )
            if any(type(n) is int and n < 0 for n in x.shape):
                raise ArgumentError(
                    f"{self.name}: the shape rule `out` returned the shape {x.shape}; no length is negative."
                )
        if len(outs) != len(self.results):
            raise ArgumentError(
                f"{self.name}: the shape rule `out` returned {len(outs)} result(s); the kernel has"
                f" {len(self.results)}: {', '.join(self.results)}."
            )
        return outs if self.several else outs[0]


def defined(
    name: str, tensors: Mapping[str, Any], scalars: Mapping[str, DType], results: Sequence[str],
    out: Rule, grid: Rule | None, sizes: Rule | None,
) -> KernelDefinition:  # fmt: skip
    """Return the definition. Raises ``ArgumentError`` where it does not hold together."""
    for what, names in (("tensors", tensors), ("scalars", scalars)):
        if not isinstance(names, Mapping):
            raise ArgumentError(
                f"kernel {name!r}: {what} is a dict from names to dtypes, such as"
                f" {{'x': tensorbus.float32}}; got {names!r}."
            )
    if not tensors:
        raise ArgumentError(
            f"kernel {name!r}: it needs a tensor among its arguments, whose device it runs on."
        )
    if isinstance(results, str) or not isinstance(results, Sequence):
        raise ArgumentError(f"kernel {name!r}: results is a sequence of names, got {results!r}.")
    words = (name, *tensors, *scalars, *results)
    for word in words:
        if not isinstance(word, str) or not _WORD.fullmatch(word) or iskeyword(word):
            raise ArgumentError(f"kernel {name!r}: {word!r} cannot be a name in Python and in C.")
        if word in _RESERVED_WORDS and word not in results:
            raise ArgumentError(f"kernel {name!r}: {word!r} means something else in a vjp; use another name.")
    if len(set(words[1:])) < len(words) - 1:
        raise ArgumentError(f"kernel {name!r}: {', '.join(words[1:])}: each name may stand there once.")
    if len(results) == 1:
        raise ArgumentError(f"kernel {name!r}: `results` names several; leave it out for one result, `out`.")
    allowed = {}
    for key, choice in tensors.items():
        allowed[key] = frozenset(choice if isinstance(choice, Collection) else (choice,))
        if not allowed[key] or not all(isinstance(d, DType) for d in allowed[key]):
            raise ArgumentError(f"kernel {name!r}: tensor {key!r} needs a dtype or several, got {choice!r}.")
    for key, dtype in scalars.items():
        if dtype not in _SCALARS:
            known = ", ".join(sorted(d.name for d in _SCALARS))
            raise ArgumentError(
                f"kernel {name!r}: scalar {key!r} is passed in one of {known}; got {dtype!r}."
            )
    for what, rule in (("out", out), ("grid", grid), ("sizes", sizes)):
        if rule is not None and not callable(rule):
            raise ArgumentError(
                f"kernel {name!r}: `{what}` must be a function of the arguments, got {rule!r}."
            )
    return KernelDefinition(
        name=name, tensors=allowed, scalars=dict(scalars), results=tuple(results) or ("out",),
        several=bool(results), out=out, grid=grid, sizes=sizes,
    )  # fmt: skip


def _parameters(
    kernel: KernelDefinition, what: str, function: Callable[..., Any], more: Sequence[str]
) -> tuple[str, ...]:
    """Return what a derivative asks for; it may ask for ``more``, operands, their shapes and scalars."""
    code = getattr(function, "__code__", None)
    if code is None:
        raise ArgumentError(f"kernel {kernel.name!r}: {what} must be a Python function, got {function!r}.")
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = [*more, *kernel.tensors, *[f"{key}_shape" for key in kernel.tensors], *kernel.scalars]
    for key in names:
        if key not in known:
            raise ArgumentError(
                f"kernel {kernel.name!r}: the {what} asks for {key!r}; it may ask for {', '.join(known)}."
                f"{suggest(key, known)}"
            )
    return names


def checked_jvp(kernel: KernelDefinition, jvp: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``jvp``, with the same parameters in order."""
    names = _parameters(kernel, "jvp", jvp, ["out", *[f"{key}_t" for key in kernel.tensors]])
    return named("jvp", names, lambda *arguments: jvp(**dict(zip(names, arguments, strict=True))))


def checked_vjp(kernel: KernelDefinition, vjp: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``vjp``, with the same parameters, held to a gradient or None for each operand."""
    names = _parameters(kernel, "vjp", vjp, ["g", "out", "wanted"])

    def checked(*arguments: Any) -> tuple[Any, ...]:
        backs = vjp(**dict(zip(names, arguments, strict=True)))
        count = len(kernel.tensors)
        if not isinstance(backs, (tuple, list)) or len(backs) != count:
            got = f"{len(backs)} of them" if isinstance(backs, (tuple, list)) else type(backs).__name__
            raise ArgumentError(
                f"{kernel.name}: the vjp must return a tuple with a gradient or None for each of"
                f" {', '.join(kernel.tensors)}; got {got}."
            )
        return tuple(backs)

    return named("vjp", names, checked)


def checked_default(kernel: KernelDefinition, default: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``default`` as a decomposition, held to what the shape rule says."""

    def decompose(*operands: Any, **attrs: Any) -> Any:
        outs = default(*operands, *kernel.values(attrs))
        specs = kernel.infer([Spec(x.shape, x.dtype) for x in operands], **attrs)
        pairs = zip(outs, specs, strict=True) if kernel.several else ((outs, specs),)
        for x, spec in pairs:
            if (tuple(x.shape), x.dtype) != (spec.shape, spec.dtype):
                raise ShapeError(
                    f"{kernel.name}: the default returned {Spec(tuple(x.shape), x.dtype)}; `out` says {spec}."
                )
        return outs

    return decompose

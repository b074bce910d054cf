"""Source in the language of a device as the kernel of a custom op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import index
from typing import Any, Final

from .. import plugins
from ..backend_interface.protocols import Call
from ..dtypes import definition as dt
from ..errors import ArgumentError, ShapeError, TensorbusError, UnsupportedOpError
from ..ops.definition import Spec
from .call_layout import attribute
from .schema import Schema

Rule = Callable[..., Any]
_PASSED_IN: Final = {"int": dt.int64, "float": dt.float64, "bool": dt.bool_}
_MAX_RUNS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """Source for one device, with what is different there.

    ``code`` is text, or for ``cuda`` a function of Triton's (``@triton.jit``). ``name`` is the function in
    it; None: the op's own. ``grid`` and ``sizes`` stand in for those of ``kernel``; they are called with the
    operands' specs (``.shape``, ``.dtype``) and the scalars, in the order of the call. ``group`` is how many
    work-items along axis 0 of the grid share local memory (0: as the device likes); the grid is then made
    longer, to a multiple of it. ``constants`` are known when the code is compiled: macros in C-like
    languages, in Triton ``tl.constexpr`` parameters and options such as ``num_warps``.
    """

    code: Any
    name: str | None = None
    grid: Rule | None = None
    sizes: Rule | None = None
    group: int = 0
    constants: Mapping[str, bool | int | float] = field(default_factory=dict)


def check_takes_source(schema: Schema) -> None:
    """Raise ``ArgumentError`` where an op takes or returns what source in a device's language cannot."""
    for parameter in schema.parameters:
        if parameter.optional or parameter.kind not in ("tensor", *_PASSED_IN):
            raise ArgumentError(
                f"{schema.name}: source takes tensors, int, float and bool, and {parameter.name} is something"
                f" else; register a function, which may call a tb.kernel."
            )
    if schema.mutated or schema.returns not in ("tensor", "tuple"):
        raise ArgumentError(
            f"{schema.name}: source writes results, one or a fixed number of them, and this op"
            f" {'mutates its arguments' if schema.mutated else f'returns {schema.returns}'}; register a"
            f" function, which may call a tb.kernel."
        )


def preparing_source(
    schema: Schema,
    infer: Callable[[Sequence[Spec], Mapping[str, Any]], Sequence[Spec]],
    device_type: str,
    source: KernelSource,
) -> Callable[[Call], Any]:
    """Return what makes the source ready for a call, on a device of this type.

    ``infer`` is the shape rule. A kernel is prepared once for each kind of call.
    """
    own = source.name or schema.name.rpartition(":")[2]
    names = [p.name for p in schema.tensors]
    results = schema.result_names or (
        ("out",) if schema.returns == "tensor" else tuple(f"out{k}" for k in range(schema.results or 0))
    )
    runs: dict[Any, Callable[..., Any]] = {}

    def prepare(call: Call) -> Callable[..., Any]:
        key = call.index, call.dtypes, call.shapes, repr(sorted(call.attrs.items()))
        run = runs.get(key)
        if run is None:
            if len(runs) >= _MAX_RUNS:
                runs.clear()
            run = runs[key] = compiled(call)
        return run

    def compiled(call: Call) -> Callable[..., Any]:
        from ..backend_interface.capabilities import SourceCall, SupportsUserKernels

        runtime = plugins.backend(device_type).runtime
        if not isinstance(runtime, SupportsUserKernels):
            raise UnsupportedOpError(
                f"{schema.name}: there is source for {device_type!r}, but this device compiles no kernels"
                f" of users. Leave it out and give a default, which runs on every device."
            )
        assert call.shapes is not None  # only plans of elementwise ops leave them open
        specs = [Spec(s, d) for s, d in zip(call.shapes, call.dtypes, strict=True)]
        outs = infer(specs, call.attrs)
        scalars = [(p.name, p.dtype or _PASSED_IN[p.kind], call.attrs[attribute(p)]) for p in schema.scalars]
        asked = names, specs, {name: value for name, _, value in scalars}
        elements: tuple[int, ...] = (prod(outs[0].shape),)
        grid = sizes = elements
        if source.grid is not None:
            grid = lengths(own, "grid", source.grid, *asked)
        if source.sizes is not None:
            sizes = grid if source.sizes is source.grid else lengths(own, "sizes", source.sizes, *asked)
        run = runtime.compile_kernel(
            SourceCall(
                name=own,
                code=source.code,
                operands=tuple((k, s.dtype, s.shape) for k, s in zip(names, specs, strict=True)),
                results=tuple((k, s.dtype, s.shape) for k, s in zip(results, outs, strict=True)),
                scalars=tuple(scalars),
                sizes=sizes,
                grid=grid,
                group=source.group,
                constants=source.constants,
            ),
            call.index,
        )
        if schema.returns == "tensor":
            return lambda *values: run(values)[0]
        return lambda *values: run(values)

    return prepare


def ask(
    name: str, what: str, rule: Rule, names: Sequence[str], operands: Sequence[Spec],
    scalars: Mapping[str, Any],
) -> Any:  # fmt: skip
    """Return what a rule says of a call. An error in it is a ``ShapeError`` that names rule and call."""
    try:
        return rule(*operands, *scalars.values())
    except TensorbusError:
        raise
    except Exception as error:
        values = [f"{key}={x}" for key, x in zip(names, operands, strict=True)]
        values += [f"{key}={value!r}" for key, value in scalars.items()]
        raise ShapeError(
            f"{name}: the rule `{what}` raised {type(error).__name__}: {error}, for {', '.join(values)}."
        ) from error


def lengths(
    name: str, what: str, rule: Rule, names: Sequence[str], operands: Sequence[Spec],
    scalars: Mapping[str, Any],
) -> tuple[int, ...]:  # fmt: skip
    """Return the non-negative integers that a rule gives."""
    returned = ask(name, what, rule, names, operands, scalars)
    many = returned if isinstance(returned, (tuple, list)) else (returned,)
    try:
        numbers = tuple(index(n) for n in many)
    except TypeError:
        numbers = (-1,)
    if min(numbers, default=0) < 0 or (what == "grid" and not 1 <= len(numbers) <= 3):
        needed = "one to three non-negative integers" if what == "grid" else "non-negative integers"
        raise ArgumentError(f"{name}: the rule `{what}` must return {needed}, got {returned!r}.")
    return numbers

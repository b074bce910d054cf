"""Rules of a custom op in the form that an op has them: shapes, kernel, derivative, batching.

Each takes operands and attributes apart into the arguments that the user's functions know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from ..autograd.function import Context
from ..backend_interface.graph import Node
from ..backend_interface.protocols import Call
from ..backend_interface.strided_array import StridedArray
from ..decompose.tracer import OPS
from ..devices.device import Device, ValueType
from ..dispatch.modes import below_modes
from ..dtypes.definition import ALL, DType, bool_
from ..errors import (
    ArgumentError,
    AutogradError,
    DeviceError,
    DtypeError,
    ShapeError,
    UnsupportedOpError,
)
from ..ops.batching_rules import looped, spread
from ..ops.creation.creation import full
from ..ops.definition import AFTER, Spec, table
from ..ops.elementwise.where_cast import where
from ..ops.movement.movement import moveaxis
from ..tensor.grad_mode import grad_enabled
from ..tensor.tensor import Tensor, materialize, wrap
from ..tracing.active_modes import active_modes
from .call_codegen import has_fast_path, kernel_function, named
from .call_layout import arguments_of, attribute, call, flattened, layout_of, mutated_places
from .kernel_source import KernelSource
from .schema import Schema
from .shared_memory import may_be_view, shares_memory

_OWN_ERRORS: Final = (ShapeError, DtypeError, ArgumentError)
_MAX_SEEN: Final = 1024
"""Calls of a function without a fake whose shapes are remembered."""


class VmapInfo(NamedTuple):
    """The ``vmap`` that a batching rule runs in."""

    batch_size: int


@dataclass(slots=True, kw_only=True, eq=False)
class Definition:
    """The rules that the user has registered for one custom op.

    ``decompose``, ``vjp`` and ``jvp_rule`` are in the form that an op has them in, of an op whose operands
    have names; what is registered afterwards counts before them. ``into(*arguments, out)`` is for compiled
    programs: it puts the one result into ``out``, whose memory is there, or returns False. ``reads`` are the
    user's functions behind them. ``seen`` holds what a function that needs values has returned, by what it
    was called with.
    """

    schema: Schema
    function: Callable[..., Any]
    everywhere: bool
    kernels: dict[str, Callable[..., Any] | KernelSource] = field(default_factory=dict)
    fake: Callable[..., Any] | None = None
    backward: Callable[..., Any] | None = None
    setup_context: Callable[..., Any] | None = None
    vmap: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None
    jvp_context: Callable[..., Any] | None = None
    autocast: Any = None
    decompose: Callable[..., Any] | None = None
    vjp: Callable[..., Any] | None = None
    jvp_rule: Callable[..., Any] | None = None
    into: Callable[..., bool] | None = None
    reads: tuple[Callable[..., Any], ...] = ()
    seen: dict[Any, tuple[Spec, ...] | None] = field(default_factory=dict)
    dtypes: tuple[DType, ...] = ALL
    ordered: bool = False
    doc: str = ""

    @property
    def name(self) -> str:
        """The qualified name."""
        return self.schema.name


def infer(definition: Definition, operands: Sequence[Spec], attrs: Mapping[str, Any]) -> tuple[Spec, ...]:
    """Return the specs of the results, then of what is mutated, by the fake or the function itself.

    It is run on tensors that have shapes and dtypes and no values. Errors in the arguments are its own;
    ``UnsupportedOpError`` says that it cannot be run without values.
    """
    schema = definition.schema
    if attrs.get(AFTER):
        operands = operands[:-1]
    changed = tuple(operands[k] for k in mutated_places(schema, layout_of(schema, attrs)))
    if schema.returns == "nothing":
        return changed
    try:
        returned = run_shape_rule(definition, operands, attrs)
    except UnsupportedOpError:
        known = None if active_modes else definition.seen.get(_call_key(operands, attrs))
        if known is None:
            raise
        return known
    results = [returned] if schema.returns == "tensor" else flattened(returned)
    specs = tuple(_spec(definition, x) for x in results)
    if schema.results not in (None, len(specs)):
        raise ArgumentError(
            f"{schema.name}: {_rule_name(definition)} returned {len(specs)} results; the annotation says"
            f" {schema.results}."
        )
    return (*specs, *changed)


def run_shape_rule(definition: Definition, operands: Sequence[Spec], attrs: Mapping[str, Any]) -> Any:
    """Return what the fake, or the function itself, returns of tensors without values."""
    stand_ins = [OPS.wrap(Node(op="input", attrs={"index": k}, spec=spec)) for k, spec in enumerate(operands)]
    values = arguments_of(definition.schema, stand_ins, attrs)
    return _fake_result(definition, definition.fake or definition.function, values)


def _call_key(operands: Sequence[Spec], attrs: Mapping[str, Any]) -> Any:
    return tuple(operands), tuple(attrs.items())


def learn_shapes(definition: Definition, operands: Sequence[Tensor], attrs: Mapping[str, Any]) -> None:
    """Run the kernel once for the shapes of its results, where it needs values and no fake says them.

    Nothing is recorded, and what it mutates are values of its own.
    """
    specs = [Spec(x.shape, x.dtype) for x in operands]
    key = _call_key(specs, attrs)
    if key in definition.seen:
        return
    answer = None
    try:
        infer(definition, specs, attrs)
    except UnsupportedOpError:
        function = definition.kernels.get(operands[0].device.type)
        if function is None and definition.everywhere:
            function = definition.function
        if function is None or isinstance(function, KernelSource):
            raise
        answer = _specs_by_running(definition, function, operands, attrs)
    if len(definition.seen) >= _MAX_SEEN:
        definition.seen.clear()
    definition.seen[key] = answer


def _specs_by_running(
    definition: Definition, function: Callable[..., Any], operands: Sequence[Tensor], attrs: Mapping[str, Any]
) -> tuple[Spec, ...]:
    schema = definition.schema
    token = grad_enabled.set(False)
    try:
        own_operands = [wrap(materialize(x), x._vtype.materialized) for x in operands]
        returned = call(function, schema, arguments_of(schema, own_operands, attrs))
    finally:
        grad_enabled.reset(token)
    results = [returned] if schema.returns == "tensor" else flattened(returned)
    for place, result in enumerate(results):
        if not isinstance(result, Tensor):
            raise ShapeError(
                f"{schema.name}: the kernel returned a {type(result).__name__} as result {place}; a tensor is"
                f" due."
            )
    changed = [operands[k] for k in mutated_places(schema, layout_of(schema, attrs))]
    return tuple([Spec(x.shape, x.dtype) for x in (*results, *changed)])


def _rule_name(definition: Definition) -> str:
    return "the fake" if definition.fake is not None else "the function"


def _fake_result(definition: Definition, rule: Callable[..., Any], values: Sequence[Any]) -> Any:
    try:
        return OPS.run(call, rule, definition.schema, values)
    except _OWN_ERRORS:
        raise
    except Exception as error:
        name = definition.name
        cause = f"{type(error).__name__}: {error}"
        if definition.fake is not None:
            raise UnsupportedOpError(
                f"{name}: its fake failed on tensors without values ({cause}). It may look at shapes, dtypes"
                f" and Python arguments only; it returns tensors, or (shape, dtype) pairs."
            ) from error
        raise UnsupportedOpError(
            f"{name}: the shapes of its results are not known, as its function does not run on tensors"
            f" without values ({cause}). Say what it returns with register_fake, by a function of the same"
            f" arguments that returns tensors, or (shape, dtype) pairs."
        ) from error


def _spec(definition: Definition, result: Any) -> Spec:
    if isinstance(result, Tensor):
        return Spec(result.shape, result.dtype)
    if isinstance(result, Spec):
        return result
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], DType):
        return Spec(tuple(result[0]), result[1])
    several = isinstance(result, (tuple, list))
    got = f"({', '.join(type(x).__name__ for x in result)})" if several else type(result).__name__
    wanted = "one tensor" if definition.schema.returns == "tensor" else "tensors"
    raise ArgumentError(
        f"{definition.name}: {_rule_name(definition)} returned {got}, where the annotation says {wanted};"
        " a fake returns a tensor or a (shape, dtype) pair for each result."
    )


def preparing(
    definition: Definition, function: Callable[..., Any], device_type: str
) -> Callable[[Call], Callable[..., Any]]:
    """Return what makes a function of tensors, without a history, the kernel of a device type."""
    schema = definition.schema

    def prepare(request: Call) -> Callable[..., Any]:
        if request.attrs.get(AFTER):
            assert request.shapes is not None
            run_alone = prepare(
                replace(
                    request, dtypes=request.dtypes[:-1], shapes=request.shapes[:-1],
                    attrs={k: v for k, v in request.attrs.items() if k != AFTER},
                )
            )  # fmt: skip
            return lambda *values: run_alone(*values[:-1])
        device = Device(device_type, request.index)
        kinds = [ValueType.of(d, device) for d in request.dtypes]
        assert request.shapes is not None  # only plans of elementwise ops leave them open
        specs = infer(
            definition, [Spec(*x) for x in zip(request.shapes, request.dtypes, strict=True)], request.attrs
        )
        outs = [(ValueType.of(s.dtype, device), s.shape) for s in specs]
        attrs, changed = request.attrs, mutated_places(schema, layout_of(schema, request.attrs))

        def compute(values: Sequence[Any]) -> tuple[list[Tensor], Any]:
            operands = [wrap(v, kind) for v, kind in zip(values, kinds, strict=True)]
            return operands, call(function, schema, arguments_of(schema, operands, attrs))

        def recorded_off(values: Sequence[Any]) -> tuple[list[Tensor], Any]:
            token = grad_enabled.set(False)
            try:
                return below_modes(lambda: compute(values)) if active_modes else compute(values)
            finally:
                grad_enabled.reset(token)

        def run(*values: Any) -> Any:
            operands, returned = recorded_off(values)
            results = [returned] if schema.returns == "tensor" else flattened(returned)
            if changed:
                results += [operands[k] for k in changed]
            if len(results) != len(outs):
                raise ShapeError(
                    f"{schema.name}: the kernel returned {len(results) - len(changed)} results; the"
                    f" {'fake' if definition.fake else 'annotation'} says {len(outs) - len(changed)}."
                )
            return tuple(
                [
                    own(_value(schema, x, kind, shape, k), kind, values)
                    for k, (x, (kind, shape)) in enumerate(zip(results, outs, strict=True))
                ]
            )

        if not schema.single:
            return run
        if not has_fast_path(schema):
            return lambda *values: run(*values)[0]
        ((kind, shape),) = outs
        names = {
            "_function": function, "_kinds": kinds, "_kind": kind, "_shape": shape, "_Tensor": Tensor,
            "_grad_enabled": grad_enabled, "_modes": active_modes, "_below_modes": below_modes,
            "_may_be_view": may_be_view,
            "_check": lambda x, values: own(_value(schema, x, kind, shape, 0), kind, values),
        }  # fmt: skip
        return kernel_function(schema, attrs, names)

    return prepare


def own(value: Any, kind: ValueType, operands: Sequence[Any]) -> Any:
    """Return a result in memory of its own: one that is an operand, or a view of one, is copied.

    Programs write over operands that nobody reads any more.
    """
    if not any(value is x or (may_be_view(value) and shares_memory(value, x)) for x in operands):
        return value
    x, true = wrap(value, kind), full((), True, dtype=bool_, device=kind.device)
    token = grad_enabled.set(False)
    try:
        return materialize(below_modes(lambda: where(true, x, x)))
    finally:
        grad_enabled.reset(token)


def _value(schema: Schema, x: Any, kind: ValueType, shape: tuple[int, ...], place: int) -> Any:
    """Return the value of a result. Raises where it is not what the op's shape rule says."""
    if isinstance(x, Tensor):
        value = materialize(x)
        if x._vtype.materialized is kind and tuple(value.shape) == shape:
            return value
    got = f"{Spec(x.shape, x.dtype)} on {x.device}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
    due = f"{Spec(shape, kind.dtype)} on {kind.device}"
    if isinstance(x, Tensor) and x.device != kind.device:
        raise DeviceError(f"{schema.name}: the kernel returned {got} as result {place}; {due} is due.")
    raise ShapeError(
        f"{schema.name}: the kernel returned {got} as result {place}, where its shape rule says {due}."
        f" Correct the kernel, or what register_fake says: shapes follow from those of the arguments."
    )


def vjp_of(definition: Definition) -> Callable[..., Any] | None:
    """Return the derivative as a function that names what it needs; None where there is none."""
    schema, backward, setup = definition.schema, definition.backward, definition.setup_context
    if backward is None:
        return definition.vjp
    names = _attributes(schema)
    operand_names = [p.name for p in schema.tensors] if schema.named else ["tensors"]

    def derivative(g: Any, wanted: Any, *rest: Any) -> tuple[Any, ...]:
        attrs = dict(zip(names, rest, strict=False))
        asked = zip(schema.parameters, arguments_of(schema, wanted, attrs), strict=True)
        needs: list[Any] = [
            tuple(w) if p.kind == "tensors" and w else p.is_tensor and bool(w) for p, w in asked
        ]
        ctx = Context(tuple(needs))
        if setup is not None:
            *operands, out = rest[len(names) :]
            output = out
            if schema.returns != "tensor":
                output = list(out) if schema.returns == "list" else tuple(out)
            inputs = operands if schema.named else operands[0]
            setup(ctx, tuple(arguments_of(schema, inputs, attrs)), output)
        seeds = (g,) if schema.returns == "tensor" else ([*g],) if schema.returns == "list" else tuple(g)
        return _gradients(schema, backward(ctx, *seeds), layout_of(schema, attrs))

    parameters = ["g", "wanted", *names, *([*operand_names, "out"] if setup is not None else [])]
    return named("vjp", parameters, derivative)


def _attributes(schema: Schema) -> list[str]:
    """Return the names of the op's attributes."""
    return [*([] if schema.named else ["layout"]), *[attribute(p) for p in schema.scalars]]


def writing(
    definition: Definition, function: Callable[..., bool], device_type: str
) -> Callable[[Call], Callable[[Sequence[Any], Sequence[Any]], bool]]:
    """Return what makes ``Definition.into`` of an op of one result ``Kernel.out`` on a device type."""
    schema = definition.schema

    def prepare(request: Call) -> Callable[[Sequence[Any], Sequence[Any]], bool]:
        assert request.shapes is not None
        attrs = {name: value for name, value in request.attrs.items() if name != AFTER}
        count = len(request.dtypes) - bool(request.attrs.get(AFTER))
        device = Device(device_type, request.index)
        kinds = [ValueType.of(d, device) for d in request.dtypes[:count]]
        operands = [Spec(*x) for x in zip(request.shapes[:count], request.dtypes[:count], strict=True)]
        (spec,) = infer(definition, operands, attrs)
        kind = ValueType.of(spec.dtype, device)

        def write(values: Sequence[Any], buffers: Sequence[Any]) -> bool:
            operands = [wrap(v, kind) for v, kind in zip(values[:count], kinds, strict=True)]
            out = wrap(StridedArray.contiguous(buffers[0], spec.shape, spec.dtype), kind)
            return function(*arguments_of(schema, operands, attrs), out)

        return write

    return prepare


def jvp_of(definition: Definition) -> Callable[..., Any] | None:
    """Return the forward derivative as a function that names what it needs; None where there is none."""
    schema, rule = definition.schema, definition.jvp
    setup = definition.jvp_context or definition.setup_context
    if rule is None:
        return definition.jvp_rule
    names, count = _attributes(schema), len(schema.tensors) if schema.named else 1
    operand_names = [p.name for p in schema.tensors] if schema.named else ["tensors"]

    def derivative(*arguments: Any) -> Any:
        tangents, rest = list(arguments[:count]), arguments[count:]
        attrs = dict(zip(names, rest, strict=False))
        *operands, out = rest[len(names) :]
        if not schema.named:
            (tangents,), (operands,) = tangents, operands
        moved = arguments_of(schema, tangents, attrs)
        pairs = [*zip(schema.parameters, moved, strict=True)]
        ctx = Context(tuple([p.is_tensor and t is not None for p, t in pairs]))
        if setup is not None:
            output = out
            if schema.returns != "tensor":
                output = list(out) if schema.returns == "list" else tuple(out)
            setup(ctx, tuple(arguments_of(schema, operands, attrs)), output)
        if ctx._fills:
            tangents = [
                full(x.shape, 0, dtype=x.dtype, device=x.device) if t is None and x.dtype.is_inexact else t
                for x, t in zip(operands, tangents, strict=True)
            ]
        values = zip(schema.parameters, arguments_of(schema, tangents, attrs), strict=True)
        own = [t if p.is_tensor else None for p, t in values]
        answer = rule(ctx, *own)
        return answer if schema.returns == "tensor" else [*answer]

    moving = [f"{name}_t" for name in operand_names]
    return named("jvp", [*moving, *names, *operand_names, "out"], derivative)


def _gradients(schema: Schema, returned: Any, layout: Sequence[int]) -> tuple[Any, ...]:
    """Return a gradient, or None, for each operand."""
    backs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if len(backs) != len(schema.parameters):
        raise AutogradError(
            f"{schema.name}: its backward returned {len(backs)} gradient(s); one for each of"
            f" {', '.join(p.name for p in schema.parameters)} is needed, None where there is none."
        )
    result: list[Any] = []
    counts = iter(layout)
    for parameter, back in zip(schema.parameters, backs, strict=True):
        if not parameter.is_tensor:
            if back is not None:
                raise AutogradError(
                    f"{schema.name}: its backward returned a gradient for {parameter.name}, which is no"
                    f" tensor; return None there."
                )
            continue
        count = max(next(counts), 0)
        if parameter.kind == "tensor":
            result += [back] * count
        elif back is None:
            result += [None] * count
        elif isinstance(back, (tuple, list)) and len(back) == count:
            result += back
        else:
            raise AutogradError(
                f"{schema.name}: {parameter.name} is a list of {count} tensors; its backward must return a"
                f" list of as many gradients there, or None."
            )
    return tuple(result)


def batch_of(definition: Definition) -> Callable[..., Any] | None:
    """Return the batching rule: the registered one; None: the decomposition's; else one after the other."""
    schema, rule = definition.schema, definition.vmap
    if rule is None:
        return looped(definition.name) if definition.decompose is None else None

    def batch(operands: Sequence[Any], batched: Sequence[bool], **attrs: Any) -> Any:
        changed = mutated_places(schema, layout_of(schema, attrs))
        flags, whole = list(batched), list(operands)
        everywhere = spread(operands, batched)
        for k in changed:  # what is written differs between examples
            whole[k], flags[k] = everywhere[k]._alias(), True
        size = next(int(x.shape[0]) for x, b in zip(whole, flags, strict=True) if b)
        in_dims = arguments_of(schema, [0 if b else None for b in flags], attrs)
        axes = tuple(
            None if not p.is_tensor else dim for p, dim in zip(schema.parameters, in_dims, strict=True)
        )
        answer = call(
            lambda *values, **named: rule(VmapInfo(size), axes, *values, **named), schema,
            arguments_of(schema, whole, attrs),
        )  # fmt: skip
        results = _batched_results(schema, answer, size) if schema.returns != "nothing" else []
        results += [whole[k] for k in changed]
        return results[0] if schema.single else tuple(results)

    return batch


def _batched_results(schema: Schema, answer: Any, size: int) -> list[Any]:
    """Return the results with the examples along axis 0."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise ArgumentError(
            f"{schema.name}: a batching rule returns (outputs, out_dims), got {type(answer).__name__}."
        )
    outputs, out_dims = answer
    results = [outputs] if schema.returns == "tensor" else flattened(outputs)
    dims = list(out_dims) if isinstance(out_dims, (tuple, list)) else [out_dims] * len(results)
    if len(dims) != len(results):
        raise ArgumentError(
            f"{schema.name}: its batching rule returned {len(results)} outputs and {len(dims)} out_dims."
        )
    moved = []
    for x, dim in zip(results, dims, strict=True):
        if dim is None:
            x = table["broadcast_to"](x, (size, *x.shape))
        elif dim != 0:
            x = moveaxis(x, dim, 0)
        if x.shape[0] != size:
            raise ShapeError(
                f"{schema.name}: its batching rule returned {x.shape} with axis {dim} for {size} examples."
            )
        moved.append(x)
    return moved

"""``opcheck``: a custom op held to what it says of itself, for the tests of those who write one.

Each test calls the op as its users do, with the arguments given, and compares: nothing is timed, and what
cannot be tested with these arguments is told with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from .. import plugins
from ..autograd.engine import grad, no_grad
from ..autograd.gradient_check import gradcheck
from ..decompose.tracer import OPS
from ..devices.device import Device
from ..dtypes import definition as dt
from ..dtypes.definition import DType
from ..dtypes.info import finfo
from ..eager.functions import concat, flip, reshape
from ..errors import ArgumentError, AutogradError, TensorbusError, UnsupportedOpError
from ..func.derivatives import jvp
from ..func.vectorize import vmap
from ..ops.batching_rules import loops_expected
from ..ops.creation.creation import iota
from ..ops.definition import Spec
from ..ops.elementwise.isclose import allclose
from ..ops.elementwise.where_cast import cast
from ..system.late_binding import LateFunction
from ..tensor.tensor import Tensor, materialize, wrap
from .call_layout import arguments_of, call, flattened, layout_of, mutated_places, split
from .custom_op import CustomOp, definition_of, get_op
from .kernel_source import KernelSource
from .rules import Definition, infer, run_shape_rule
from .shared_memory import shares_memory

_compile: Final = LateFunction("compile")


class OpCheckError(TensorbusError, AssertionError):
    """A custom op does not do what it says of itself; the message lists all that is wrong."""


class _Case(NamedTuple):
    """A call: the op, its definition, and the arguments in the order of parameters."""

    op: CustomOp
    definition: Definition
    values: list[Any]
    operands: tuple[Tensor, ...]
    attrs: Mapping[str, Any]

    def fresh(self, operands: Sequence[Tensor] | None = None) -> list[Any]:
        """Return the arguments with cells of their own, which a call may mutate."""
        chosen = self.operands if operands is None else operands
        return arguments_of(self.definition.schema, [x.clone() for x in chosen], self.attrs)

    def run(self, function: Callable[..., Any], operands: Sequence[Tensor] | None = None) -> list[Tensor]:
        """Return the results of a call, then what it mutated."""
        values = self.fresh(operands)
        results = flattened(call(function, self.definition.schema, values))
        cells, _ = split(self.definition.schema, values)
        return results + [cells[k] for k in self.mutated]

    @property
    def mutated(self) -> list[int]:
        """The numbers of the operands that are mutated."""
        return mutated_places(self.definition.schema, layout_of(self.definition.schema, self.attrs))

    @property
    def device(self) -> Device:
        """The device of the operands."""
        return self.operands[0].device


class _Untested(str):
    """A part of a test that does not apply, with the reason; the others are done."""

    __slots__ = ()


class _Skipped(Exception):  # noqa: N818 - it is told, not raised to users
    """The reason why a test does not apply."""


def opcheck(
    op: CustomOp | str, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Test a custom op with these arguments; return what was tested, and what was not with the reason.

    ``schema``: the kernel mutates nothing that is not declared, writes into no memory that others share, and
    returns no argument, no view of one and nothing twice. ``fake``: shapes, dtypes and the device are those
    of the real results, also of arguments twice as long, where the kernel takes them, and where lengths are
    symbolic. ``gradients``: they are those that differences show, in float64, and so are theirs.
    ``batching``: ``vmap`` gives what a loop gives. ``compile``: a compiled call gives what an eager one does,
    without a graph break. Raises ``OpCheckError`` with all that is wrong.

    >>> import tensorbus as tb
    >>> @tb.library.custom_op("docs::twice")
    ... def twice(x: tb.Tensor) -> tb.Tensor:
    ...     return x * 2
    >>> tb.library.opcheck(twice, (tb.ones((3,)),))["compile"]
    'passed'
    >>> tb.library.unregister("docs::twice")
    """
    function = get_op(op) if isinstance(op, str) else op
    definition = definition_of(function)
    values = _bound(function, args, kwargs or {})
    operands, attrs = split(definition.schema, values)
    operands = tuple([x.detach().clone() for x in operands])
    case = _Case(function, definition, values, operands, attrs)
    outcomes: dict[str, str] = {}
    wrong: list[str] = []
    for name, test in _TESTS.items():
        faults: list[str] = []
        try:
            faults.extend(test(case))  # what was told before an error stays
        except _Skipped as reason:
            outcomes[name] = f"skipped: {reason}"
            continue
        except Exception as error:
            faults.append(f"{type(error).__name__}: {error}")
        untested = [fault for fault in faults if isinstance(fault, _Untested)]
        faults = [fault for fault in faults if not isinstance(fault, _Untested)]
        outcomes[name] = "failed" if faults else "; ".join(["passed", *untested])
        wrong += [f"{name}: {fault}" for fault in faults]
    if wrong:
        raise OpCheckError(f"{definition.name} does not do what it says:\n  " + "\n  ".join(wrong))
    return outcomes


def _bound(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments in the order of parameters, defaults filled in."""
    import inspect

    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(f"opcheck: {error}; the op is {function.schema}.") from None
    bound.apply_defaults()
    return list(bound.arguments.values())


def _bytes(value: Any, dtype: DType, device: Device) -> bytes:
    return bytes(device.runtime.to_host(value, dtype, device.index))


def _schema(case: _Case) -> Iterator[str]:
    definition, device = case.definition, case.device
    kernel = _kernel_of(case)
    if kernel is None:
        raise _Skipped(f"there is no kernel for {device.type}")
    values = [materialize(x) for x in case.operands]
    before = [_bytes(v, x.dtype, device) for v, x in zip(values, case.operands, strict=True)]
    cells = [wrap(v, x._vtype.materialized) for v, x in zip(values, case.operands, strict=True)]
    names = _operand_names(case)
    with no_grad():
        results = flattened(
            call(kernel, definition.schema, arguments_of(definition.schema, cells, case.attrs))
        )
    for k, (x, value) in enumerate(zip(cells, values, strict=True)):
        if x._value is not value and k not in case.mutated:
            yield f"the kernel mutates {names[k]}, which mutates_args does not name"
        if _bytes(value, x.dtype, device) != before[k]:
            yield (
                f"the kernel writes into the memory of {names[k]}, which other tensors may share; change the"
                f" tensor instead, as in {names[k]}[...] = value, and name it in mutates_args"
            )
    memory = {n: materialize(x) for n, x in enumerate(results) if isinstance(x, Tensor)}
    for n, own in memory.items():
        for k, value in enumerate(values):
            if shares_memory(own, value):
                yield f"result {n} is {names[k]} or a view of it; return what an op computes"
        for m in range(n):
            if m in memory and shares_memory(own, memory[m]):
                yield f"result {n} is result {m} or shares its memory; return what ops compute, or a copy"


def _operand_names(case: _Case) -> list[str]:
    schema, names = case.definition.schema, []
    for parameter, count in zip(schema.tensors, layout_of(schema, case.attrs), strict=True):
        plain = parameter.kind == "tensor"
        names += [parameter.name if plain else f"{parameter.name}[{k}]" for k in range(max(count, 0))]
    return names


def _fake(case: _Case) -> Iterator[str]:
    yield from _rule_differences(case, case.operands, "")
    yield from _fake_devices(case)
    longer = [concat([x, x], axis=0) if x.shape else x for x in case.operands]
    try:  # other lengths, where the kernel takes them
        with no_grad():
            case.run(_kernel_of(case) or case.op, longer)
    except Exception as error:
        longer = []
        yield _Untested(
            "not tested with axis 0 of all arguments twice as long, which the kernel refuses:"
            f" {type(error).__name__}: {error}"
        )
    if longer:
        yield from _rule_differences(case, longer, " where axis 0 of all arguments is twice as long")
    if any(x.shape for x in case.operands):
        runs = [case.operands, longer] if longer else [case.operands]
        yield from _compared(case, "with symbolic lengths", runs, dynamic=True)


def _fake_devices(case: _Case) -> Iterator[str]:
    """Compare where the fake puts tensors that it does not make of the operands."""
    if case.definition.fake is None:
        return
    specs = [Spec(x.shape, x.dtype) for x in case.operands]
    returned = run_shape_rule(case.definition, specs, case.attrs)
    results = [returned] if case.definition.schema.returns == "tensor" else flattened(returned)
    for n, x in enumerate(results):
        if isinstance(x, Tensor) and x.device not in (OPS.device, case.device):
            yield f"result {n} lies on {case.device}, and the fake says {x.device}"


def _rule_differences(case: _Case, operands: Sequence[Tensor], where: str) -> Iterator[str]:
    """Compare what the shape rule says of a call with its results."""
    specs = infer(case.definition, [Spec(x.shape, x.dtype) for x in operands], case.attrs)
    with no_grad():
        real = case.run(_kernel_of(case) or case.op, operands)
    if len(specs) != len(real):
        yield f"the fake tells of {len(specs)} results, and there are {len(real)}{where}"
    for n, (spec, x) in enumerate(zip(specs, real, strict=False)):
        if (spec.shape, spec.dtype) != (x.shape, x.dtype):
            yield f"result {n} is {Spec(x.shape, x.dtype)}, and the fake says {spec}{where}"
        if x.device != case.device:
            yield f"result {n} lies on {x.device}; the operands lie on {case.device}"


def _kernel_of(case: _Case) -> Callable[..., Any] | None:
    """Return the function that is the kernel for the device, unchecked; None where there is none.

    Source is called through the op: what it may read and write is its launch's business.
    """
    definition = case.definition
    own = definition.kernels.get(case.device.type)
    if isinstance(own, KernelSource):
        return case.op
    return own or (definition.function if definition.everywhere else None)


def _gradients(case: _Case) -> Iterator[str]:
    definition = case.definition
    forward = definition.jvp is not None or definition.jvp_rule is not None
    backward = any(x is not None for x in (definition.backward, definition.vjp, definition.decompose))
    if not (forward or backward):
        raise _Skipped("no derivative is registered")
    moving = [k for k, x in enumerate(case.operands) if x.dtype.is_floating]
    if not moving:
        raise _Skipped("no argument is floating")
    if dt.float64 not in plugins.backend(case.device.type).properties(case.device.index).dtypes:
        raise _Skipped(f"{case.device} has no float64, which differences need")
    wide = [cast(x, dt.float64) if k in moving else x for k, x in enumerate(case.operands)]

    def function(*variables: Tensor) -> Any:
        operands = list(wide)
        for k, x in zip(moving, variables, strict=True):
            operands[k] = x
        results = flattened(
            call(case.op, case.definition.schema, arguments_of(case.definition.schema, operands, case.attrs))
        )
        return tuple([x for x in results if x.dtype.is_inexact])

    try:
        results = function(*[wide[k] for k in moving])
    except (UnsupportedOpError, TypeError) as error:
        raise _Skipped(f"the kernel does not take float64 ({error})") from error
    if not results:
        raise _Skipped("no result is floating")
    if not all(x.dtype is dt.float64 for x in results):
        raise _Skipped("the results of float64 arguments are not float64, which differences need")
    variables = [wide[k].detach().requires_grad_() for k in moving]
    if backward:
        gradcheck(function, variables)
        yield from _second_differences(function, variables)
    if forward:
        yield from _forward_differences(function, [x.detach() for x in variables])


def _second_differences(
    function: Callable[..., tuple[Tensor, ...]], variables: Sequence[Tensor]
) -> Iterator[str]:
    """Compare the derivative of the gradient with differences, where the gradient has one."""

    def first(*at: Tensor) -> list[Tensor]:
        sums = [(x * _direction(x)).sum() for x in function(*at)]
        slopes = grad(sums, at, create_graph=True, allow_unused=True)
        nothing = sum(x.sum() * 0 for x in at)  # what has lost its history has a derivative of 0
        return [slope + nothing for slope in slopes if slope is not None]

    try:
        grad([x.sum() for x in first(*variables)], variables, allow_unused=True)
    except TensorbusError as error:
        yield _Untested(f"not tested twice differentiated: {error}")
        return
    try:
        gradcheck(first, variables)
    except AutogradError as error:
        yield f"differentiated twice, with the gradients as results: {error}"


def _direction(x: Tensor) -> Tensor:
    """Return a direction of the shape of ``x``."""
    return cast(reshape(iota(x.size, device=x.device) % 3 + 1, x.shape), x.dtype)


def _forward_differences(function: Callable[..., Any], at: Sequence[Tensor]) -> Iterator[str]:
    """Compare the forward derivative along one direction with a difference, as ``gradcheck`` does."""
    step, absolute, relative = 1e-6, 1e-5, 1e-3
    directions = [_direction(x) for x in at]
    _, tangents = jvp(function, tuple(at), tuple(directions))
    with no_grad():
        ahead, behind = (
            function(*[x + sign * step * d for x, d in zip(at, directions, strict=True)]) for sign in (1, -1)
        )
    for n, (tangent, after, before) in enumerate(zip(tangents, ahead, behind, strict=True)):
        slope = (after - before) / (2 * step)
        if not bool(allclose(tangent, slope, rtol=relative, atol=absolute)):
            yield (
                f"the forward derivative of result {n} is {tangent.tolist()} along"
                f" {[x.tolist() for x in directions]}, where differences give {slope.tolist()}"
            )


def _batching(case: _Case) -> Iterator[str]:
    examples = [list(case.operands), [_turned(x) for x in case.operands]]
    batches = [
        concat([reshape(x, (1, *x.shape)) for x in pair], axis=0) for pair in zip(*examples, strict=True)
    ]
    which = [tuple(range(len(batches)))]
    alone = tuple(case.mutated) or (0,)
    which += [alone] if alone != which[0] else []
    for places in which:
        dims = tuple([0 if k in places else None for k in range(len(batches))])
        mapped = [b if d == 0 else x for b, d, x in zip(batches, dims, case.operands, strict=True)]
        token = loops_expected.set(True)
        try:
            together = vmap(
                lambda *operands: tuple(case.run(case.op, operands)), in_dims=dims, randomness="same"
            )(*mapped)
        finally:
            loops_expected.reset(token)
        apart = [
            case.run(case.op, [one[k] if k in places else x for k, x in enumerate(case.operands)])
            for one in examples
        ]
        names = ", ".join(_operand_names(case)[k] for k in places)
        for n, x in enumerate(together):
            for k in range(2):
                if not _close(x[k], apart[k][n]):
                    yield f"result {n} of vmap over {names} differs from that of a loop, in example {k}"


def _turned(x: Tensor) -> Tensor:
    """Return the same elements in another order."""
    return flip(x) if x.shape else x


def _close(x: Tensor, y: Tensor) -> bool:
    if x.shape != y.shape or x.dtype is not y.dtype:
        return False
    if not x.dtype.is_inexact:
        return bool((x == y).all())
    eps = finfo(x.dtype).eps
    return bool(allclose(x, y, rtol=16 * eps, atol=16 * eps, equal_nan=True))


def _compiled(case: _Case) -> Iterator[str]:
    yield from _compared(case, "compiled", [case.operands])


def _compared(case: _Case, how: str, runs: Sequence[Sequence[Tensor]], **options: Any) -> Iterator[str]:
    """Compare calls of a compiled function with eager ones, each twice: the second is a replay."""
    schema, attrs = case.definition.schema, case.attrs

    def function(*operands: Tensor) -> tuple[Any, ...]:
        results = flattened(call(case.op, schema, arguments_of(schema, operands, attrs)))
        return (*results, *[operands[k] for k in case.mutated])

    run = _compile(function, fullgraph=True, **options)
    for operands in runs:
        eager = case.run(case.op, operands)
        for turn in ("first", "second"):
            results = run(*[x.clone() for x in operands])
            for n, (x, y) in enumerate(zip(results, eager, strict=True)):
                if not _close(x, y):
                    yield f"result {n} of the {turn} call {how} differs from that of an eager one"


_TESTS: Final[Mapping[str, Callable[[_Case], Iterator[str]]]] = {
    "schema": _schema, "fake": _fake, "gradients": _gradients, "batching": _batching, "compile": _compiled,
}  # fmt: skip

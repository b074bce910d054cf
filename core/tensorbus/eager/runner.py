"""The path of a call for any operands: scalars, parameters, modes, attributes, decompositions, and errors.

The fast paths of ``call`` come here at their first miss. A plan is looked up by all that it depends on, and
made where there is none.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from ..autograd import engine
from ..autograd.views import ViewStep, link, unlink
from ..compat import torch_names
from ..dispatch import kernel_preference
from ..dispatch.modes import apply_modes, below_modes, is_value_mode
from ..dispatch.plan import Plan, has_own_equality, new_cache, plain_attrs
from ..dispatch.plan import plan as make_plan
from ..dtypes.definition import check_scalar, plain, weak_operand
from ..errors import DeviceError, DtypeError, OutOfMemoryError, ShapeError, TensorbusError
from ..interchange import ufuncs
from ..ops import call_errors
from ..ops.definition import Op, Spec, table
from ..tensor.tensor import Tensor, materialize, wrap
from ..tracing.active_modes import active_modes
from ..tracing.sym_int import SymInt
from ..tracing.sym_number import SymNumber

_SCALARS = frozenset({bool, int, float, complex})
MAX_PLANS = 4096


def _plain_tuple(*outs: Any) -> tuple[Any, ...]:
    return outs


def several_runner(op: Op[...]) -> Callable[[Sequence[Any], dict[str, Any]], Any]:
    """Return the path for any operands of an op of several results."""
    plan_for = planner(op, new_cache())
    plain = op.results[-1].startswith("*")
    results: Any = _plain_tuple if plain else namedtuple(op.name.rpartition(":")[2], op.results)

    def run(operands: Sequence[Any], attrs: dict[str, Any], below: bool = False) -> Any:
        if not all(isinstance(x, Tensor) for x in operands):
            operands = as_operands(op, operands)
        if active_modes and not below:
            operands, result = apply_modes(op, operands, attrs)
            if result is not NotImplemented:
                return results(*result)
        for x in operands:
            if x._vtype.materialized is not x._vtype:
                materialize(x)
        plan = plan_for([x._vtype for x in operands], [x._value for x in operands], attrs)
        tracked = any(x._node is not None for x in operands)
        if plan.run is None:
            return results(*decomposed(plan, operands, tracked))
        try:
            values = plan.run(*[x._value for x in operands])
        except Exception as error:
            fail(plan, operands, attrs, error)
        outs = [wrap(value, kind) for value, kind in zip(values, plan.outs, strict=True)]
        if tracked:
            engine.record_several(plan, operands, outs)
        return results(*outs)

    return run


def runner(op: Op[...]) -> Callable[[Sequence[Any], dict[str, Any]], Any]:
    """Return what runs ``op`` on operands and attributes, past its Python signature."""
    return several_runner(op) if op.results else single_runner(op, new_cache())


def planner(
    op: Op[...], plans: dict[Any, Plan]
) -> Callable[[Sequence[Any], Sequence[Any], dict[str, Any]], Plan]:
    """Return the look-up of a plan by what it depends on; made and kept at the first time.

    ``plans`` are those that have a kernel, which is all that the fast paths look for.
    """
    decomposing = new_cache()
    shape_free = op.broadcasts
    elementwise = op.family == "elementwise" and len(op.operands) <= 2

    def plan_for(kinds: Sequence[Any], values: Sequence[Any], attrs: dict[str, Any]) -> Plan:
        if active_modes and _is_symbolic(() if shape_free else values, attrs):
            return _plan(op, kinds, values, attrs, shape_free)
        if elementwise and not attrs and kinds[0] is kinds[-1]:
            key: Any = kinds[0]
        elif not attrs:
            key = tuple(kinds) if shape_free else (*kinds, *[v.shape for v in values])
        else:  # floats by their text: 0.0 and -0.0 are equal keys but different attributes, as are 1 and 1.0
            named = [repr(v) if type(v) in (float, complex) else v for v in attrs.values()]
            key = (*kinds, *named) if shape_free else (*kinds, *[v.shape for v in values], *named)
        preferring = kernel_preference.active()
        if preferring:
            key = (kernel_preference.preferred(op.name), key)
        try:
            plan = plans.get(key) or decomposing.get(key)
        except TypeError as error:
            raise call_errors.UnhashableError(
                f"{op.name}: an argument of {attrs!r} cannot be used here: {error}."
            ) from error
        if plan is None:
            if (plain := plain_attrs(attrs)) is not attrs:
                return plan_for(kinds, values, plain)
            plan = _plan(op, kinds, values, attrs, shape_free)
            lasts = plan.lift is None and preferring == kernel_preference.active()
            if lasts and not any(map(has_own_equality, attrs.values())):
                known = decomposing if plan.run is None else plans
                if len(known) >= MAX_PLANS:
                    known.clear()
                known[key] = plan
        return plan

    return plan_for


def _is_symbolic(values: Sequence[Any], attrs: dict[str, Any]) -> bool:
    """Return whether a key by lengths would make them integers: a shape rule runs while they vary."""
    lengths = [n for v in values for n in v.shape]
    for value in attrs.values():
        lengths += value if type(value) is tuple else (value,)
    return any(type(n) is SymInt for n in lengths)


def single_runner(op: Op[...], plans: dict[Any, Plan]) -> Callable[[Sequence[Any], dict[str, Any]], Any]:
    """Return the path for any operands: scalars, parameters, attributes, decompositions."""
    plan_for = planner(op, plans)
    takes_scalars = op.family == "elementwise"
    view = op.view is not None

    def run(operands: Sequence[Any], attrs: dict[str, Any], below: bool = False) -> Any:
        if active_modes and not below:
            operands, result = apply_modes(op, operands, attrs)
            if result is not NotImplemented:
                return result
        kinds: list[Any] = []
        values: list[Any] = []
        tracked = scalars = False
        for x in operands:
            if isinstance(x, Tensor):
                if x._vtype.materialized is not x._vtype:
                    materialize(x)
                kinds.append(x._vtype)
                values.append(x._value)
                if x._node is not None:
                    tracked = True
            elif takes_scalars and type(x) in _SCALARS:
                kinds.append(type(x))
                values.append(x)
                scalars = True
            elif takes_scalars and type(x) is SymNumber and active_modes:  # beside a value of a mode
                kinds.append(type(x.plain))
                values.append(x)
            else:
                return run(as_operands(op, operands), attrs, True)
        plan = plan_for(kinds, values, attrs)
        if scalars:
            _check_scalars(op, plan, kinds, values)
        if plan.run is None:
            decomposition = decomposed(plan, operands, tracked)
            return decomposition if view else unlink(decomposition)
        cell = plan.out.cell
        out: Any = Tensor() if cell is None else cell()
        try:
            out._value = plan.run(*values)
        except Exception as error:
            fail(plan, operands, attrs, error)
        out._vtype = plan.out
        out._node = None
        if tracked:
            engine.record(plan, operands, out)
        return out

    return _linking(op, run) if view else run


def _linking(op: Op[...], run: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``run`` of an op whose result is a view of its operand."""
    normalize = op.normalize

    def run_and_link(operands: Sequence[Any], attrs: dict[str, Any], below: bool = False) -> Any:
        out, x = run(operands, attrs, below), operands[0]
        if not (isinstance(x, Tensor) and isinstance(out, Tensor)) or out is x:
            return out
        attrs = attrs if normalize is None else normalize((x,), **attrs)
        return link(out, x, ViewStep(op, attrs, (x._vtype,)))

    return run_and_link


def _plan(
    op: Op[...], kinds: Sequence[Any], values: Sequence[Any], attrs: dict[str, Any], shape_free: bool
) -> Plan:
    return make_plan(op, kinds, None if shape_free else [v.shape for v in values], attrs)


def _check_scalars(op: Op[...], plan: Plan, kinds: list[Any], values: list[Any]) -> None:
    """Weak integers must fit the dtype that they take, or they would wrap without a word."""
    for place, (kind, computed) in enumerate(zip(kinds, plan.computed, strict=True)):
        if kind is int and type(values[place]) is int:
            check_scalar(op.name, values[place], computed)
            values[place] = weak_operand(values[place], computed)


def as_operands(op: Op[...], operands: Sequence[Any]) -> list[Any]:
    """Turn scalars of ops that need tensors, NumPy scalars and 0-d host arrays into operands."""
    like = next((x for x in operands if isinstance(x, Tensor)), None)
    result = []
    for x in operands:
        if not isinstance(x, Tensor):
            x = plain(x)
        if not isinstance(x, Tensor) and not (op.family == "elementwise" and type(x) in _SCALARS):
            item = getattr(x, "item", None)
            if like is not None and type(x) in _SCALARS:
                x = table.function("full")((), x, device=like.device)
            elif like is not None and item is not None and getattr(x, "shape", None) == ():
                x = like.tensor_like_device(x)
            elif like is not None and hasattr(x, "__array_interface__"):
                x = ufuncs.as_operand(op.name, x, like)
            else:
                raise _not_tensors(op, operands)
        result.append(x)
    return result


def operands_of(
    op: Op[...], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return what a call of ``op`` comes down to: its operands, tensors and scalars, and its attributes."""
    try:
        operands, attrs = op.arguments(*args, **kwargs)
    except Exception as error:
        operands, attrs = renamed_or_error(op, args, kwargs, error)
    return as_operands(op, operands), attrs


def renamed_or_error(
    op: Op[...], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return operands and attributes of a call by an argument's second name; raise what else is wrong."""
    of_call = isinstance(error, (AttributeError, TypeError))
    renamed = call_errors.second_keywords(op.name, op.arguments, kwargs) if of_call else None
    if renamed is None:
        raise error_of_call(op, args, kwargs, error, True) from None
    try:
        return op.arguments(*args, **renamed)
    except Exception as other:
        raise error_of_call(op, args, renamed, other, True) from None


def error_of_call(
    op: Op[...], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception, by_arguments: bool = False
) -> Exception:
    """Return what a failed call raises: in the op's own name, with the argument at fault.

    ``by_arguments``: it was raised where Python arguments become operands and attributes, by nothing else.
    """
    message = call_errors.error_of_call(op.arguments, op.name, args, kwargs, error)
    if by_arguments and message is error:
        return call_errors.of_arguments(op.name, args, kwargs, error)
    if type(message) is not TypeError or type(error) is not TypeError or message is error:
        return message
    # So numpy.sum and numpy.mean call the method of what is no array of theirs.
    if str(error).endswith(("'out'", "'dtype'")) and op.operands:
        return TypeError(
            f"{message} NumPy's function takes x.numpy(); for a tensor there is tensorbus.{op.name}(x)."
        )
    return TypeError(f"{message}{torch_names.of_form(op.name, len(args))}")


def _not_tensors(op: Op[...], operands: Sequence[Any]) -> Exception:
    from ..ops.argument_kinds import type_name  # only where something is already wrong

    got = ", ".join(map(type_name, operands))
    return DtypeError(f"{op.name}: needs tensors, got {got}. Make one with tensorbus.asarray(x).")


def decomposed(plan: Plan, operands: Sequence[Any], tracked: bool) -> Any:
    """Run an op by its decomposition; its own derivative, where it has one, stands for the whole.

    Modes do not see the ops that it calls, but for values of a mode, which runs that in turn.
    """
    if active_modes and not is_value_mode(plan.out.device.type):
        return below_modes(partial(_decompose, plan, operands, tracked))
    return _decompose(plan, operands, tracked)


def _decompose(plan: Plan, operands: Sequence[Any], tracked: bool) -> Any:
    """Run the decomposition. Operands from outside a mode's values are lifted first, with their history."""
    op, attrs = plan.op, dict(plan.attrs)
    if plan.lift is not None:
        return table.run(op.name, [plan.lift(x) for x in operands], attrs, below=True)
    cast = table.function("cast")
    assert op.decompose is not None
    if op.family == "creation":
        return op.decompose(device=plan.out.device, **attrs)
    own = tracked and op.vjp is not None
    args = [wrap(x._value, x._vtype) if own and isinstance(x, Tensor) else x for x in operands]
    args = [x if c is None else cast(x, c) for x, c in zip(args, plan.casts, strict=True)]
    try:
        out = op.decompose(*args, **attrs)
    except TensorbusError as error:
        raise call_errors.renamed(op.name, error) from None
    if own and op.results:
        engine.record_several(plan, operands, out)
    elif own:
        engine.record(plan, operands, out)
    return out


def fail(plan: Plan, operands: Sequence[Any], attrs: dict[str, Any], error: Exception) -> NoReturn:
    """Raise what was wrong where a kernel raised: the device with the kernel's error, or the call without."""
    explained = _explanation(plan, operands, attrs, error)
    if explained is error:
        raise error
    raise explained from None if isinstance(explained, ShapeError) else error


def _explanation(plan: Plan, operands: Sequence[Any], attrs: dict[str, Any], error: Exception) -> Exception:
    """Return what was wrong with it: the op's own rules first, then the device."""
    op = plan.op
    if isinstance(error, TensorbusError) and not isinstance(error, (OutOfMemoryError, ShapeError)):
        return error
    specs = [Spec(x.shape, x.dtype) for x in operands if isinstance(x, Tensor)]
    if op.broadcasts and specs:
        try:
            op.specs(
                tuple(specs) if len(specs) == len(op.operands) else tuple(specs * 3)[: len(op.operands)], {}
            )
        except ShapeError as wrong:
            message = str(wrong)
            return ShapeError(message if message.startswith(f"{op.name}:") else f"{op.name}: {message}")
        except TypeError:
            pass
    if isinstance(error, TensorbusError):
        return error
    device = next((x.device for x in operands if isinstance(x, Tensor)), attrs.get("device"))
    where = f"{op.name}({', '.join(map(str, specs))}) on {device}"
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"{where}: the device has no memory left for the result. {error}")
    kernel = plan.kernel or "the kernel"
    return DeviceError(f"{where}: {kernel} failed with {type(error).__name__}: {error}")

"""The Python function of each op: operands in, plan looked up, kernel run, history recorded.

This is the hot path. Two plain tensors and a known signature cost two attribute reads, one dictionary
look-up, the kernel and one new cell; everything else is behind the first miss, in ``runner``, which has
``dispatch.plan`` make the plan. A keyword that a function of the fast path does not have meets Python's own
error, which names both: Python raises that before any line of the function runs, and to take all keywords so
as to refuse them costs each call 30 ns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Final
from weakref import getweakrefcount, ref

from ..autograd import engine
from ..autograd.views import MAX_NEW_VIEWS, link, link_by_key, new_views, unlink, view_of
from ..devices.device import ValueType
from ..dispatch import kernel_preference
from ..dispatch.kernel_tables import fused_kernels
from ..dispatch.modes import is_value_mode
from ..dispatch.plan import Plan, has_own_equality, new_cache
from ..ops import fused_function
from ..ops.definition import Op, table
from ..ops.movement.family import is_single
from ..system.late_binding import LateFunction
from ..tensor.tensor import Tensor, is_plain
from ..tracing.active_modes import active_modes
from . import methods
from .inplace_kernel import dynamic_slice, run_in_place
from .runner import (
    MAX_PLANS,
    decomposed,
    error_of_call,
    fail,
    planner,
    renamed_or_error,
    runner,
    several_runner,
    single_runner,
)

_FIT_ALL: Final = 128
"""Whole numbers below this one fit every dtype of numbers: no call has to look."""
_call_fused: Final = LateFunction("fused_function")


def function(op: Op[...]) -> Callable[..., Any]:
    """Make the function that users call for ``op``."""
    if op.results:
        call = _with_call_errors(op, several_runner(op))
    elif op.family == "elementwise" and len(op.operands) == 1 and op.view is None:
        call = _unary(op)
    elif op.family == "elementwise" and len(op.operands) == 2:
        call = _binary(op)
    elif op.family == "matmul" and op.operands == ("x", "y"):
        call = _of_two_tensors(op)
    elif op.memoize:
        call = _with_attributes(op)
    else:
        call = _general(op)
    call.__name__ = call.__qualname__ = op.name
    call.__module__ = "tensorbus"
    call.__doc__ = op.doc
    call.__wrapped__ = _signature_function(op)  # type: ignore[attr-defined]
    return call


def _signature_function(op: Op[...]) -> FunctionType:
    """Return a function with the op's signature, for ``help`` and ``inspect``; it is never called."""
    own = op.arguments
    shown = FunctionType(own.__code__, own.__globals__, op.name, own.__defaults__, own.__closure__)
    shown.__kwdefaults__ = own.__kwdefaults__
    shown.__annotations__ = {**own.__annotations__, "return": "Tensor"}
    return shown


def _unary(op: Op[...]) -> Callable[..., Any]:
    plans = new_cache()
    run = single_runner(op, plans)

    def call(x: Any, /) -> Any:
        if (type(x) is not Tensor and not is_plain(x)) or active_modes:
            return run((x,), {})
        try:
            plan = plans[x._vtype]
        except KeyError:
            plan = None
        if plan is None:  # not above: a mistake of the call would be told as a consequence of the miss
            return run((x,), {})
        out = Tensor()
        try:
            out._value = plan.run(x._value)
        except Exception as error:
            fail(plan, (x,), {}, error)
        out._vtype = plan.out
        out._node = None
        if x._node is not None:
            engine.record(plan, (x,), out)
        return out

    return call


def _binary(op: Op[...]) -> Callable[..., Any]:
    plans = new_cache()
    run = single_runner(op, plans)
    if op.check is not None:
        run = _checked(op.check, run)
    call = _of_two(op, plans, run)
    if op.name in methods.OPERATOR_OF:
        asking = methods.with_reflected(run, methods.OPERATOR_OF[op.name])
        call.operator = _of_two(op, plans, asking)  # type: ignore[attr-defined]
    return call


def _checked(check: Callable[..., None], run: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``run``, which looks at its operands first: the fast path has none that are whole numbers."""

    def check_and_run(operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        check(*operands)
        return run(operands, attrs)

    return check_and_run


def _of_two(
    op: Op[...], plans: dict[Any, Plan], run: Callable[[Sequence[Any], dict[str, Any]], Any]
) -> Callable[..., Any]:
    """Return the fast path of two operands; ``run`` is the one for any."""
    whole = op.check is None

    def call(x: Any, y: Any, /) -> Any:
        if (type(x) is not Tensor and not is_plain(x)) or active_modes:
            return run((x, y), {})
        key: Any = x._vtype  # stands for both where they are the same: no tuple is made and hashed
        if type(y) is float:
            key, other, node = (key, float), y, None
        elif type(y) is Tensor or is_plain(y):
            other, node = y._value, y._node
            if y._vtype is not key:
                key = key, y._vtype
        elif whole and type(y) is int and 0 <= y < _FIT_ALL:
            key, other, node = (key, int), y, None
        else:
            return run((x, y), {})
        try:
            plan = plans[key]
        except KeyError:
            plan = None
        if plan is None:  # not above: a mistake of the call would be told as a consequence of the miss
            return run((x, y), {})
        out = Tensor()
        try:
            out._value = plan.run(x._value, other)
        except Exception as error:
            fail(plan, (x, y), {}, error)
        out._vtype = plan.out
        out._node = None
        if node is not None or x._node is not None:
            engine.record(plan, (x, y), out)
        return out

    return call


def _of_two_tensors(op: Op[...]) -> Callable[..., Any]:
    """Return the fast path of two tensors whose shapes matter, and no attributes."""
    plans = new_cache()
    run = single_runner(op, plans)

    def call(x: Any, y: Any, /) -> Any:
        if (type(x) is Tensor or is_plain(x)) and (type(y) is Tensor or is_plain(y)) and not active_modes:
            a, b = x._value, y._value
            plan = plans.get((x._vtype, y._vtype, a.shape, b.shape))
            if plan is not None:
                out = Tensor()
                try:
                    out._value = plan.run(a, b)
                except Exception as error:
                    fail(plan, (x, y), {}, error)
                out._vtype = plan.out
                out._node = None
                if x._node is not None or y._node is not None:
                    engine.record(plan, (x, y), out)
                return out
        return run((x, y), {})

    return call


def _with_attributes(op: Op[...]) -> Callable[..., Any]:
    """Return the fast path of one tensor and attributes: a call seen before is known by its arguments."""
    seen = new_cache()
    view = op.view is not None
    general = _with_copy_checked(op) if view else _general(op)
    remember = _memo(op, seen)
    shape_free = op.broadcasts

    def call(x: Any, /, *args: Any, **kwargs: Any) -> Any:
        if (type(x) is Tensor or is_plain(x)) and not active_modes:
            for argument in (*args, *kwargs.values()) if kwargs else args:
                if type(argument) is float:  # equal to an integer as a key, but not as an axis
                    return general(x, *args, **kwargs)
            shape = None if shape_free else x._value.shape
            key = (x._vtype, shape, args, *kwargs.items()) if kwargs else (x._vtype, shape, args)
            try:
                plan = seen.get(key)
            except TypeError:
                return general(x, *args, **kwargs)
            if plan is None:
                plan = remember(key, x, args, kwargs)
                if plan is None:
                    return general(x, *args, **kwargs)
            if plan.run is None:
                return general(x, *args, **kwargs) if view else decomposed(plan, (x,), x._node is not None)
            out = Tensor()
            try:
                out._value = plan.run(x._value)
            except Exception as error:
                fail(plan, (x,), dict(plan.attrs), error)
            out._vtype = plan.out
            out._node = None
            if x._node is not None:
                engine.record(plan, (x,), out)
            if not view:
                return out
            if getweakrefcount(x) or len(new_views) > MAX_NEW_VIEWS:
                link(out, x, plan)
            else:
                x._view = None
                out._view = (ref(x), x._value.shape, plan, None, None)
                new_views.append(ref(out))
            return _checked_copy(op, out, kwargs.get("copy")) if kwargs else out
        return of_cell(x, *args, **kwargs)

    def of_cell(x: Any, *args: Any, **kwargs: Any) -> Any:
        """Do the same for tensors of a class of their own, as distributed ones are."""
        kind = getattr(x, "_vtype", None)
        if active_modes or kwargs or kind is None or type(x) is not kind.cell or float in map(type, args):
            return general(x, *args, **kwargs)
        key = (kind, None if shape_free else x._value.shape, args)
        try:
            plan = seen.get(key) or remember(key, x, args, kwargs)
        except TypeError:
            return general(x, *args)
        if plan is None or plan.run is None:
            return general(x, *args)
        out = kind.cell()
        try:
            out._value = plan.run(x._value)
        except Exception as error:
            fail(plan, (x,), dict(plan.attrs), error)
        out._vtype = plan.out
        out._node = None
        if x._node is not None:
            engine.record(plan, (x,), out)
        if view:
            link(out, x, plan)
        return out

    return call


def _with_copy_checked(op: Op[...]) -> Callable[..., Any]:
    """Return the path for any operands of a view op, whose ``copy`` says whether a copy must or may come."""
    general = _general(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        out = general(*args, **kwargs)
        return _checked_copy(op, out, kwargs.get("copy")) if kwargs else out

    return call


def _memo(op: Op[...], seen: dict[Any, Plan]) -> Callable[[Any, Tensor, Any, Any], Plan | None]:
    """Return what plans a call of one tensor for ``seen``; it returns None where no memo may serve it."""
    plan_for = planner(op, new_cache())

    def remember(key: Any, x: Tensor, args: Any, kwargs: Any) -> Plan | None:
        try:
            operands, attrs = op.arguments(x, *args, **kwargs)
        except Exception as error:
            operands, attrs = renamed_or_error(op, (x, *args), kwargs, error)
        if op.unsqueezes and not x.shape:
            return None
        if len(operands) != 1 or operands[0] is not x or x._vtype.materialized is not x._vtype:
            return None
        try:
            plan = plan_for((x._vtype,), (x._value,), attrs)
        except Exception as error:
            raise error_of_call(op, (x, *args), kwargs, error) from None
        if plan.lift is not None or kernel_preference.active():
            return None
        if not any(map(has_own_equality, (*args, *kwargs.values()))):
            if len(seen) >= MAX_PLANS:
                seen.clear()
            seen[key] = plan
        return plan

    return remember


def _checked_copy(op: Op[...], out: Any, copy: bool | None) -> Any:
    """Return the result of a view op, as a copy or as a view where that was asked for."""
    if copy:
        return unlink(out)
    if copy is False and view_of(out) is None:
        raise ValueError(
            f"{op.name}: the elements do not lie in the order that the result has, which takes a copy;"
            f" drop copy=False."
        )
    return out


def _general(op: Op[...]) -> Callable[..., Any]:
    run = single_runner(op, new_cache())
    return _with_call_errors(op, _unsqueezing(run) if op.unsqueezes else run)


def _with_call_errors(op: Op[...], run: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of an op whose operands ``run`` takes; misuse raises an error of its arguments."""
    arguments = op.arguments

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            operands, attrs = arguments(*args, **kwargs)
        except Exception as error:
            operands, attrs = renamed_or_error(op, args, kwargs, error)
        try:
            return run(operands, attrs)
        except Exception as error:
            misuse = error_of_call(op, args, kwargs, error)
            if misuse is error:
                raise
            raise misuse from None

    return call


def _unsqueezing(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``run`` of one operand, which sees a single number as a line of one element along axis 0."""
    reshape = table.function("reshape")

    def run_on_line(operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        (x,) = operands
        if isinstance(x, Tensor) and is_single(x, attrs["axis"]):
            return reshape(run((reshape(x, (1,)),), {**attrs, "axis": 0}), ())
        return run(operands, attrs)

    return run_on_line


def _fused_runner(kind: ValueType) -> Any:
    """Return what runs fused functions on values of a type: None for most devices."""
    if is_value_mode(kind.device.type) or fused_kernels(kind.device.type) is None:
        return None
    return _call_fused.load()


table.bind(function, runner, dynamic_slice, run_in_place, link_by_key, unlink)
fused_function.bind(_fused_runner)
methods.attach()

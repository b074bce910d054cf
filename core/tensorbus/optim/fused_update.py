"""``fused_update``: a function of an update as one node of a captured program, instead of one for each op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from inspect import signature
from typing import Any, Final

from ..backend_interface.graph import Node
from ..dispatch.modes import apply_modes
from ..dispatch.plan import new_cache
from ..dtypes.definition import DType
from ..eager_fusion.fused_function import compile_program, is_small, programs_on
from ..errors import OutOfMemoryError
from ..ops.definition import Op, Spec
from ..ops.fused_update import fused_update_op
from ..tensor.tensor import Tensor
from ..tracing.active_modes import active_modes
from ..tracing.active_tracer import active_tracer

Update = Callable[..., tuple[Tensor, ...]]
_batches: Final[ContextVar[UpdateBatch | None]] = ContextVar("batch", default=None)
_programs: Final[dict[Any, Any]] = new_cache()
"""The programs of batches, by what these are: False where there is none."""
_MAX_PROGRAMS: Final = 64


class UpdateBatch:
    """The fused updates of a step, which run together when it ends: one launch where a device has that.

    Inside of ``with`` they return tensors without values, which may be stored and nothing else.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[Op[...], tuple[Any, ...], tuple[Tensor, ...]]] = []

    def __enter__(self) -> UpdateBatch:
        self._token = _batches.set(self)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        _batches.reset(self._token)
        if error is None:
            self._run()

    def defer(self, op: Op[...], operands: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """Return the results of an update to come."""
        vtype = operands[0]._vtype
        outs = []
        for _ in op.results:
            out = Tensor()
            out._vtype, out._node = vtype, None
            outs.append(out)
        self._calls.append((op, operands, tuple(outs)))
        return tuple(outs)

    def _run(self) -> None:
        if not self._calls:
            return
        inputs, values, key, layout = self._inputs()
        run: Any = _programs.get(key)
        if run is None:
            if len(_programs) >= _MAX_PROGRAMS:
                _programs.clear()
            run = _programs[key] = self._program(inputs, layout) or False
        if run is False:
            for op, operands, outs in self._calls:
                assert op.decompose is not None
                for out, new in zip(outs, op.decompose(*operands), strict=True):
                    out._value = new._value
            return
        device = self._calls[0][1][0].device
        try:
            results = iter(run(values))
        except MemoryError as error:
            raise OutOfMemoryError(
                f"step: {device} has no memory left for the next values of {len(self._calls)} parameters."
                f" {error}"
            ) from error
        for _, _, outs in self._calls:
            for out in outs:
                out._value = next(results)

    def _inputs(self) -> tuple[list[Any], list[Any], tuple[Any, ...], list[tuple[int, ...]]]:
        """Return what a program of all calls takes, the values, its key, and which of them are each call's.

        A number is one value for all calls that have it in the same place; it comes anew with each step.
        """
        inputs: list[Any] = []
        values: list[Any] = []
        known: dict[Any, dict[int, int]] = {}
        key: list[Any] = []
        layout: list[tuple[int, ...]] = []
        for op, operands, _ in self._calls:
            first = operands[0]
            kind, shape = first._vtype, first._value.shape
            key += (op.name, kind, shape)
            numbers = tuple([None if isinstance(x, Tensor) else x or repr(x) for x in operands])
            of_numbers = known.setdefault((op.name, kind, numbers), {})
            places = []
            for at, x in enumerate(operands):
                place = len(values)
                if isinstance(x, Tensor):
                    inputs.append(x)
                    values.append(x._value)
                    key.append(None if x._value.shape == shape else ())
                else:
                    place = of_numbers.setdefault(at, place)
                    if place == len(values):
                        inputs.append(kind.dtype)
                        values.append(x)
                    key.append(place)
                places.append(place)
            layout.append(tuple(places))
        return inputs, values, tuple(key), layout

    def _program(self, inputs: Sequence[Tensor | DType], layout: Sequence[tuple[int, ...]]) -> Any:
        """Return what takes the operands' values to the results'; None where the device makes none of it.

        A dtype among ``inputs`` is that of a number.
        """
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        device = tensors[0].device
        maker = programs_on(device)
        if maker is None or not all(maker.keeps(op.name, device.index) for op, _, _ in self._calls):
            return None
        if any(x.device != device for x in tensors) or is_small(device, [x._value for x in tensors], sum):
            return None
        nodes = tuple([
            Node(op="input", attrs={"index": k}, spec=Spec(x.shape, x.dtype)) if isinstance(x, Tensor)
            else Node(op="input", attrs={"index": k, "scalar": True}, spec=Spec((), x))
            for k, x in enumerate(inputs)
        ])  # fmt: skip
        outputs: list[Node] = []
        replaces: dict[int, int] = {}
        for (op, _, outs), places in zip(self._calls, layout, strict=True):
            spec = nodes[places[0]].spec
            for k, result in enumerate(op.results):  # which takes the place of what it is called after
                if result in op.operands:
                    replaces[len(outputs) + k] = places[op.operands.index(result)]
            whole = Node(op=op.name, inputs=tuple([nodes[k] for k in places]), spec=spec)
            outputs += [
                Node(op="result", inputs=(whole,), attrs={"index": k}, spec=spec) for k in range(len(outs))
            ]
        return compile_program("step", nodes, outputs, device, replaces=replaces)


def fused_update(*results: str) -> Callable[[Update], Update]:
    """Return the decorator of a function of tensors and numbers that gives a tuple of ``results``.

    The function may do nothing but elementwise ops on its operands, and gives tensors of their shape and
    dtype. A capture sees one op and does not look into it, so that it is for functions of this package: it
    may depend on nothing that can change. It runs as it is where nothing is captured, and for tensors of
    several shapes (beside ``()``) or dtypes.
    """

    def decorate(function: Update) -> Update:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        op = fused_update_op(name, tuple(signature(function).parameters), results, function)

        @wraps(function)
        def call(*operands: Any) -> tuple[Tensor, ...]:
            if active_modes and active_tracer() is not None and _is_even(op, operands):
                _, results = apply_modes(op, operands, {})
                if results is not NotImplemented:
                    return tuple(results)
            batch = _batches.get()
            if batch is not None and not active_modes and _is_even(op, operands):
                return batch.defer(op, operands)
            return function(*operands)

        return call

    return decorate


def _is_even(op: Op[...], operands: tuple[Any, ...]) -> bool:
    """Return whether all tensors have the shape of the first, or ``()``, and its dtype, a floating one."""
    first = operands[0]
    shape, kind = first._value.shape, first._vtype
    dtype = kind.dtype
    if dtype not in op.dtypes:
        return False
    for x in operands:
        if type(x) is not float and isinstance(x, Tensor):
            if x._vtype is not kind and x._vtype.dtype is not dtype:
                return False
            if (own := x._value.shape) != shape and own != ():
                return False
    return True

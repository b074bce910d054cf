"""Modules as functions of their tensors: ``functional_call``, and ``stack_module_state`` for ensembles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import ArgumentError, ShapeError
from ..ops.movement.movement import stack
from ..system.late_binding import LateFunction
from ..tensor.grad_mode import no_grad
from ..tensor.tensor import Tensor

_functional_call: Final = LateFunction("functional_call")


def functional_call(
    module: Any, parameters_and_buffers: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None, kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """Return what ``module`` makes of ``args`` with these tensors in the place of its own of the same names.

    The tensors are a dict by name, or several of them, for parameters and for buffers say. ``args`` is a
    tuple, or a single argument. ``strict`` asks for all parameters and buffers. For the rest, errors
    included, see ``nn.utils.functional_call``.

    >>> import tensorbus as tb
    >>> linear = tb.nn.Linear(2, 1)
    >>> twos = {"weight": tb.full((1, 2), 2.0), "bias": tb.zeros(1)}
    >>> tb.func.functional_call(linear, twos, tb.ones(2)).tolist()
    [4.0]
    """
    tensors: dict[str, Tensor] = {}
    several = (
        (parameters_and_buffers,) if isinstance(parameters_and_buffers, Mapping) else parameters_and_buffers
    )
    for each in several:
        twice = sorted(tensors.keys() & each.keys())
        if twice:
            raise ArgumentError(f"functional_call: {twice[0]!r} is in more than one of the dicts.")
        tensors.update(each)
    if strict:
        own = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
        lacking = [name for name in own if name not in tensors]
        if lacking:
            raise ArgumentError(
                f"functional_call: strict=True, and there is no tensor for {', '.join(lacking)}."
            )
    return _functional_call(module, tensors, args, kwargs, tie_weights=tie_weights)


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the parameters and the buffers of several modules of one class, stacked along axis 0, by name.

    ``vmap`` over them and ``functional_call`` run all the modules at once. Parameters that require a gradient
    do so stacked, as leaves of their own.

    Raises ``ArgumentError`` for no modules, and for modules that differ in class, names or training, and
    ``ShapeError`` where they differ in shapes.

    >>> import tensorbus as tb
    >>> params, buffers = tb.func.stack_module_state([tb.nn.Linear(3, 2) for _ in range(4)])
    >>> params["weight"].shape
    (4, 2, 3)
    """
    modules = list(models)
    if not modules:
        raise ArgumentError("stack_module_state: at least one module is needed, got none.")
    kinds = {type(m) for m in modules}
    if len(kinds) > 1:
        names = ", ".join(sorted(k.__name__ for k in kinds))
        raise ArgumentError(f"stack_module_state: all modules must be of one class, got {names}.")
    if len({m.training for m in modules}) > 1:
        raise ArgumentError(
            "stack_module_state: some modules are in training and some in evaluation; call train() or eval()"
            " on all of them."
        )
    return (
        _stacked([dict(m.named_parameters()) for m in modules], True),
        _stacked([dict(m.named_buffers()) for m in modules], False),
    )


def _stacked(states: Sequence[Mapping[str, Tensor]], parameters: bool) -> dict[str, Tensor]:
    result = {}
    for name, first in states[0].items():
        if any(name not in state for state in states) or any(len(s) != len(states[0]) for s in states):
            raise ArgumentError(f"stack_module_state: the modules differ in their tensors, at {name!r}.")
        parts = [state[name] for state in states]
        if len({x.shape for x in parts}) > 1:
            got = ", ".join(sorted({str(x.shape) for x in parts}))
            raise ShapeError(f"stack_module_state: {name!r} has the shapes {got}; all must be equal.")
        with no_grad():
            stacked = stack(parts)
        result[name] = stacked.requires_grad_() if parameters and first.requires_grad else stacked
    return result

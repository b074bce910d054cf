"""Initialization of optimizer state before the first step is captured.

The program of the first step is then that of all steps. No user can see the difference: where user code may
read the state of an optimizer nothing is initialized, and what took no step is undone.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from ...autograd.engine import no_grad
from ...optim.optimizer import Optimizer, State
from ...tensor.tensor import Leaf, Tensor
from ...tracing.mutation_counter import CountedDict
from .reachable import ReachableState

_STATE_READERS: Final = frozenset({"state", "state_dict", "first_state", "deepcopy", "dumps"})
"""Names by which code reads the state of optimizers."""


class OptimizerInit:
    """The state created for those optimizers of ``reach`` that had none."""

    def __init__(self, reach: ReachableState) -> None:
        self._initialized: list[tuple[Optimizer, Tensor, dict[str, Any]]] = []
        if _user_reads_state(reach):
            return
        for thing in [tracked.obj for tracked in reach.objects.values()]:
            if isinstance(thing, Optimizer) and not thing.state and id(thing.state) in reach.objects:
                self._initialize(thing)
                reach.inspect_again(thing.state)

    def _initialize(self, optimizer: Optimizer) -> None:
        if not _defines_first_state(type(optimizer)):
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not isinstance(parameter._node, Leaf):
                    continue
                with no_grad():
                    first_state = optimizer.begin(parameter, group)
                state: State = CountedDict(
                    {k: v.detach().clone() if isinstance(v, Tensor) else v for k, v in first_state.items()}
                )
                optimizer.state[parameter] = state
                self._initialized.append((optimizer, parameter, {k: _identity(v) for k, v in state.items()}))

    def undo_unused(self, stepped: Container[int] = ()) -> bool:
        """Remove the state of parameters that took no step; return whether their optimizer did take one.

        ``stepped`` are the ids of the states of optimizers that took a step, and of parameters that did.
        """
        took_step = False
        for optimizer, parameter, was in self._initialized:
            state = optimizer.state.get(parameter, {})
            if state.keys() != was.keys() or not all(_identity(v) is was[k] for k, v in state.items()):
                continue
            if state or id(state) not in stepped:
                del optimizer.state[parameter]
                took_step = took_step or id(optimizer.state) in stepped
        self._initialized = []
        return took_step


def idle_states(reach: ReachableState, stepped: Container[int]) -> set[int]:
    """Return the ids of the states of optimizers that took no step, unless user code may read them."""
    if _user_reads_state(reach):
        return set()
    every = [s.obj for s in reach.objects.values() if isinstance(s.obj, Optimizer)]
    states = {id(o.state) for o in every if type(o).step is Optimizer.step}
    return {state for state in states if state not in stepped}


def _user_reads_state(reach: ReachableState) -> bool:
    """Return whether user code may read the state of optimizers."""
    named = (not _STATE_READERS.isdisjoint((*code.co_names, *code.co_consts)) for code in reach.codes)
    return reach.all_attributes or any(named)


def _identity(x: Any) -> Any:
    return x._value if isinstance(x, Tensor) else x


def _defines_first_state(cls: type[Optimizer]) -> bool:
    """Return whether the class that defines ``update`` defines the first state too: a subclass may differ."""
    owner = next(c for c in cls.__mro__ if "update" in vars(c))
    return owner is not Optimizer and "first_state" in vars(owner)

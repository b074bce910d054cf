"""State that optimizers make at their first step, made before that step is captured.

The program of the first step is then that of all steps. Nobody sees the difference: where code of the user's
may look at the state of an optimizer nothing is made, and what took no step is taken back.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from ...autograd.engine import no_grad
from ...optim.optimizer import Optimizer, State
from ...tensor.tensor import Leaf, Tensor
from .reachable import Reach

_LOOKS: Final = frozenset({"state", "state_dict", "first_state", "deepcopy", "dumps"})
"""The names by which code looks at what optimizers keep."""


class Begun:
    """The state that the optimizers of ``reach`` were given that have none yet."""

    def __init__(self, reach: Reach) -> None:
        self._made: list[tuple[Optimizer, Tensor, dict[str, Any]]] = []
        if _is_looked_at(reach):
            return
        for thing in [seen.thing for seen in reach.seen.values()]:
            if isinstance(thing, Optimizer) and not thing.state and id(thing.state) in reach.seen:
                self._begin(thing)
                reach.look_again(thing.state)

    def _begin(self, optimizer: Optimizer) -> None:
        if not _tells(type(optimizer)):
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not isinstance(parameter._node, Leaf):
                    continue
                with no_grad():
                    made = optimizer.begin(parameter, group)
                state: State = {k: v.detach() if isinstance(v, Tensor) else v for k, v in made.items()}
                optimizer.state[parameter] = state
                self._made.append((optimizer, parameter, {k: _mark(v) for k, v in state.items()}))

    def take_back(self, stepped: Container[int] = ()) -> bool:
        """Take away the state of parameters that took no step; return whether optimizers that did have any.

        ``stepped`` are the states of those, by id.
        """
        found = False
        for optimizer, parameter, was in self._made:
            state = optimizer.state.get(parameter, {})
            if state.keys() == was.keys() and all(_mark(v) is was[k] for k, v in state.items()):
                del optimizer.state[parameter]
                found = found or id(optimizer.state) in stepped
        self._made = []
        return found


def resting(reach: Reach, stepped: Container[int]) -> set[int]:
    """Return the states, by id, of optimizers that took no step, where nobody else looks at them either."""
    if _is_looked_at(reach):
        return set()
    every = [s.thing for s in reach.seen.values() if isinstance(s.thing, Optimizer)]
    states = {id(o.state) for o in every if type(o).step is Optimizer.step}
    return {state for state in states if state not in stepped}


def _is_looked_at(reach: Reach) -> bool:
    """Return whether code of the user's may look at the state of optimizers."""
    named = (not _LOOKS.isdisjoint((*code.co_names, *code.co_consts)) for code in reach.codes)
    return reach.every or any(named)


def _mark(x: Any) -> Any:
    return x._value if isinstance(x, Tensor) else x


def _tells(cls: type[Optimizer]) -> bool:
    """Return whether the class that ``update`` is of tells the first state: a subclass may keep another."""
    owner = next(c for c in cls.__mro__ if "update" in vars(c))
    return owner is not Optimizer and "first_state" in vars(owner)

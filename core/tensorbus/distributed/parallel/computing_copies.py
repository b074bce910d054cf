"""Copies of a module's parameters in the dtype that it computes in, registered while it runs.

``replicate`` hangs on it. A copy is recorded: its gradient comes to the parameter, in that one's dtype.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import deepcopy
from typing import Any, Final

from ...func.checkpoint import add_surroundings
from ...nn.module import Module
from ...nn.parameter import STORED, Parameter
from ...tensor.tensor import Tensor
from .policies import MixedPrecisionPolicy
from .tensor_trees import converted

Place = tuple[Module, str, Parameter, Parameter]
"""Where a parameter is registered: the module, the name, the parameter and its copy."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.running: list[ComputingCopies] = []


_thread: Final = _Thread()


class ComputingCopies:
    """The dtypes of ``policy`` for a module that runs; ``ignored`` parameters stay as they are."""

    def __init__(self, policy: MixedPrecisionPolicy, ignored: Sequence[Tensor]) -> None:
        self.policy = policy
        self._ignored = tuple(ignored)
        self._places: list[Place] = []
        self._depth = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> ComputingCopies:
        """Return what is asked for of a copy of the module, which does not run."""
        return ComputingCopies(self.policy, deepcopy(self._ignored, memo))

    def enter(self, module: Module, args: Any, kwargs: Any) -> Any:
        """Begin a run: register copies; return arguments in their dtype, None as they are."""
        dtype = self.policy.param_dtype
        self._depth += 1
        if self._depth == 1:
            try:
                places = self._copied(module)
            except BaseException:
                self._depth = 0
                raise
            self._places = places
            _register(places, 3)
            _thread.running.append(self)
        if not self.policy.cast_forward_inputs or dtype is None:
            return None
        return converted(args, dtype), converted(kwargs, dtype)

    def leave(self, out: Any) -> Any:
        """End a run: register the parameters again; return results in the dtype that is asked for."""
        if self._depth:
            self._depth -= 1
            if not self._depth:
                _thread.running.remove(self)
                _register(self._places, 2)
                self._places = []
        return converted(out, self.policy.output_dtype)

    def _copied(self, module: Module) -> list[Place]:
        """Return a copy of each parameter, recorded, and all of the places that it stands in."""
        dtype, ignored = self.policy.param_dtype, {id(p) for p in self._ignored}
        copies: dict[int, Parameter] = {}
        places: list[Place] = []
        for owner in module.modules() if dtype is not None else ():
            for name, p in owner._parameters.items():
                if p is None or id(p) in ignored or not p.dtype.is_floating or p.dtype is dtype:
                    continue
                if id(p) not in copies:
                    recorded = p.to(dtype)
                    copies[id(p)] = copy = Parameter(recorded.detach(), requires_grad=False)
                    copy._node = recorded._node
                    vars(copy)[STORED] = p
                places.append((owner, name, p, copies[id(p)]))
        return places

    def again(self) -> Callable[[], AbstractContextManager[None]]:
        """Return what registers the copies of this run once more, for a block of ``checkpoint`` in it."""
        places = [*self._places]

        @contextmanager
        def registered() -> Iterator[None]:
            _register(places, 3)
            try:
                yield
            finally:
                _register(places, 2)

        return registered


def _register(places: Sequence[Place], which: int) -> None:
    for place in places:
        place[0]._parameters[place[1]] = place[which]  # type: ignore[assignment]


def _run_again() -> Callable[[], AbstractContextManager[None]]:
    contexts = [copies.again() for copies in _thread.running]

    @contextmanager
    def registered() -> Iterator[None]:
        with ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context())
            yield

    return registered


add_surroundings(_run_again)

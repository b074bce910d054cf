"""User functions that run before and after the steps of one optimizer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

from ..errors import ArgumentError
from ..tensor.leaf import HookHandle
from ..tracing.mutation_counter import bump_mutation_counter

StepHook = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_order: Final = count()


def around(optimizer: Any, kind: str, hook: StepHook) -> HookHandle:
    """Call ``hook`` ``"before"`` or ``"after"`` each step of ``optimizer``, whichever class wrote ``step``.

    The first hook puts a ``step`` of its own into the optimizer; others have nothing to ask at each step.
    """
    own = vars(optimizer)
    if "_step_hooks" not in own:
        own["_step_hooks"] = {"before": {}, "after": {}}
        own["step"] = partial(_step, optimizer, optimizer.step)
    hooks: dict[int, StepHook] = own["_step_hooks"][kind]
    key = next(_order)
    hooks[key] = hook
    bump_mutation_counter()
    return HookHandle(hooks, key)


def _step(optimizer: Any, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run ``step`` with the hooks around it. Raises ``ArgumentError`` for what one returns wrongly."""
    hooks, args = optimizer._step_hooks, (optimizer, *args)
    for hook in list(hooks["before"].values()):
        changed = hook(optimizer, args, kwargs)
        if changed is not None:
            if not isinstance(changed, tuple) or len(changed) != 2:
                raise ArgumentError(
                    f"a step pre-hook of {type(optimizer).__name__} returns None or (args, kwargs), got"
                    f" {changed!r}."
                )
            args, kwargs = changed
    out = step(*args[1:], **kwargs)
    for hook in list(hooks["after"].values()):
        hook(optimizer, args, kwargs)
    return out

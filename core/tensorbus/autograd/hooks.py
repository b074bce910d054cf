"""Hooks on gradients: where they are registered, and what they do to a gradient on its way back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import AutogradError
from ..tensor.leaf import (
    GradientReceiver,
    HookHandle,
    Leaf,
    PostAccumulateHook,
    ReceiverHook,
    add_hook,
)
from ..tensor.tensor import Tensor
from .node_order import order


def register_hook(x: Tensor, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Call ``hook`` with the gradient of ``x`` whenever it is computed; a tensor that it returns replaces it.

    Raises ``AutogradError`` for a tensor that requires no gradient.
    """
    if x._node is None:
        raise AutogradError("register_hook: this tensor requires no gradient; call requires_grad_() first.")
    return add_hook(x._node, next(order), hook)


def register_post_accumulate_grad_hook(x: Tensor, hook: Callable[[Tensor], None]) -> HookHandle:
    """Call ``hook`` with ``x``, a leaf, whenever ``backward`` has added to its gradient.

    Raises ``AutogradError`` for any other tensor.
    """
    if not isinstance(x._node, Leaf):
        raise AutogradError(
            "register_post_accumulate_grad_hook: gradients gather at leaves that require one; for a"
            " result use register_hook(), for another tensor call requires_grad_() first."
        )
    return add_hook(x._node, next(order), PostAccumulateHook(x, hook))


def add_receiver(x: Tensor, receiver: GradientReceiver, place: int) -> HookHandle:
    """Let ``receiver`` take the gradients of ``x``, a leaf, as those of its number ``place``."""
    assert isinstance(x._node, Leaf)
    return add_hook(x._node, next(order), ReceiverHook(receiver, place))


def finished(receivers: Iterable[GradientReceiver]) -> list[Any]:
    """Let receivers do what is left; return the leaves whose gradients are there then."""
    left = [*receivers]
    changed: list[Tensor] = []
    try:
        while left:
            changed += left.pop(0).finish()
    except BaseException:
        drop(left)
        raise
    return [x._node for x in changed]


def drop(receivers: Iterable[GradientReceiver]) -> None:
    """Let receivers forget the gradients of a ``backward`` that has failed."""
    for receiver in receivers:
        receiver.drop()


def gradient_after_hooks(node: Any, g: Any) -> Any:
    """Return the gradient as the hooks of a tensor leave it."""
    for hook in list(getattr(node, "hooks", {}).values()):
        changed = hook(g)
        if changed is None:
            continue
        if not isinstance(changed, Tensor) or changed.shape != g.shape:
            raise AutogradError(
                f"a hook returns None or a gradient of shape {g.shape}, got"
                f" {getattr(changed, 'shape', type(changed).__name__)}."
            )
        g = changed
    return g

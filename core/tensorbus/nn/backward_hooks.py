"""Hooks that see the gradients of what came out of a module and of what went in.

Gradients arrive one by one while ``backward`` walks; a hook is called when the last of them is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import AutogradError
from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from .module import Module


Hook = Callable[..., Any]


class Watch:
    """The gradients of one call of a module: ``back`` is called when all are there, ``left`` before them."""

    __slots__ = ("_back", "_inputs", "_left", "_module", "_outputs", "_wanted")

    def __init__(self, module: Module, back: Sequence[Hook], left: Sequence[Hook]) -> None:
        self._module = module
        self._back, self._left = back, left
        self._inputs: list[Tensor | None] = []
        self._outputs: list[Tensor | None] = []
        self._wanted = 0

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the positional arguments with tensors replaced by ones that only this module uses."""
        watched: list[Any] = []
        for arg in args:
            if isinstance(arg, Tensor):
                place = len(self._inputs)
                self._inputs.append(None)
                if arg.requires_grad:
                    arg = arg * 1
                    arg.register_hook(self._arrived(place))
                    self._wanted += 1
            watched.append(arg)
        return tuple(watched)

    def outputs(self, out: Any) -> Any:
        """Return the result of the module, watched."""
        if isinstance(out, Tensor):
            return self._output(out)
        return type(out)(map(self._output, out)) if type(out) in (tuple, list) else out

    def _output(self, out: Any) -> Any:
        if isinstance(out, Tensor):
            place = len(self._outputs)
            self._outputs.append(None)
            if out.requires_grad:
                out = out * 1
                out.register_hook(self._leaving(place))
        return out

    def _leaving(self, place: int) -> Callable[[Tensor], Tensor | None]:
        def keep(g: Tensor) -> Tensor | None:
            self._outputs[place] = g
            if any(h is None for h in self._outputs):
                return None
            changed = self._call_left()
            if not self._wanted:
                self._call(None)
            return changed

        return keep

    def _call_left(self) -> Tensor | None:
        """Run the hooks that come first; the gradient of the only result may be replaced."""
        changed = False
        for hook in self._left:
            returned = hook(self._module, tuple(self._outputs))
            if returned is None:
                continue
            grads = returned if isinstance(returned, tuple) else (returned,)
            if len(self._outputs) != 1 or len(grads) != 1:
                raise AutogradError(
                    f"a full backward pre-hook of {type(self._module).__name__} returned {len(grads)}"
                    f" gradient(s) for {len(self._outputs)} result(s); the gradient of a single result can be"
                    " replaced, others cannot: return None."
                )
            self._outputs = list(grads)
            changed = True
        return self._outputs[0] if changed else None

    def _arrived(self, place: int) -> Callable[[Tensor], Tensor | None]:
        def keep(g: Tensor) -> Tensor | None:
            self._inputs[place] = g
            self._wanted -= 1
            return None if self._wanted else self._call(place)

        return keep

    def _call(self, place: int | None) -> Tensor | None:
        """Run the hooks; the gradient of the only input may be replaced."""
        changed = False
        for hook in self._back:
            returned = hook(self._module, tuple(self._inputs), tuple(self._outputs))
            if returned is None:
                continue
            grads = returned if isinstance(returned, tuple) else (returned,)
            if place is None or len(self._inputs) != 1 or len(grads) != 1:
                raise AutogradError(
                    f"a full backward hook of {type(self._module).__name__} returned {len(grads)} gradient(s)"
                    f" for {len(self._inputs)} input(s); the gradient of a single input can be replaced,"
                    " others cannot: return None."
                )
            self._inputs = list(grads)
            changed = True
        return self._inputs[0] if changed else None

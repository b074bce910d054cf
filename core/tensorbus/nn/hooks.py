"""Hooks of modules: functions that see, and may change, what goes into a module and what comes out.

Kept apart from ``Module``, which calls them only where there are some. Those of every module run before a
module's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..autograd.engine import is_grad_enabled
from ..tracing.mutation_counter import bump_mutation_counter
from .backward_hooks import Watch

if TYPE_CHECKING:
    from .module import Module

Hook = Callable[..., Any]


class RemovableHandle:
    """Handle of a registered hook: ``remove()`` takes it away again, as does the end of ``with``."""

    __slots__ = ("_hooks", "_key")

    def __init__(self, hooks: dict[object, Any]) -> None:
        self._hooks = hooks
        self._key = object()

    def add(self, hook: Any, prepend: bool) -> RemovableHandle:
        """Put the hook last, or first."""
        rest = dict(self._hooks) if prepend else {}
        if prepend:
            self._hooks.clear()
        self._hooks[self._key] = hook
        self._hooks.update(rest)
        bump_mutation_counter()
        return self

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        self._hooks.pop(self._key, None)
        bump_mutation_counter()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


@dataclass(frozen=True, slots=True)
class Registered:
    """A hook, and what it asked for. ``kind`` is the field of ``Hooks`` that one of every module is like."""

    function: Hook
    with_kwargs: bool = False
    always_call: bool = False
    kind: str = ""


@dataclass(slots=True)
class Hooks:
    """The hooks of one module, in the order in which they run.

    ``before`` and ``after`` its ``forward``; when gradients have gone ``back`` through it, and when they have
    ``left`` what came after it. ``compiled`` is what runs the module with all of them, if it is compiled.
    """

    before: dict[object, Registered] = field(default_factory=dict)
    after: dict[object, Registered] = field(default_factory=dict)
    back: dict[object, Registered] = field(default_factory=dict)
    left: dict[object, Registered] = field(default_factory=dict)
    compiled: Callable[..., Any] | None = None

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.back or self.left or self.compiled)


EVERYWHERE: Final[dict[object, Registered]] = {}
"""The hooks of every module, of all ``kind``s in one dict: asking whether there are any costs nothing."""


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, args)`` before ``forward`` of every module; what it returns replaces them."""
    return RemovableHandle(EVERYWHERE).add(Registered(hook, kind="before"), False)


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call ``hook(module, args[, kwargs], out)`` after ``forward`` of every module.

    What it returns replaces the result. With ``always_call`` it is called where something raised, too.

    >>> import tensorbus as tb
    >>> seen = []
    >>> with tb.nn.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__)):
    ...     _ = tb.nn.Sequential(tb.nn.ReLU(), tb.nn.Tanh())(tb.ones(2))
    >>> seen
    ['ReLU', 'Tanh', 'Sequential']
    """
    return RemovableHandle(EVERYWHERE).add(Registered(hook, with_kwargs, always_call, "after"), False)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` of every module when both are known."""
    return RemovableHandle(EVERYWHERE).add(Registered(hook, kind="back"), False)


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, grad_output)`` of every module before gradients go back through it."""
    return RemovableHandle(EVERYWHERE).add(Registered(hook, kind="left"), False)


def _all(kind: str, own: dict[object, Registered]) -> dict[object, Registered]:
    """Return the hooks of a kind in the order in which they run."""
    return {key: hook for key, hook in EVERYWHERE.items() if hook.kind == kind} | own


def call(module: Module, hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``forward`` with the hooks around it.

    A hook before may return new arguments: with ``with_kwargs`` a pair of them, else positional ones, which
    need no tuple where there is one. A hook after may return a new result. Hooks that are called always also
    run where something raised, and what they raise then is dropped in favour of it.
    """
    out: Any = None
    done: set[object] = set()
    try:
        for hook in _all("before", hooks.before).values():
            changed = hook.function(module, args, kwargs) if hook.with_kwargs else hook.function(module, args)
            if changed is None:
                continue
            if hook.with_kwargs:
                args, kwargs = _pair(module, changed)
            else:
                args = changed if isinstance(changed, tuple) else (changed,)
        back, left = ([h.function for h in _all(k, getattr(hooks, k)).values()] for k in ("back", "left"))
        watch = Watch(module, back, left) if (back or left) and is_grad_enabled() else None
        args = args if watch is None else watch.inputs(args)
        out = module.forward(*args, **kwargs)
        for key, hook in _all("after", hooks.after).items():
            done.add(key)
            out = _after(module, hook, args, kwargs, out)
        out = out if watch is None else watch.outputs(out)
    except Exception as error:
        for key, hook in _all("after", hooks.after).items():
            if hook.always_call and key not in done:
                try:
                    _after(module, hook, args, kwargs, out)
                except Exception as second:  # the first error is the one to see, with this beside it
                    error.add_note(f"A forward hook that is always called failed as well: {second!r}")
        raise
    return out


def _after(module: Module, hook: Registered, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    arguments = (module, args, kwargs, out) if hook.with_kwargs else (module, args, out)
    changed = hook.function(*arguments)
    return out if changed is None else changed


def _pair(module: Module, changed: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not (isinstance(changed, tuple) and len(changed) == 2 and isinstance(changed[1], dict)):
        raise TypeError(
            f"a forward pre-hook of {type(module).__name__} with kwargs returns None or (args, kwargs), got"
            f" {type(changed).__name__}."
        )
    args, kwargs = changed
    return (args if isinstance(args, tuple) else (args,)), kwargs

"""``compile``: the arguments that users give, their checks, and what becomes of what they name."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ..errors import ArgumentError, suggest
from ..ops.call_errors import with_form
from .compiled_function import CompiledFunction, compile_callable
from .compiled_module import CompiledModule

MODES: Final = ("default", "reduce-overhead", "max-autotune")
_DEFAULTS: Final[dict[str, Any]] = {
    "fullgraph": False, "dynamic": None, "mode": "default", "compare_eager": None,
}  # fmt: skip


@with_form
def compile(
    fn: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, mode: str | None = "default",
    compare_eager: bool | None = None, options: dict[str, Any] | None = None, backend: None = None,
) -> Any:  # fmt: skip
    """Return ``fn``, a function, a method or a module, compiled for the devices of its tensors.

    Of a module it makes a module that shares its state; only a call is another.
    It never changes what a program means. A call is captured once: when all that it did can be done again by
    one program, calls that find everything as it was (arguments, globals, attributes, modes) run that.
    Otherwise Python runs ``fn`` at each call, and what it computes between two places where it needs numbers
    is compiled. ``tb.compile.explain(fn)(*args)`` shows what became of a function, and why.

    ``fullgraph``: raise ``CaptureError``, with the line, where Python asks for numbers. ``dynamic``: True
    makes lengths that differ between calls part of one program; None does so once they have differed, as it
    does with numbers that are arguments.
    ``mode``: for ``"max-autotune"`` programs are run in several ways when they are compiled, and the fastest
    is kept, on disk too; for ``"reduce-overhead"`` a device may keep memory between runs to begin them
    sooner. ``explain`` says what came of it, which on some devices is nothing.
    ``compare_eager``: whether a few calls are timed as Python runs them, which then runs what is faster so;
    None: unless ``TENSORBUS_COMPARE_EAGER=0`` says otherwise.
    ``options`` are for those of single devices, which have none yet, and there is no ``backend`` to choose:
    each device compiles for itself.
    Raises ``ArgumentError`` for another mode, a backend, or what cannot be called.

    >>> import tensorbus as tb
    >>> @tb.compile
    ... def norm(x):
    ...     return (x * x).sum().sqrt()
    >>> norm(tb.asarray([3.0, 4.0])).item()
    5.0
    """
    if backend is not None:
        raise ArgumentError(
            f"compile: there is no backend to choose, got {backend!r}: each device compiles what is"
            " computed on it; leave the argument out."
        )
    mode = MODES[0] if mode is None else mode
    if mode not in MODES:
        valid = ", ".join(MODES)
        raise ArgumentError(f"compile: the mode is one of {valid}, got {mode!r}.{suggest(str(mode), MODES)}")
    if options is not None and not isinstance(options, dict):
        raise ArgumentError(f"compile: options is a dict or None, got {type(options).__name__}.")
    if options:
        raise ArgumentError(
            f"compile: no device has options of its own yet, got {', '.join(map(repr, options))}."
        )
    if type(fullgraph) is not bool or not (dynamic is None or type(dynamic) is bool):
        raise ArgumentError(
            f"compile: fullgraph is True or False and dynamic True, False or None, got {fullgraph!r} and"
            f" {dynamic!r}."
        )
    if not (compare_eager is None or type(compare_eager) is bool):
        raise ArgumentError(f"compile: compare_eager is True, False or None, got {compare_eager!r}.")
    requested: dict[str, Any] = {
        "fullgraph": fullgraph, "dynamic": dynamic, "mode": mode, "compare_eager": compare_eager,
    }  # fmt: skip
    if fn is None:
        return partial(compile, **requested)
    if isinstance(fn, (CompiledFunction, CompiledModule)):
        compiled: CompiledFunction[..., Any] = fn if isinstance(fn, CompiledFunction) else type(fn)._compiled
        return fn if requested in (_DEFAULTS, compiled.options) else compile(compiled.function, **requested)
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(compile(fn.__func__, **requested))
    if not callable(fn):
        raise ArgumentError(f"compile: a function, a method or a module is needed, got {type(fn).__name__}.")
    return compile_callable(fn, **requested)

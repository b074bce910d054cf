"""A captured call that can be run again: its guards, its program and the generated code around both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from ...devices.device import Device
from ...tracing.sym_int import ShapeEnv
from ..guards.guard import Guard, failing_guards
from ..programs.compiled_program import CompiledProgram, PreparedRun
from ..programs.multi_device import MultiDeviceProgram
from ..programs.program_cache import ShapeSpecializations
from .eager_comparison import EagerComparison

T = TypeVar("T")

GUARD_MISS: Final = object()
"""The result of a cache entry whose guards do not hold."""
FALL_BACK: Final = object()
"""The result of a cache entry that leaves this call to Python, and has changed nothing.

Its program met values for which an op is not defined: Python then raises the error on the right line. Any
other error of a program is the device's, and is raised. Or there is no program for these sizes yet.
"""


@dataclass(slots=True, kw_only=True, eq=False)
class CacheEntry:
    """A captured call.

    ``run(args, kwargs)``, generated code, first checks the guards: see ``guard_codegen.emit_head``. It
    returns the call's result, ``GUARD_MISS`` or ``FALL_BACK``. ``guard_source`` is the source of a function
    that checks the guards and does nothing else, ``eager_head`` that of one which checks only arguments,
    modes and the mutation counter: for calls that Python runs anyway.
    ``has_history``: results may be differentiated. ``comparison`` compares calls with Python's.
    """

    run: Any
    guards: tuple[Guard, ...]
    prepared: PreparedRun | None
    source: str
    scope: dict[str, Any]
    shape_env: ShapeEnv
    guard_source: str
    eager_head: str
    has_history: bool
    comparison: EagerComparison | None = None
    _checks: Any = None

    def compare(self, devices: Sequence[Device], decided: Callable[[bool], object]) -> None:
        """Let some of the next calls go Python's way and time both; ``decided`` is told if Python wins."""
        replay = self.run

        def decide(eager_wins: bool) -> None:
            self.run = self._left_to_python() if eager_wins else replay
            decided(eager_wins)

        comparison = self.comparison = EagerComparison(devices, self.has_history, decide)
        after_eager = False
        left: Callable[[tuple[Any, ...], dict[str, Any]], Any] | None = None

        def is_of_this_entry(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
            """Return whether all guards hold; calls of others are told by the generated code of the first."""
            nonlocal left
            left = left or self._left_to_python()
            return left(args, kwargs) is FALL_BACK and self.holds(args, kwargs)

        def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            nonlocal after_eager
            is_eager = comparison.begin()
            if is_eager is None:
                return self.run(args, kwargs) if self.run is not run else replay(args, kwargs)
            if is_eager:
                if is_of_this_entry(args, kwargs):
                    after_eager = True
                    return FALL_BACK
                comparison.abandon()
                return GUARD_MISS
            try:
                comparison.start()
                result = replay(args, kwargs)
            except BaseException:
                comparison.abandon()
                raise
            if result is GUARD_MISS:
                comparison.abandon()
                if after_eager:
                    comparison.keep_program()
            elif result is not FALL_BACK:
                comparison.finish()
                after_eager = False
            return result

        self.run = run

    def _left_to_python(self) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        """Return what finds the calls of this entry, as cheaply as may be, for Python to run them."""
        scope = {**self.scope, "holds": self.holds}
        exec(compile(self.eager_head, "<eager>", "exec"), scope)
        left: Callable[[tuple[Any, ...], dict[str, Any]], Any] = scope["left_to_python"]
        return left

    def holds(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether all guards hold.

        As training in Python moves the mutation counter at each call, the check is compiled, once.
        """
        if self._checks is None:
            scope = {**self.scope}
            exec(compile(self.guard_source, "<guards>", "exec"), scope)
            self._checks = scope["replay"]
        return self._checks(args, kwargs) is not GUARD_MISS

    def run_in_python(self, function: Callable[[], T]) -> T:
        """Return ``function()``, which Python runs in the place of this entry."""
        late = self.scope["late"]
        run = partial(self._run_in_python, function)
        return run() if late is None else late.run_in_python(run)

    def _run_in_python(self, function: Callable[[], T]) -> T:
        """Return ``function()``; how long it takes counts for sizes without a program."""
        if self.comparison is not None and self.comparison.is_measuring():
            return self.comparison.run_in_python(function)
        program = self.prepared.program if self.prepared is not None else None
        return program.run(function) if isinstance(program, ShapeSpecializations) else function()

    def first_failing_guard(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Guard | None:
        """Return the first guard that does not hold for these arguments."""
        return next(
            (guard for guard, _ in failing_guards(self.guards, self._guard_scope(args, kwargs))), None
        )

    def changed_locations(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[tuple[int | str, Any]]:
        """Return the locations of guarded numbers that have changed (see ``reachable.location_of``)."""
        guards = [guard for guard in self.guards if guard.locations or guard.binds]
        failing = failing_guards(guards, self._guard_scope(args, kwargs))
        return {place for guard, there in failing if there for place in guard.locations}

    def programs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[CompiledProgram]:
        """Return the programs that a call with these arguments runs, for which the guards hold."""
        if self.prepared is None:
            return []
        program = self.prepared.program
        if isinstance(program, MultiDeviceProgram):
            return [*program.programs]
        scope = self._guard_scope(args, kwargs)
        return [program.for_sizes({name: scope[name] for name in self.shape_env.symbols})]

    def _guard_scope(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the values of the names in guards."""
        scope = {**self.scope, "a": args, "k": kwargs, **{f"x{k}": x for k, x in enumerate(args)}}
        if self.shape_env.symbols:  # whose expressions may have names that guards define
            [*failing_guards([guard for guard in self.guards if guard.binds], scope)]
        for name, at in self.shape_env.symbols.items():
            with suppress(LookupError, AttributeError, NameError, TypeError):
                scope[name] = eval(at, scope)
        return scope


def in_order(entries: Iterable[CacheEntry]) -> list[CacheEntry]:
    """Return entries, the newest first, as calls try them: last those that show numbers and wait."""
    return sorted(entries, key=lambda entry: entry.scope["late"] is not None)

"""A guard as data, and its evaluation outside of generated code: for reports, and to learn what varies.

A call never comes here: its guards are one expression in the code of the cache entry (``guard_codegen``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A condition as an expression, with the text that tells what it checks.

    One that ``binds`` holds always, and gives a name to what others ask for by a long expression.
    One ``on_mutation_only`` can fail only after ``tracing.mutation_counter`` has moved.
    ``locations`` are those of the numbers that it checks: see ``reachable.location_of``.
    """

    code: str
    text: str
    on_mutation_only: bool = False
    locations: tuple[tuple[int | str, Any], ...] = ()
    binds: bool = False


class CounterGuards:
    """The guards behind the mutation counter, as a function that is compiled when the counter first moves."""

    __slots__ = ("_run", "_scope", "_source")

    def __init__(self, source: str, scope: Mapping[str, Any]) -> None:
        self._source, self._scope = source, {**scope}
        self._run: Any = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether they hold."""
        if self._run is None:
            exec(compile(self._source, "<replay>", "exec"), self._scope)
            self._run = self._scope.pop("unchanged")
        return bool(self._run(args, kwargs))


def failing_guards(guards: Iterable[Guard], scope: dict[str, Any]) -> Iterator[tuple[Guard, bool]]:
    """Yield the guards that do not hold in ``scope``, and whether what they are about was there."""
    for guard in guards:
        try:
            if not eval(guard.code, scope):  # written by this package
                yield guard, True
        except (LookupError, AttributeError, TypeError, ValueError, NameError):
            yield guard, False

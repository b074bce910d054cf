"""A guard as data, and its evaluation outside of generated code: for reports, and to learn what varies.

A call never comes here: its guards are one expression in the code of the cache entry (``guard_codegen``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A condition, as code, and what it is about.

    One that is ``counted`` can only fail after a change that is counted (see ``tracing.mutation_counter``).
    ``places`` are those of the numbers that it is about: see ``reach.place_of``.
    """

    code: str
    text: str
    on_mutation_only: bool = False
    locations: tuple[tuple[int | str, Any], ...] = ()


class CounterGuards:
    """The guards that only counted changes break, as a function: compiled at the first of these."""

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

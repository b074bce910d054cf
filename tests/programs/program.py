"""Programs as data: what to call, with which arguments, and what must be the same afterwards.

A family is a module of ``families``. Its programs are written as users write theirs; a function around each
makes everything afresh and returns

- the function (or module, or method) to call,
- the calls: a list of argument tuples, or of ``call_of(...)`` where there are keywords, done twice, the
  second time with other values in the tensors; or a generator, which may change things between calls, and is
  sent what each call returned (None where it raised),
- optionally the state to look at: any tree of tensors, modules, optimizers, containers and objects.

What a program prints, or branches on, is exact arithmetic or far from the edge: code that rounds otherwise in
the last bit must print the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, overload

Build = Callable[[], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call_of(*args: Any, **kwargs: Any) -> CallArguments:
    """Return the arguments of a call that has keywords."""
    return CallArguments(args, kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """``build`` makes it afresh.

    ``data_dependent``: Python reads values of tensors: in a branch, an assertion, a conversion, or by a shape
    that depends on them. ``divided``: a loop of it is too long to be unrolled. ``ulps``: how far results may
    be apart, in units of the last place of the larger of 1 and the value. ``raises``: the names of all errors
    that leave its calls. ``dtypes``: what it needs that a device may lack.
    """

    family: str
    name: str
    build: Build
    data_dependent: bool = False
    divided: bool = False
    ulps: int = 32
    raises: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.family}-{self.name}"

    def instance(self) -> tuple[Callable[..., Any], Iterable[Any], Any]:
        """Return a fresh function, its calls, and its state."""
        fn, calls, *state = self.build()
        return fn, calls, state


class Family:
    """The programs of one module; an instance decorates the functions that build them."""

    def __init__(self, module: str) -> None:
        self.name = module.rpartition(".")[2]
        self.members: dict[str, Program] = {}

    @overload
    def __call__(self, build: Build, /) -> Program: ...
    @overload
    def __call__(self, /, **options: Any) -> Callable[[Build], Program]: ...
    def __call__(self, build: Build | None = None, /, **options: Any) -> Any:
        if build is None:
            return lambda build: self._add(build, options)
        return self._add(build, options)

    def _add(self, build: Build, options: dict[str, Any]) -> Program:
        program = Program(family=self.name, name=build.__name__, build=build, **options)
        if program.name in self.members:
            raise ValueError(f"{self.name} has two programs {program.name!r}; give one another name.")
        self.members[program.name] = program
        return program

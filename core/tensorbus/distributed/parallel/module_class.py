"""Methods for one module: its class becomes one that has them as well."""

from __future__ import annotations

from typing import Final

from ...nn.module import Module
from ...tracing.mutation_counter import bump_mutation_counter

_classes: Final[dict[tuple[type[Module], type[Module]], type[Module]]] = {}


def _class_of_both(methods: type[Module], kind: type[Module]) -> type[Module]:
    known = _classes.get((methods, kind))
    if known is None:
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        known = _classes.setdefault((methods, kind), type(kind.__name__, (methods, kind), names))
    return known


def with_methods(module: Module, methods: type[Module]) -> None:
    """Give ``module`` the methods of ``methods`` before those of its class, whose name and ``repr`` stay."""
    module.__class__ = _class_of_both(methods, type(module))
    bump_mutation_counter()

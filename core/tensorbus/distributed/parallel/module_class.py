"""Methods for one module: its class becomes one that has them as well."""

from __future__ import annotations

from typing import Final

from ...errors import ArgumentError
from ...nn.module import Module
from ...tracing.mutation_counter import bump_mutation_counter

_classes: Final[dict[tuple[type[Module], type[Module]], type[Module]]] = {}


def _class_of_both(methods: type[Module], kind: type[Module]) -> type[Module]:
    known = _classes.get((methods, kind))
    if known is None:
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        known = _classes.setdefault((methods, kind), type(kind.__name__, (methods, kind), names))
    return known


def refuse_other(name: str, module: Module, methods: type[Module]) -> None:
    """Raise ``ArgumentError`` where a module inside has methods of another kind: ways to spread parameters.

    Two of them on one module would each average gradients over some ranks only, or copy parts.
    """
    for path, inner in module.named_modules():
        for own, _ in _classes:
            if own is not methods and isinstance(inner, own):
                where = f"{path!r} in this " * bool(path) or "this "
                where += type(module).__name__
                raise ArgumentError(
                    f"{name}: {where} is a {own.__name__} already. One of replicate and fully_shard spreads a"
                    f" model; copies of parts are fully_shard on a mesh of two dimensions."
                )


def with_methods(module: Module, methods: type[Module]) -> None:
    """Give ``module`` the methods of ``methods`` before those of its class, whose name and ``repr`` stay."""
    module.__class__ = _class_of_both(methods, type(module))
    bump_mutation_counter()

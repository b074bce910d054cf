"""Methods for one module: its class becomes one that has them as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, SupportsIndex

from ...compiler import CompiledModule
from ...errors import ArgumentError
from ...nn.module import Module
from ...tracing.mutation_counter import bump_mutation_counter
from ..tensor.module_hook import unpicklable

_classes: Final[dict[tuple[type[Module], type[Module]], type[Module]]] = {}


class SpreadModule(Module):
    """Base of the methods of modules that ranks share: ``copy`` takes such a module, ``pickle`` does not.

    What spreads it are this program's groups of ranks, which no file has; its state dict has all the rest.
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        reduced: Any = super().__reduce_ex__(2)
        function, args, *state = reduced
        return _Maker(type(self), function, args), (), *state


class _Maker:
    """Makes an empty module for ``copy``, and refuses to be pickled with it."""

    def __init__(self, kind: type[Module], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.kind, self.function, self.args = kind, function, args

    def __call__(self) -> Any:
        return self.function(*self.args)

    def __reduce__(self) -> Any:
        methods = self.kind.__mro__[1].__name__
        raise unpicklable(f"this {self.kind.__name__} is a {methods}, which ranks share")


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
    """Give ``module`` the methods of ``methods`` before those of its class, whose name and ``repr`` stay.

    What ``compile`` returned for a module has them by that one, which its hooks are called with.
    """
    if isinstance(module, CompiledModule):
        module.change_class(lambda called: with_methods(called, methods))
        return
    module.__class__ = _class_of_both(methods, type(module))
    bump_mutation_counter()

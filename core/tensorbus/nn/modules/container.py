"""Modules that hold modules: in sequence, in a list, in a dict."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import count, groupby
from types import NoneType
from typing import Any, ClassVar, Self, cast, overload

from ...tracing.mutation_counter import bump_mutation_counter
from ..module import Module, _indented


class _Numbered(Module):
    """Base of ``Sequential`` and ``ModuleList``: submodules named ``"0"``, ``"1"`` and so on."""

    _kinds: ClassVar[tuple[type, ...]] = (Module,)

    def _checked(self, modules: Iterable[Module]) -> list[Module]:
        listed = list(modules)
        if not all(isinstance(module, self._kinds) for module in listed):
            raise TypeError(f"{type(self).__name__} holds modules, got {[type(m).__name__ for m in listed]}.")
        return listed

    def _set_all(self, modules: Iterable[Module]) -> None:
        listed = self._checked(modules)
        self._modules.clear()
        self._modules.update((str(k), module) for k, module in enumerate(listed))
        bump_mutation_counter()

    def _key(self, index: int) -> str:
        place = index.__index__()
        if not -len(self) <= place < len(self):
            raise IndexError(
                f"index {place} is out of range for {type(self).__name__} of {len(self)} modules."
            )
        return list(self._modules)[place]

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Module | Self:
        if isinstance(index, slice):
            part = type(self)()
            part._modules.update(list(self._modules.items())[index])
            if isinstance(part, ModuleList):
                part._set_all(list(part))
            return part
        return cast("Module", self._modules[self._key(index)])

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        remaining = list(self)
        del remaining[index]
        self._set_all(remaining)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(cast("list[Module]", [*self._modules.values()]))

    def append(self, module: Module) -> Self:
        """Add a module at the end; return the container."""
        return self.extend([module])

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end; return the container."""
        for module in self._checked(modules):
            # A slice keeps its names, as state dicts want it: the next number may be taken.
            name = next(str(k) for k in count(len(self)) if str(k) not in self._modules)
            self.register_module(name, module)
        return self

    def __add__(self, modules: Iterable[Module]) -> Self:
        joined = type(self)()
        joined._set_all([*self, *self._more(modules)])
        return joined

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(self._more(modules))

    def _more(self, modules: Iterable[Module]) -> list[Module]:
        """Return the modules to be added."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"{type(self).__name__} + {type(modules).__name__}: modules are needed.")
        return list(modules)

    def insert(self, index: int, module: Module) -> Self:
        """Add a module before place ``index``; return the container."""
        modules = list(self)
        modules.insert(index, module)
        self._set_all(modules)
        return self


class Sequential(_Numbered):
    """Modules, each applied to the result of the one before; given one by one or as one dict of names.

    >>> import tensorbus as tb
    >>> net = tb.nn.Sequential(tb.nn.Linear(4, 8), tb.nn.ReLU(), tb.nn.Linear(8, 2))
    >>> net(tb.ones((3, 4))).shape, list(net.state_dict())
    ((3, 2), ['0.weight', '0.bias', '2.weight', '2.bias'])
    """

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.register_module(name, module)
        else:
            self.extend(cast("tuple[Module, ...]", modules))

    def _more(self, modules: Iterable[Module]) -> list[Module]:
        if not isinstance(modules, Sequential):
            raise TypeError(
                f"Sequential + {type(modules).__name__}: another Sequential is needed; extend() takes lists."
            )
        return list(modules)

    def forward(self, input: Any) -> Any:
        """Return the result of the last module."""
        for module in self:
            input = module(input)
        return input


class ModuleList(_Numbered):
    """A list of modules whose parameters count as the owner's. It has no ``forward``.

    None in it stands for a module that is left out.
    """

    _kinds = (Module, NoneType)

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def __repr__(self) -> str:
        """Show equal neighbours once, as PyTorch does."""
        lines, first = [], 0
        for text, run in groupby(map(repr, self)):
            many = len(list(run))
            label = f"({first}): " if many == 1 else f"({first}-{first + many - 1}): {many} x "
            lines.append(f"  {label}{_indented(text)}")
            first += many
        return f"{type(self).__name__}(\n" + "\n".join(lines) + "\n)" if lines else f"{type(self).__name__}()"


class ModuleDict(Module):
    """A dict of modules whose parameters count as the owner's. It has no ``forward``."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()) -> None:
        super().__init__()
        self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return cast("Module", self._modules[key])

    def __setitem__(self, key: str, module: Module) -> None:
        self.register_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]
        bump_mutation_counter()

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._modules.keys()

    def values(self) -> ValuesView[Module | None]:
        """Return the modules."""
        return self._modules.values()

    def items(self) -> ItemsView[str, Module | None]:
        """Return names with modules."""
        return self._modules.items()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules, or replace those of the same names."""
        for name, module in modules.items() if isinstance(modules, Mapping) else modules:
            self.register_module(name, module)

    def pop(self, key: str) -> Module:
        """Remove a module and return it."""
        module = self[key]
        del self[key]
        return module

"""Parameters in a list or a dict, which count as the owner's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, overload

from ..tensor.tensor import Tensor
from ..tracing.mutation_counter import bump_mutation_counter
from .module import Module
from .parameter import Parameter


def _as_parameter(owner: str, value: Any) -> Parameter:
    if isinstance(value, Parameter):
        return value
    if isinstance(value, Tensor):
        return Parameter(value)
    raise TypeError(f"{owner} holds parameters and tensors, got {type(value).__name__}.")


class ParameterList(Module):
    """A list of parameters, named ``"0"``, ``"1"`` and so on; tensors become parameters.

    An entry may be a list or dict of parameters itself, or another module, or None.

    >>> import tensorbus as tb
    >>> list(tb.nn.ParameterList([tb.ones((2,)), tb.ones((3,))]).state_dict())
    ['0', '1']
    """

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        self.extend(values)

    def _key(self, index: int) -> str:
        place = index.__index__()
        if not -len(self) <= place < len(self):
            raise IndexError(f"index {place} is out of range for ParameterList of {len(self)} parameters.")
        return str(place % len(self))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return getattr(self, self._key(index))

    def __setitem__(self, index: int, value: Any) -> None:
        name = self._key(index)
        if value is None:
            delattr(self, name)
        self._set(name, value)

    def _set(self, name: str, value: Any) -> None:
        if value is None:
            self.register_parameter(name, None)
        else:
            setattr(self, name, value if isinstance(value, Module) else _as_parameter("ParameterList", value))

    def __len__(self) -> int:
        return len(self._parameters) + len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter([self[k] for k in range(len(self))])

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def append(self, value: Any) -> Self:
        """Add an entry at the end; return the list."""
        self._set(str(len(self)), value)
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add entries at the end; return the list."""
        if isinstance(values, Tensor):
            raise TypeError("ParameterList.extend takes an iterable of tensors, got one tensor.")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        """Return a line for each parameter."""
        return _lines(self._parameters)


class ParameterDict(Module):
    """A dict of parameters; tensors become parameters."""

    def __init__(self, parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] = ()) -> None:
        super().__init__()
        self.update(parameters)

    def __getitem__(self, key: str) -> Parameter:
        parameter = self._parameters[key]
        assert parameter is not None
        return parameter

    def __setitem__(self, key: str, value: Tensor) -> None:
        self.register_parameter(key, _as_parameter("ParameterDict", value))

    def __delitem__(self, key: str) -> None:
        del self._parameters[key]
        bump_mutation_counter()

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, key: object) -> bool:
        return key in self._parameters

    def keys(self) -> Iterable[str]:
        """Return the names."""
        return self._parameters.keys()

    def values(self) -> Iterable[Parameter | None]:
        """Return the parameters."""
        return self._parameters.values()

    def items(self) -> Iterable[tuple[str, Parameter | None]]:
        """Return names with parameters."""
        return self._parameters.items()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a parameter, or ``default`` where there is none of that name."""
        return self._parameters.get(key, default)

    def pop(self, key: str) -> Parameter:
        """Remove a parameter and return it."""
        parameter = self[key]
        del self[key]
        return parameter

    def update(self, parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]) -> None:
        """Add parameters, or replace those of the same names."""
        for name, value in parameters.items() if isinstance(parameters, Mapping) else parameters:
            self[name] = value

    def extra_repr(self) -> str:
        """Return a line for each parameter."""
        return _lines(self._parameters)


def _lines(parameters: Mapping[str, Parameter | None]) -> str:
    shown = [(k, p) for k, p in parameters.items() if p is not None]
    return "\n".join(f"({k}): Parameter of {p.dtype}[{', '.join(map(str, p.shape))}]" for k, p in shown)

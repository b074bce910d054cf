"""Parameters and buffers whose shape the first input of their module decides."""

from __future__ import annotations

from typing import Any, NoReturn

from ..autograd import views
from ..autograd.engine import no_grad
from ..devices.device import Device
from ..dtypes.definition import DType
from ..errors import StateError
from ..ops.creation.creation import empty
from ..tensor.tensor import Tensor
from .parameter import Parameter, hold


def _refuse(self: object) -> NoReturn:
    """Raise ``StateError``."""
    raise StateError(
        "a parameter or buffer of a lazy module has no shape and no values yet: call the module once, or load"
        " a state dict."
    )


class _Nothing:
    """The value of a cell without one: whoever asks for its shape, as every op does, is told."""

    __slots__ = ()
    shape = property(_refuse)


class UninitializedParameter(Parameter):
    """A parameter that gets its shape from the first input. Raises ``StateError`` where it is needed before.

    >>> import tensorbus as tb
    >>> layer = tb.nn.LazyLinear(2)
    >>> layer.weight
    <UninitializedParameter>
    >>> layer(tb.ones((1, 3))).shape, layer.weight.shape
    ((1, 2), (2, 3))
    """

    __slots__ = ()
    detach = _refuse

    def __new__(
        cls, requires_grad: bool = True, device: Device | str | None = None, dtype: DType | str | None = None
    ) -> UninitializedParameter:
        """Make the cell, of which dtype and device are known."""
        self = super().__new__(cls, empty((), device=device, dtype=dtype), requires_grad)
        assert isinstance(self, UninitializedParameter)
        views.unlink(self)
        return self

    def _set_value(self, other: Tensor) -> None:
        self._value, self._vtype = _Nothing(), other._vtype.materialized

    def materialize(
        self, shape: tuple[int, ...], device: Device | str | None = None, dtype: DType | str | None = None
    ) -> None:
        """Make it a parameter of a shape, whose values are not set yet."""
        fill(self, empty(shape, device=device or self.device, dtype=dtype or self.dtype))

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        return type(self)(self.requires_grad, self.device, self.dtype)

    def __reduce__(self) -> Any:
        return type(self), (self.requires_grad, self.device, self.dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedBuffer(Tensor):
    """A buffer that gets its shape from the first input."""

    __slots__ = ()
    detach = _refuse

    def __new__(
        cls, device: Device | str | None = None, dtype: DType | str | None = None
    ) -> UninitializedBuffer:
        """Make the cell, of which dtype and device are known."""
        self = object.__new__(cls)
        self._set_value(empty((), device=device, dtype=dtype))
        self._node = None
        return self

    def _set_value(self, other: Tensor) -> None:
        self._value, self._vtype = _Nothing(), other._vtype.materialized

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return type(self)(self.device, self.dtype)

    def __reduce__(self) -> Any:
        return type(self), (self.device, self.dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


def is_lazy(cell: object) -> bool:
    """Return whether a cell has no shape yet."""
    return isinstance(cell, (UninitializedParameter, UninitializedBuffer))


def fill(cell: Tensor, value: Tensor) -> None:
    """Make a cell without shape a plain one that holds ``value``."""
    cell.__class__ = Parameter if isinstance(cell, Parameter) else Tensor
    with no_grad():
        hold(cell, value.detach())

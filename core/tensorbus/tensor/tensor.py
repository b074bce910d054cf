"""``Tensor``: a cell that holds an immutable value of one device.

Assignment and in-place operators rebind the cell to a new value, and with it the tensors that show elements
of it (``autograd/view_changes.py``); whoever else held the old value, a copy or recorded history, keeps it
unchanged. The class stands below the ops, so that they can name it: operators, the methods named after ops,
and those that need ops or history are attached by ``eager/methods.py``.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, Self

from ..devices.device import Device, ValueType
from ..dtypes.definition import DType
from ..errors import AutogradError, ShapeError
from ..system.weak_tables import forget_when_gone
from ..tracing.active_modes import active_modes
from ..tracing.active_tracer import active_tracer
from ..tracing.lazy_value import LazyValue
from . import leaf
from .element_count import element_count
from .flag import checked_flag
from .leaf import HookHandle as HookHandle
from .leaf import Leaf as Leaf
from .leaf import report_gradient_use as report_gradient_use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..backend_interface.capabilities import SupportsLending

Shape = tuple[int, ...]


plain_classes: Final[set[type]] = set()
"""Classes of cells beside ``Tensor`` that hold what it does, and mean the same to every op."""


def is_plain(x: Any) -> bool:
    """Return whether an op takes ``x``, which is no bare ``Tensor``, as one: a parameter, say."""
    return type(x) in plain_classes and x._vtype.cell is None


def wrap(value: Any, vtype: ValueType, node: Any = None) -> Tensor:
    """Return a tensor that holds ``value``; ``node`` is its history."""
    cell = vtype.cell
    x: Tensor = Tensor() if cell is None else cell()
    x._value = value
    x._vtype = vtype
    x._node = node
    if type(value) is LazyValue:
        value.tensors.append(weakref.ref(x))
    return x


def materialize(x: Tensor) -> Any:
    """Return the device's value that ``x`` holds; a lazy one is computed first and replaced."""
    value = x._value
    if type(value) is LazyValue:
        computed = value.materialize()
        if x._value is value:  # else it is there already, in memory that was lent, say
            x._value, x._vtype = computed, x._vtype.materialized
        return x._value
    if active_modes and (active := active_tracer()) is not None:
        active.materialize("Python asks for a value")
    return value


def wrap_settled(value: Any, vtype: ValueType, node: Any = None) -> Tensor:
    """Return a tensor that holds ``value`` of the type ``vtype``; the value may be lazy."""
    if type(value) is LazyValue:
        if value.tracer is None:
            value = value.materialize()
        else:
            vtype = vtype.lazy()
    return wrap(value, vtype, node)


class LentMemory:
    """Memory that a tensor has lent out: what changes the tensor is written there.

    ``host`` is the device's runtime, which writes to it (``SupportsLending``). ``value`` is what lies there
    while the tensor's own value is computed later; then that is written there.
    """

    __slots__ = ("host", "reference", "value")

    def __init__(self, x: Tensor, host: SupportsLending) -> None:
        self.reference = forget_when_gone(x, lent)
        self.host = host
        self.value: Any = None


lent: Final[dict[int, LentMemory]] = {}
"""The tensors whose memory others may write to, by their ids."""


def unlent(value: Any) -> Any:
    """Return a value that nobody else writes to: a copy where it may lie in memory that was lent out."""
    for memory in [*lent.values()]:
        root = memory.reference()
        own = None if root is None else root._value
        own = memory.value if type(own) is LazyValue else own
        if type(own) is type(value) and memory.host.shares(value, own):
            return memory.host.copied(value)
    return value


class Tensor:
    """An array of one dtype on one device. Made by ``asarray``, ``zeros`` and the other creation functions.

    >>> import tensorbus as tb
    >>> x = tb.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> (x @ x).sum(axis=0).tolist()
    [22.0, 32.0]
    """

    __slots__ = ("__weakref__", "_node", "_value", "_view", "_vtype", "_written")

    _value: Any
    _vtype: ValueType
    _node: Any
    _view: Any
    _written: Any
    """The last change in place, which ``autograd/saved_values.py`` notes; unset before."""

    @property
    def shape(self) -> Shape:
        """The lengths of the axes."""
        shape: Shape = self._value.shape
        return shape

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._vtype.dtype

    @property
    def device(self) -> Device:
        """The device of the value."""
        return self._vtype.device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._value.shape)

    @property
    def size(self) -> Any:
        """The number of elements; ``x.size(0)``, as in PyTorch, is the length of an axis."""
        return element_count(self._value.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements."""
        return int(self.size * self._vtype.dtype.itemsize)

    @property
    def requires_grad(self) -> bool:
        """Whether ops on this tensor record their history. Assigning it calls ``requires_grad_``."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        """True unless the tensor is the result of a recorded op."""
        return self._node is None or isinstance(self._node, Leaf)

    @property
    def grad(self) -> Tensor | None:
        """The gradient gathered by ``backward()``; None before, and for results without ``retain_grad()``."""
        return leaf.gradient(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        leaf.set_gradient(self, value)

    def retain_grad(self) -> None:
        """Keep this result's gradient in ``.grad`` during ``backward``, as leaves do.

        >>> import tensorbus as tb
        >>> x = tb.asarray([1.0]).requires_grad_()
        >>> y = x * 2
        >>> y.retain_grad()
        >>> (y * y).backward()
        >>> y.grad.tolist()
        [4.0]
        """
        leaf.retain(self)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for a gradient, or stop asking; return the tensor itself. A gradient that there is stays.

        Raises ``AutogradError`` for dtypes that have no derivative, and for the result of a recorded op.
        """
        if requires_grad is not True and requires_grad is not False:
            requires_grad = checked_flag("requires_grad_", "requires_grad", requires_grad)
        if requires_grad and not self.dtype.is_inexact:
            raise AutogradError(
                f"only floating-point and complex tensors have gradients, this one is {self.dtype}."
            )
        if not self.is_leaf:
            if requires_grad:
                return self
            raise AutogradError(
                "a recorded result requires its gradient; use .detach() for one that does not."
            )
        if requires_grad != self.requires_grad:
            leaf.set_requires_grad(self, requires_grad)
        return self

    def _set_value(self, other: Tensor) -> None:
        """Make this cell hold the value of another, history apart."""
        self._value, self._vtype = other._value, other._vtype
        if type(other._value) is LazyValue:
            other._value.tensors.append(weakref.ref(self))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-dimensional tensor has no length, and is not iterated over.")
        return self.shape[0]

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ShapeError(
                f"the truth of a tensor of shape {self.shape} is ambiguous; use .any() or .all()."
            )
        return bool(self.item())

    def __int__(self) -> int:
        number: Any = self.item()
        return int(number)

    def __float__(self) -> float:
        number: Any = self.item()
        return float(number)

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise TypeError(f"only an integer tensor is an index, this one is {self.dtype}.")
        number: Any = self.item()
        return int(number)

    def __copy__(self) -> Tensor:
        return self._alias()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise AutogradError("a recorded result cannot be copied deeply; use .detach() first.")
        copied = object.__new__(type(self))
        copied._set_value(self._alias())
        copied._node = None
        copied.requires_grad_(self.requires_grad)
        gradient = self.grad
        if gradient is not None:
            copied.grad = wrap(gradient._value, gradient._vtype)
        return copied

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.shape else object.__format__(self, spec)

    if TYPE_CHECKING:  # what eager/methods.py attaches

        @property
        def T(self) -> Tensor: ...  # noqa: N802 - the standard's name
        @property
        def mT(self) -> Tensor: ...  # noqa: N802 - the standard's name
        def clone(self) -> Tensor: ...
        def detach(self) -> Tensor: ...
        def _alias(self) -> Tensor: ...
        def _apart(self) -> Tensor: ...
        def backward(
            self, gradient: Tensor | None = None, *, retain_graph: bool | None = None,
            create_graph: bool = False, inputs: Tensor | Sequence[Tensor] | None = None,
        ) -> None: ...  # fmt: skip
        def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle: ...
        def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> HookHandle: ...
        def rebind(self, other: Tensor, *, by: str = "rebind", since: int = 0) -> None: ...
        def tensor_like_device(self, data: Any) -> Tensor: ...
        def to(self, *args: Any, **kwargs: Any) -> Tensor: ...
        def pin_memory(self, device: Device | str | None = None) -> Tensor: ...
        def is_pinned(self, device: Device | str | None = None) -> bool: ...
        def numpy(self) -> Any: ...
        def tolist(self) -> Any: ...
        def item(self) -> bool | int | float | complex: ...
        def to_device(self, device: Device | str, /, *, stream: Any = None) -> Tensor: ...
        def __getitem__(self, key: Any) -> Tensor: ...
        def __iter__(self) -> Iterator[Tensor]: ...
        def __contains__(self, value: Any) -> bool: ...
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
        def __array_namespace__(self, /, *, api_version: str | None = None) -> Any: ...
        def __dlpack__(
            self, /, *, stream: Any = None, max_version: tuple[int, int] | None = None,
            dl_device: tuple[Any, int] | None = None, copy: bool | None = None,
        ) -> Any: ...  # fmt: skip
        def __dlpack_device__(self) -> tuple[int, int]: ...
        def __buffer__(self, flags: int) -> memoryview: ...
        def __getattr__(self, name: str) -> Callable[..., Tensor]: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def __eq__(self, other: object) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: object) -> Tensor: ...  # type: ignore[override]
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __pos__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __lshift__(self, other: Any) -> Tensor: ...
        def __rshift__(self, other: Any) -> Tensor: ...
        def __iadd__(self, other: Any) -> Self: ...
        def __isub__(self, other: Any) -> Self: ...
        def __imul__(self, other: Any) -> Self: ...
        def __itruediv__(self, other: Any) -> Self: ...
        def __ifloordiv__(self, other: Any) -> Self: ...
        def __imod__(self, other: Any) -> Self: ...
        def __ipow__(self, other: Any) -> Self: ...
        def __imatmul__(self, other: Any) -> Self: ...
        def __iand__(self, other: Any) -> Self: ...
        def __ior__(self, other: Any) -> Self: ...
        def __ixor__(self, other: Any) -> Self: ...
        def __ilshift__(self, other: Any) -> Self: ...
        def __irshift__(self, other: Any) -> Self: ...
        def __hash__(self) -> int: ...

"""Methods of ``Tensor`` that need ops, history or other devices, which all stand above the class itself.

``attach_methods`` puts them on the class when tensorbus is imported; ``tensor/tensor.py`` declares them for
type checkers. What only some programs use is imported at the first call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from weakref import getweakrefcount, ref

from ..autograd import engine, hooks, saved_values, view_changes
from ..autograd.node_order import order
from ..autograd.saved_values import note_write
from ..autograd.views import DETACHED, MAX_NEW_VIEWS, link, new_views
from ..compat import unpacking
from ..devices.device import Device
from ..dispatch.modes import detached_value, value_modes, wraps
from ..errors import AutogradError, DeviceError, DtypeError, ShapeError
from ..interchange import array_namespace, host_array, transfer, ufuncs
from ..ops.call_errors import misfit, with_signature
from ..ops.definition import table
from ..ops.indexing import indexing
from ..ops.movement.movement import permute_dims, reshape
from ..system.late_binding import LateFunction
from ..tensor.grad_mode import grad_enabled
from ..tensor.leaf import HookHandle, Leaf
from ..tensor.tensor import Tensor, lent, unlent, wrap
from ..tracing.active_modes import active_modes
from ..tracing.lazy_value import LazyValue

_dual_written: Final = LateFunction("dual_written")


def _transpose(self: Tensor) -> Tensor:
    """The transpose of a matrix. Raises ``ShapeError`` for any other rank."""
    if self.ndim != 2:
        raise ShapeError(f".T needs 2 dimensions, got shape {self.shape}; use .mT or permute_dims.")
    return permute_dims(self, (1, 0))


def _matrix_transpose(self: Tensor) -> Tensor:
    """The tensor with its last two axes exchanged."""
    if self.ndim < 2:
        raise ShapeError(f".mT needs at least 2 dimensions, got shape {self.shape}.")
    return permute_dims(self, (*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))


def detach(self: Tensor) -> Tensor:
    """Return a view of this tensor without history: a write to one of the two is seen in the other."""
    value = self._value
    if type(value) is LazyValue or (active_modes and value_modes):
        return link(wrap(detached_value(self), self._vtype), self, DETACHED)
    out = Tensor()
    out._value = value
    out._vtype = self._vtype
    out._node = None
    if getweakrefcount(self) or len(new_views) > MAX_NEW_VIEWS:
        return link(out, self, DETACHED)
    self._view = None
    out._view = (ref(self), value.shape, DETACHED, None, None)
    new_views.append(ref(out))
    return out


def _alias(self: Tensor) -> Tensor:
    value = self._value
    return wrap(unlent(value) if lent else value, self._vtype, self._node)


def clone(self: Tensor) -> Tensor:
    """Return another cell with the same value; gradients flow through."""
    if self._node is None:
        return self._alias()
    copied: Tensor = (
        table.function("multiply")(self, 1) if isinstance(self._node, Leaf) else engine.aliased(self)
    )
    return copied


def apart(self: Tensor) -> Tensor:
    """Return another cell with the same value, for derivatives that PyTorch takes from a copy.

    A write to this tensor is no error for them.
    """
    return self._alias() if self._node is None else engine.aliased(self)


def backward(
    self: Tensor, gradient: Tensor | None = None, *, retain_graph: bool | None = None,
    create_graph: bool = False, inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:  # fmt: skip
    """Add the gradient of this tensor to ``.grad`` of each leaf that it depends on, or of ``inputs``."""
    engine.backward(self, gradient, retain_graph=retain_graph, create_graph=create_graph, inputs=inputs)


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Call ``hook`` with this tensor's gradient during ``backward``; what it returns replaces it.

    >>> import tensorbus as tb
    >>> x = tb.asarray([1.0]).requires_grad_()
    >>> handle = x.register_hook(lambda g: g * 2)
    >>> (x * 3).backward()
    >>> x.grad.tolist()
    [6.0]
    """
    return hooks.register_hook(self, hook)


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> HookHandle:
    """Call ``hook`` with this leaf whenever ``backward`` has added to its ``.grad``.

    An optimizer that steps there, and lets the gradient go, needs memory for one gradient at a time.
    """
    return hooks.register_post_accumulate_grad_hook(self, hook)


def rebind(self: Tensor, other: Tensor, *, by: str = "rebind", since: int = 0) -> None:
    """Make this cell hold the value and history of ``other``, of the same shape, dtype and device.

    Where no history is recorded, as under ``no_grad``, the cell keeps its own, whatever the value. ``by``
    names the change in errors. ``since`` is a number of ``autograd.node_order`` from when the change began:
    what it recorded from there on computed ``other``, which is nobody else's, and saw the old value.
    Raises ``AutogradError`` for a leaf that requires a gradient while history is being recorded.
    """
    try:
        kind, own = other._vtype, self._vtype
        same = other._value.shape == self._value.shape and (
            kind is own or kind.materialized == own.materialized
        )
    except AttributeError:
        raise DtypeError(f"rebind: needs tensors, got {type(other).__name__}.") from None
    if not same and not _takes_dual(self, other):
        if wraps(other.device, self.device) and other.device != self.device:
            if self._vtype.device.type not in value_modes and view_changes.lent_memory(self) is not None:
                raise DeviceError(
                    f"a tensor of a transform ({other.device}) cannot be written into one whose memory is"
                    f" lent, to NumPy or through DLPack; change a copy, x.clone()."
                )
            raise DeviceError(
                f"vmap: a value for each example ({other.device}) cannot be written into a tensor from"
                f" outside ({self.device}), which has room for one; return it, or change a copy."
            )
        wrong = DtypeError if other.dtype is not self.dtype else ShapeError
        raise wrong(
            f"an in-place change keeps shape, dtype and device, here {self.shape} {self.dtype} on"
            f" {self.device}; the result is {other.shape} {other.dtype} on {other.device}."
        )
    if other is self:
        return
    history = grad_enabled.get()
    if history and isinstance(self._node, Leaf):
        raise AutogradError(
            "a leaf that requires a gradient cannot be changed in place while history is recorded;"
            " do it under tensorbus.no_grad()."
        )
    node, old = other._node if history else None, self._node
    if node is not None:
        if node.order <= since or not since:
            other = engine.aliased(other)
            since, node = other._node.order - 1, other._node
        if old is None:
            saved_values.forget_own(node, self, since)
    number = since or next(order)
    if getweakrefcount(self):  # of any view, and of any tensor that has one
        view_changes.check_write(self)
        if view_changes.change(self, other, history, number, by):
            return
    self._set_value(other._alias() if lent else other)
    if history:
        self._node = node
    note_write(self, old, number, by)


def _takes_dual(x: Tensor, other: Tensor) -> bool:
    """Return whether ``other`` carries tangents and is otherwise such a tensor as ``x``, from outside."""
    if (
        not active_modes
        or (other.shape, other.dtype) != (x.shape, x.dtype)
        or not wraps(other.device, x.device)
    ):
        return False
    return bool(_dual_written(x, other))


def tensor_like_device(self: Tensor, data: Any) -> Tensor:
    """Return host data (numbers, lists, arrays) as a tensor on this tensor's device."""
    return host_array.asarray(data, device=self.device)


def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return the tensor with another dtype, on another device, or both; gradients flow through.

    ``x.to("opencl")``, ``x.to(tb.float16)``, ``x.to(device, dtype)``, ``x.to(other)``. With
    ``non_blocking=True`` a copy from pinned memory, or to the host, is queued where the device can do
    that, and comes as before where it cannot; whoever reads the result waits for it.
    """
    try:
        return transfer.to(self, *args, **kwargs)
    except TypeError as error:
        raise misfit(transfer.to, "to", error) or error from error.__cause__


def pin_memory(self: Tensor, device: Device | str | None = None) -> Tensor:
    """Return the tensor in page-locked memory, from which copies to a device need not be waited for.

    Raises ``DeviceError`` for a tensor that is not in the host's memory, or where no device has such.
    """
    from ..interchange import pinned_memory

    return pinned_memory.pin_memory(self, device)


def is_pinned(self: Tensor, device: Device | str | None = None) -> bool:
    """Return whether the elements lie packed in page-locked memory of a device that is in use."""
    from ..interchange import pinned_memory

    return pinned_memory.is_pinned(self, device)


def numpy(self: Tensor) -> Any:
    """Return the elements as a ``numpy.ndarray``; on a host device read-only, in the memory that they have.

    ``numpy.asarray(x)`` is one to write to.
    """
    return host_array.to_numpy(self)


def tolist(self: Tensor) -> Any:
    """Return the elements as nested lists of Python scalars; a 0-dimensional tensor as one scalar."""
    return host_array.to_list(self)


def item(self: Tensor) -> bool | int | float | complex:
    """Return the only element as a Python scalar. Raises ``ShapeError`` for any other number of them."""
    if self.size != 1:
        raise ShapeError(f"only a one-element tensor is a Python scalar, this one has shape {self.shape}.")
    only = reshape(wrap(self._value, self._vtype), ()) if self.shape else self
    number: bool | int | float | complex = only.tolist()
    return number


def _getitem(self: Tensor, key: Any) -> Tensor:
    return indexing.getitem(self, key)


def _iter(self: Tensor) -> Iterator[Tensor]:
    advice = unpacking.hint(sys._getframe(1))
    if advice is not None:
        raise TypeError(f"a tensor of shape {self.shape} is not unpacked as values and indices: {advice}")
    return indexing.parts(self) if len(self) else iter(())


def _contains(self: Tensor, value: Any) -> bool:
    matches = self == value
    return isinstance(matches, Tensor) and bool(table.function("any")(matches))


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    return host_array.to_host_array(self, dtype, copy)


def _array_namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
    return array_namespace.namespace(api_version)


def to_device(self: Tensor, device: Device | str, /, *, stream: Any = None) -> Tensor:
    """Return the tensor on another device; the array API standard's name of ``to``.

    The copy is ordered in ``stream``, where one is given. Gradients flow through.
    """
    if stream is None:
        return self.to(device)
    from ..devices import stream as streams

    with streams.stream(stream):
        return self.to(device)


def _dlpack(
    self: Tensor,
    /,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[Any, int] | None = None,
    copy: bool | None = None,
) -> Any:
    from ..interchange import dlpack_export

    return dlpack_export.to_dlpack(
        self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
    )


def _dlpack_device(self: Tensor) -> tuple[int, int]:
    from ..interchange import dlpack_export

    return dlpack_export.dlpack_device(self)


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    return ufuncs.call(ufunc, method, inputs, options)


def _buffer(self: Tensor, flags: int) -> memoryview:
    return host_array.to_buffer(self)


def _reduce(self: Tensor) -> tuple[Any, ...]:
    if not self.is_leaf:
        raise AutogradError("a recorded result cannot be pickled; use .detach() first.")
    state = (bytes(transfer.to_bytes(self)), self.shape, self.dtype, self.device, self.requires_grad)
    return host_array.from_pickle, (type(self), *state)


def _repr(self: Tensor) -> str:
    from ..interchange import repr

    return repr.format_tensor(self)


_METHODS: Final[tuple[Callable[..., Any], ...]] = (
    clone, detach, backward, register_hook, register_post_accumulate_grad_hook, rebind, tensor_like_device,
    to, pin_memory, is_pinned, numpy, tolist, item, to_device,
)  # fmt: skip
_RARE: Final = frozenset({backward, register_hook, register_post_accumulate_grad_hook, to_device, pin_memory})
"""Methods whose calls may cost a little more, and then tell what they take."""
_SPECIAL: Final[dict[str, Callable[..., Any]]] = {
    "_alias": _alias, "_apart": apart, "__getitem__": _getitem, "__iter__": _iter, "__contains__": _contains,
    "__array__": _array, "__array_namespace__": _array_namespace, "__dlpack__": _dlpack,
    "__dlpack_device__": _dlpack_device,
    "__array_ufunc__": _array_ufunc, "__buffer__": _buffer, "__reduce__": _reduce, "__repr__": _repr,
}  # fmt: skip


def attach_methods() -> None:
    """Put the methods of this module on ``Tensor``. Called once, when tensorbus is imported."""
    for name, method in {**{m.__name__: m for m in _METHODS}, **_SPECIAL}.items():
        if method in _RARE:
            method = with_signature(method)
        method.__name__, method.__qualname__ = name, f"Tensor.{name}"
        method.__annotations__.pop("self")  # as methods have none
        setattr(Tensor, name, method)
    dynamic: Any = Tensor
    dynamic.T = property(_transpose, doc=_transpose.__doc__)
    dynamic.mT = property(_matrix_transpose, doc=_matrix_transpose.__doc__)
    dynamic.beside = tensor_like_device  # the former name

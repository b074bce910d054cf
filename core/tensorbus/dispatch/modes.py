"""Modes: layers over dispatch that see every op, and its operands, before a kernel is chosen.

The modes of a thread or task are a stack. An op goes down it: first every mode may rewrite the operands, the
innermost first; then each, the innermost first, may run the op in its own way, until one has a result. What
they all hand on runs as ever. While a mode runs an op, it is off the stack together with those above it: ops
that it calls go to those below. One that is ``reentrant`` stays. Autocast, the capture of ``compile`` and
``vmap`` are modes. With no mode entered nothing here runs: see ``docs/modes.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ClassVar, Final, Protocol, TypeVar

from ..backend_interface.protocols import Call
from ..devices.device import Device, inner_devices
from ..ops.definition import Op, table
from ..tracing.active_modes import active_modes, mode_stack

T = TypeVar("T")


class Mode:
    """A layer over dispatch, entered by ``with``. Subclasses override ``rewrite``, ``apply`` or both.

    ``reentrant``: ops that ``apply`` calls come to this mode again. ``guarded``: compiled code guards on all
    that the mode does; a compiled function that is called inside a mode that is not runs as plain Python, so
    that the mode sees each of its ops.

    >>> import tensorbus as tb
    >>> from tensorbus.func import Mode
    >>> class Count(Mode):
    ...     def __init__(self):
    ...         self.names = []
    ...     def apply(self, op, operands, attrs):
    ...         self.names.append(op.name)
    ...         return NotImplemented
    >>> x = tb.ones((2,))
    >>> with Count() as count:
    ...     y = tb.exp(x) + x
    >>> count.names
    ['exp', 'add']
    """

    reentrant: ClassVar[bool] = False
    guarded: ClassVar[bool] = False
    rewrites: ClassVar[bool] = False
    """Whether the class has a ``rewrite`` of its own."""
    applies: ClassVar[bool] = False
    """Whether the class has an ``apply`` of its own."""
    captures: ClassVar[bool] = False
    """Whether this is a tracer of ``compile``: see ``tracing.active_tracer``."""
    _entries: list[object]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.rewrites = cls.rewrite is not Mode.rewrite
        cls.applies = cls.apply is not Mode.apply

    def rewrite(self, op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
        """Return the operands that the op takes instead, here and in all other modes.

        Operands are tensors and what else the op was called with. Ops that this calls go through all other
        modes.
        """
        return operands

    def apply(self, op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Return the result of the op, a tuple where it has several; ``NotImplemented`` hands it on."""
        return NotImplemented

    def below(self, op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Run an op in the modes below, from within ``apply``, and return its result."""
        return table.run(op.name, operands, attrs)

    def __enter__(self) -> Any:
        entry = object()
        self.__dict__.setdefault("_entries", []).append(entry)
        active_modes[entry] = self
        mode_stack.set((*mode_stack.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack = mode_stack.get()
        for k in range(len(stack) - 1, -1, -1):  # mostly the last; a generator may leave out of order
            if stack[k] is self:
                mode_stack.set((*stack[:k], *stack[k + 1 :]))
                break
        active_modes.pop(self._entries.pop(), None)


def apply_modes(op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> tuple[Sequence[Any], Any]:
    """Take an op down the stack; return its operands as rewritten, and its result or ``NotImplemented``."""
    stack = mode_stack.get()
    for k in range(len(stack) - 1, -1, -1):
        mode = stack[k]
        if mode.rewrites and mode._entries:
            mode_stack.set((*stack[:k], *stack[k + 1 :]))
            try:
                operands = mode.rewrite(op, operands, attrs)
            finally:
                mode_stack.set(stack)
    for k in range(len(stack) - 1, -1, -1):
        mode = stack[k]
        if mode.applies and mode._entries:
            mode_stack.set(stack[: k + mode.reentrant])
            try:
                result = mode.apply(op, operands, attrs)
            finally:
                mode_stack.set(stack)
            if result is not NotImplemented:
                return operands, result
    return operands, NotImplemented


def is_guarded() -> bool:
    """Return whether compiled code guards on all modes that are entered here."""
    return all(mode.guarded or not mode._entries for mode in mode_stack.get())


@contextmanager
def stack_of(modes: tuple[Mode, ...]) -> Iterator[None]:
    """Replace the modes of this thread or task inside of a ``with`` block."""
    outer = mode_stack.get()
    mode_stack.set(modes)
    try:
        yield
    finally:
        mode_stack.set(outer)


def below_modes(function: Callable[[], Any]) -> Any:
    """Call ``function`` below all modes, which do not see the ops of a decomposition."""
    if not active_modes:
        return function()
    with stack_of(()):
        return function()


class CompositeValue:
    """Value of a pseudo device that lives as long as its tensor, so that compiled code meets it again.

    ``PARTS`` names the attributes that are tensors; ``FRAME`` the one that says all else, an object that is
    compared by identity.
    """

    __slots__ = ()
    PARTS: ClassVar[tuple[str, ...]]
    FRAME: ClassVar[str]

    def rebuilt(self, *parts: Any) -> Any:
        """Return a value like this one of other parts."""
        raise NotImplementedError


class ValueMode(Protocol):
    """Runs ops on values of its own, which stand for others: those of a pseudo device.

    Such a mode is found by the operands of an op, not on the stack: of several, the one whose device lies
    deepest, the innermost, takes the op.
    """

    def prepare(self, op: Op[...], call: Call) -> Callable[..., Any] | None:
        """Return what takes values to the result, or None where the op must decompose first."""
        ...

    def lift(self, x: Any, device: Device) -> Any:
        """Return a tensor from outside as one of the pseudo device."""
        ...

    def lift_operand(self, op: str, x: Any, device: Device) -> Any:
        """Return an operand from outside as one of the pseudo device; raise where it must not be mixed."""
        ...

    def depth(self, device: Device) -> int:
        """Return how deep the pseudo device lies among those that values may stand for each other on."""
        ...

    def inner(self, device: Device) -> Device | None:
        """Return where the values lie that those of the pseudo device stand for; None: nowhere."""
        ...

    def parts(self, value: Any) -> tuple[Any, ...]:
        """Return the tensors that a value is made of."""
        ...

    def map_parts(self, value: Any, function: Callable[[Any], Any]) -> Any:
        """Return the value of ``function`` of each of its parts."""
        ...

    def detach(self, value: Any) -> Any:
        """Return the value without what derivatives would be taken by."""
        ...

    def readable(self, value: Any) -> Any:
        """Return the tensor whose elements are those of the value; None where it has them not, or many."""
        ...


# Each use is one operation on a dict, which Python makes whole: no lock, as forked children use it too.
value_modes: Final[dict[str, ValueMode]] = {}
"""Those that run ops on the values of a pseudo device, by its type."""


def register_value_mode(device_type: str, mode: ValueMode) -> None:
    """Serve the pseudo device type of values that stand for others."""
    value_modes[device_type] = mode
    inner_devices[device_type] = mode.inner


def is_value_mode(device_type: str) -> bool:
    """Return whether values of this type stand for others, and have no memory of their own."""
    return device_type in value_modes


def depth(device: Device) -> int:
    """Return how deep a pseudo device lies: those of levels by their number, from 0; -1: outside of all."""
    return value_modes[device.type].depth(device)


def inner_device(device: Device) -> Device | None:
    """Return where the values lie that those of a pseudo device stand for; None: it is none."""
    mode = value_modes.get(device.type)
    return None if mode is None else mode.inner(device)


def base_device(device: Device) -> Device:
    """Return the device behind all pseudo devices."""
    while (inner := inner_device(device)) is not None:
        device = inner
    return device


def outer_device(device: Device) -> Device:
    """Return the device behind the pseudo devices of all levels: that of values outside of transforms."""
    while (inner := inner_device(device)) is not None and depth(device) >= 0:
        device = inner
    return device


def has_history(x: Any) -> bool:
    """Return whether a tensor, or one that it stands for, is the result of recorded ops."""
    if x._node is not None:
        return True
    mode = value_modes.get(x._vtype.device.type) if value_modes else None
    return mode is not None and any(map(has_history, mode.parts(x._value)))


def detached_value(x: Any) -> Any:
    """Return the value of a tensor; one that stands for others without their histories and tangents."""
    mode = value_modes.get(x._vtype.device.type) if value_modes else None
    return x._value if mode is None else mode.detach(x._value)


def place_of(x: Any) -> Device:
    """Return where the values lie that a tensor stands for, or its own is."""
    while (mode := value_modes.get(x._vtype.device.type)) is not None:
        parts = mode.parts(x._value)
        if not parts:
            break
        x = parts[0]
    device: Device = x._vtype.device
    return device


def readable(x: Any) -> Any:
    """Return the tensor whose elements those of ``x`` are: another where ``x`` stands for that one alone."""
    while (mode := value_modes.get(x._vtype.device.type)) is not None:
        inside = mode.readable(x._value)
        if inside is None:
            break
        x = inside
    return x


def spread_like(x: T, like: Any) -> T:
    """Return ``x`` spread over ranks as ``like`` is: this rank's part of it, or the whole.

    One that is not spread is the same on each rank; where ``like`` has another shape, it is whole on each.
    """
    kind: Any = like._vtype.cell
    tensor: Any = x
    if kind is not None:
        tensor = kind._spread_like(x, like)
    elif tensor._vtype.cell is not None:
        tensor = readable(tensor)
    out: T = tensor
    return out


def wraps(device: Device | None, other: Device) -> bool:
    """Return whether values of ``device`` stand for those of ``other``, or for others that do."""
    while device is not None and device != other:
        device = inner_device(device)
    return device is not None


def lift_to(x: T, device: Device) -> T:
    """Return a tensor from outside as one of ``device``, which wraps its own."""
    tensor: Any = x
    inner = None if tensor.device == device else inner_device(device)
    if inner is not None:
        tensor = value_modes[device.type].lift(lift_to(tensor, inner), device)
    lifted: T = tensor
    return lifted


def lift_lazy(operands: Sequence[Any]) -> Sequence[Any]:
    """Return operands; lazy ones become values of the innermost pseudo device among them."""
    kinds = [getattr(x, "_vtype", None) for x in operands]
    inner = [k.device for k in kinds if k is not None and k.device.type in value_modes]
    if not inner:
        return operands
    device = max(inner, key=depth)
    lift = value_modes[device.type].lift_operand
    return [
        lift("an op", x, device) if k is not None and k.device != device and k.materialized is not k else x
        for x, k in zip(operands, kinds, strict=True)
    ]

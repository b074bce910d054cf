"""Devices as values, the default device, and the key by which dispatch knows a value.

A device is a type and an index. No device type is special here: which one lives in host memory, and so is the
default where nothing else is asked for, is what its manifest declares.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .. import plugins
from ..dtypes.definition import DType
from ..errors import DeviceError, DeviceUnavailableError, PluginError, TensorbusError
from ..plugins.type_name import is_type_name
from ..system import env

if TYPE_CHECKING:
    from ..backend_interface.protocols import DeviceProperties, MemoryStats, Runtime


@dataclass(frozen=True, slots=True)
class Device:
    """One unit of a device type. Compares by value, and need not be installed.

    As a context manager it is where new tensors are made: it nests, wins over ``set_default_device``, and
    holds for this thread and async task only.

    >>> Device("npu", 1), str(Device("npu")), Device("npu") == Device("npu", 0)
    (Device('npu:1'), 'npu:0', True)
    """

    type: str
    index: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.type, str) or not is_type_name(self.type):
            raise DeviceError(
                f"{self.type!r} is no device type; it is a name of ASCII letters, digits, '_' and '-'."
                f" For a string such as 'type:1' call tensorbus.device()."
            )
        if type(self.index) is not int or self.index < 0:
            raise DeviceError(f"{self.index!r} is no device index; it is an int from 0 on.")

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"Device({str(self)!r})"

    def __enter__(self) -> Device:
        _device_stack.set((*_device_stack.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _device_stack.set(_device_stack.get()[:-1])

    @property
    def runtime(self) -> Runtime:
        """The device type's runtime. Raises ``DeviceUnavailableError`` where this unit cannot be used."""
        return self._backend.runtime

    @property
    def _backend(self) -> plugins.Backend:
        backend = plugins.backend(self.type)
        if self.index >= backend.device_count:
            last = Device(self.type, backend.device_count - 1)
            raise DeviceUnavailableError(
                f"there is no device '{self}': {backend.extension.owner} found {backend.device_count},"
                f" of which the last is '{last}'."
            )
        return backend

    @property
    def _unit(self) -> Device:
        """The device itself, or the one on which the values lie that those of a pseudo device stand for."""
        device = self
        while (inner := inner_devices.get(device.type)) is not None:
            behind = inner(device)
            if behind is None:
                break
            device = behind
        return device

    def is_available(self) -> bool:
        """Return whether the device can be used here. Opens its backend; never raises."""
        try:
            return self.runtime is not None
        except (DeviceError, PluginError):
            return False

    @property
    def properties(self) -> DeviceProperties:
        """The device, described by itself: name, memory, dtypes. Raises ``DeviceError`` where it fails to."""
        device = self._unit
        return device._backend.properties(device.index)

    def memory_stats(self) -> MemoryStats:
        """Return the bytes in use now, and at their peak."""
        device = self._unit
        return device._backend.memory_stats(device.index)

    def reset_peak_memory_stats(self) -> None:
        """Make the peak equal to what is in use now."""
        device = self._unit
        device.runtime.reset_peak_memory_stats(device.index)

    def synchronize(self) -> None:
        """Wait for all work handed to the device; raises the error of work that failed."""
        device = self._unit
        try:
            device.runtime.synchronize(device.index)
        except TensorbusError:
            raise
        except Exception as error:
            raise device._backend.failed(f"runtime.synchronize({device.index})", error) from error


DeviceLike = str | Device | None

inner_devices: Final[dict[str, Callable[[Device], Device | None]]] = {}
"""By the type of pseudo devices: where the values lie that those of one stand for."""

_device_stack: Final[ContextVar[tuple[Device, ...]]] = ContextVar("tensorbus_devices", default=())
_default_device: Final[list[Device | None]] = [None]
_default_type: Final = [""]
"""The type by which the default device was given; "" where it was given with an index."""
_initial: Device | None = None
_local_rank: Final = [0]
"""The number of the rank that this process is, among those of its machine."""


def device(spec: DeviceLike = None) -> Device:
    """Return the device that ``spec`` names, once its backend is ready.

    ``spec`` is ``"type"``, ``"type:index"``, a ``Device``, or None for the default. A type by itself is its
    first unit; in a process that is a rank it is the unit with the rank's number on its machine, counted
    round, so that ranks that see all GPUs of a machine have one each. Raises ``DeviceError`` for anything
    else, ``DeviceUnavailableError`` where it is not installed or cannot be used here, ``PluginError`` where
    its package is broken.

    >>> import tensorbus as tb
    >>> with tb.device("cpu:0"):
    ...     x = tb.zeros((2, 3))
    >>> x.device
    Device('cpu:0')
    """
    if spec is None:
        return get_default_device()
    parsed = parse(spec)
    _ = parsed.runtime
    return parsed


def parse(spec: str | Device) -> Device:
    """Return the device that ``spec`` names, without asking whether it can be used.

    >>> parse("npu:1")
    Device('npu:1')
    """
    if isinstance(spec, Device):
        return spec
    if not isinstance(spec, str):
        raise DeviceError(
            f"{spec!r} names no device; give a string such as 'type' or 'type:1', or a tensorbus.Device."
        )
    name, colon, index = spec.strip().partition(":")
    if not is_type_name(name) or (colon and not (index.isascii() and index.isdigit())):
        raise DeviceError(
            f"{spec!r} names no device; it must be of the form 'type' or 'type:index', such as"
            f" {' or '.join(map(repr, plugins.known_types())) or repr('npu:0')}."
        )
    return Device(name, int(index) if colon else _own_index(name))


def _own_index(name: str) -> int:
    """Return the index of the unit that a type by itself names: 0, but for ranks beside others."""
    if _local_rank[0]:
        with suppress(DeviceError, PluginError):  # what uses the device says why it cannot be
            return _local_rank[0] % plugins.backend(name).device_count
    return 0


def set_local_rank(number: int) -> None:
    """Make types by themselves name the units of rank ``number`` of its machine, where each has its own.

    A default device that was given by its type is that rank's too from now on. Devices that were made before
    stay what they are.
    """
    global _initial
    _local_rank[0], _initial = number, None
    if _default_type[0]:
        _default_device[0] = parse(_default_type[0])


def set_default_device(spec: DeviceLike) -> None:
    """Make ``spec`` the device of new tensors, in all threads. None: go back to what holds at the start.

    Raises as ``device`` does, and then changes nothing.
    """
    global _initial
    chosen = None if spec is None else device(spec)
    _default_device[0], _initial = chosen, None
    _default_type[0] = spec.strip() if isinstance(spec, str) and ":" not in spec else ""


def get_default_device() -> Device:
    """Return the device of new tensors.

    That is the innermost ``with device(...)``; else what ``set_default_device`` chose; else
    ``TENSORBUS_DEFAULT_DEVICE``; else the device that lives in host memory; else the only one installed.
    Raises ``DeviceUnavailableError`` where none of these is there, and as ``device`` does where the variable
    names one that cannot be used.
    """
    entered = _device_stack.get()
    if entered:
        return entered[-1]
    return _default_device[0] or _initial or _find_initial()


def default_state() -> tuple[tuple[Device, ...], Device | None]:
    """Return what the default device depends on: the ``with`` blocks, and what was chosen."""
    return _device_stack.get(), _default_device[0]


def initial_type() -> str:
    """Return the device type, or type and index, that is the default at the start, without opening it.

    Raises ``DeviceUnavailableError`` where there is none.
    """
    name = env.default_device()
    if name is not None:
        return name
    known = plugins.known_types()
    only = known[0] if len(known) == 1 else plugins.host_type()
    if only is None:
        raise DeviceUnavailableError(
            f"there is no default device: of the installed device types ({', '.join(known) or 'none'}) "
            f"none lives in host memory.{plugins.hidden()} Choose one with"
            f" tensorbus.set_default_device(...) or TENSORBUS_DEFAULT_DEVICE, or"
            f" {'change that variable' if plugins.hidden() else 'install one: pip install tensorbus'}."
        )
    return only


def _find_initial() -> Device:
    global _initial
    name = initial_type()
    try:
        initial = device(name)
    except (DeviceError, PluginError) as error:
        if env.default_device() is None:
            raise
        kinds = (DeviceUnavailableError, DeviceError, PluginError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(f"TENSORBUS_DEFAULT_DEVICE={name!r}: {error}") from error
    _initial = initial
    return initial


def _forget_initial() -> None:
    global _initial
    _initial = None


plugins.on_change(_forget_initial)


def devices() -> list[Device]:
    """Return every unit of every installed device type that can be used here. Opens all backends."""
    usable = []
    for name in plugins.known_types():
        try:
            backend = plugins.backend(name)
        except (DeviceError, PluginError):
            continue
        usable += [Device(name, index) for index in range(backend.device_count)]
    return usable


class ValueType:
    """A dtype on a device: one object for each pair, compared by identity: a key of dispatch.

    >>> from tensorbus.dtypes import float32
    >>> ValueType.of(float32, Device("npu")) is ValueType.of(float32, Device("npu"))
    True
    """

    __slots__ = ("cell", "device", "dtype", "materialized")

    dtype: DType
    device: Device
    materialized: ValueType
    """Itself; of the type of a lazy value (see ``lazy``), the type that the computed value has."""
    cell: type | None
    """The class of tensors that hold such values; None: ``Tensor``."""

    def __init__(self, dtype: DType, device: Device) -> None:
        self.dtype = dtype
        self.device = device
        self.materialized = self
        self.cell = cell_classes.get(device.type)

    @staticmethod
    def of(dtype: DType, device: Device) -> ValueType:
        """Return the one object for this dtype and device. Safe in many threads."""
        cached = _value_types.get((dtype, device))
        # setdefault is atomic: of two threads that get here, both return the first one's object.
        return (
            cached
            if cached is not None
            else _value_types.setdefault((dtype, device), ValueType(dtype, device))
        )

    def lazy(self) -> ValueType:
        """Return the one object for lazy values of this type: another key of dispatch."""
        lazy_type = _lazy_types.get(self)
        if lazy_type is None:
            new_type = ValueType(self.dtype, self.device)
            new_type.materialized = self
            lazy_type = _lazy_types.setdefault(self, new_type)
        return lazy_type

    def __repr__(self) -> str:
        return f"{self.dtype} on {self.device}"

    def __reduce__(self) -> tuple[object, ...]:
        return (ValueType.of, (self.dtype, self.device))


cell_classes: Final[dict[str, type]] = {}
"""The classes of tensors on pseudo devices that have one of their own, by device type."""
_value_types: Final[dict[tuple[DType, Device], ValueType]] = {}
_lazy_types: Final[dict[ValueType, ValueType]] = {}

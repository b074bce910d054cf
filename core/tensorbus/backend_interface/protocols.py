"""The protocols that a backend owes: the runtime of a device type, its values, its kernels.

These are the interfaces that device authors implement. Core calls them and never asks who is behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..dtypes.definition import DType
from ..system.former_names import former_names
from .spec import Shape as Shape

if TYPE_CHECKING:
    from .compilation import FusedKernels


class Value(Protocol):
    """A device's own array, opaque to core: ``numpy.ndarray``, ``cupy.ndarray``, ``StridedArray`` ..."""

    @property
    def shape(self) -> Shape:
        """Its lengths, one for each axis."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProperties:
    """A device described by itself. ``memory`` is in bytes; ``dtypes`` are those its kernels compute in."""

    name: str
    vendor: str = ""
    driver: str = ""
    memory: int | None = None
    compute_units: int | None = None
    dtypes: frozenset[DType]
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStats:
    """Bytes in use by values, their peak, and what is held back for reuse.

    ``scope`` says what is counted: ``"device"`` for the values of this device, ``"process"`` where the
    device shares the host's memory and the whole process is what can be measured.
    """

    allocated: int
    peak: int
    reserved: int = 0
    total: int | None = None
    scope: str = "device"


class Runtime(Protocol):
    """The T0 functions. ``index`` is the unit of the device type, from 0."""

    def device_count(self) -> int:
        """Probe: return how many units there are. Raise, saying why, where there is none."""
        ...

    def properties(self, index: int) -> DeviceProperties:
        """Describe one unit."""
        ...

    def from_host(self, data: memoryview, shape: Shape, dtype: DType, index: int) -> Any:
        """Copy C-ordered bytes (format ``"B"``) into a new value of this shape and dtype."""
        ...

    def to_host(self, value: Any, dtype: DType, index: int) -> memoryview:
        """Return the elements of ``value`` as C-ordered bytes (format ``"B"``), waiting for them."""
        ...

    def synchronize(self, index: int) -> None:
        """Wait for all work handed to the unit; raise the error of work that failed, naming the op."""
        ...

    def memory_stats(self, index: int) -> MemoryStats:
        """Return the memory statistics of the unit."""
        ...

    def reset_peak_memory_stats(self, index: int) -> None:
        """Make the peak equal to what is allocated now."""
        ...


@former_names(apart="row_stride", places="layouts", leaves="side_size", takes="side_input", way="variant")
@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One op as it is about to run: what a kernel is prepared for.

    ``shapes`` and ``out_shape`` are ``None`` for elementwise ops: one prepared kernel serves every shape, and
    broadcasting is the kernel's own. ``dtypes`` are those of the operands after promotion; for a reduction of
    one operand it has one entry, for creation none. ``index`` is the unit of the device type. ``weak`` tells
    of each operand whether it is a Python number; it is empty where that is not known.

    The rest is for ``Kernel.out``. ``row_stride`` is the distance between rows of the result in its buffer;
    0: packed. ``layouts`` has the strides of each result there and its offset, in elements; empty: all are in
    C order. Where ``side_size`` is not 0, one more buffer follows those of the results, of so many float32
    that a later call reads: one with ``side_input``, whose values end with it. ``variant`` is the algorithm
    that autotuning chose; 0 is the usual one.
    """

    op: str
    dtypes: tuple[DType, ...]
    shapes: tuple[Shape, ...] | None
    attrs: Mapping[str, Any]
    out_dtype: DType
    out_shape: Shape | None
    index: int
    weak: tuple[bool, ...] = ()
    row_stride: int = 0
    layouts: tuple[tuple[Shape, int], ...] = ()
    side_size: int = 0
    side_input: bool = False
    variant: int = 0


Prepared = Callable[..., Any]


@former_names(over="inplace", into="out", late="runtime_attrs")
@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A way to run one op on one device type.

    Exactly one of two: ``function(*values, **attrs) -> value``, the plain form, or ``prepare(call)``, which
    returns a callable of the values alone and runs once for each signature. Values are the device's own; an
    elementwise kernel may be handed a Python scalar in the place of any but one of them. ``supports`` answers
    True or the reason why this kernel cannot serve the call. ``before`` and ``after`` name other kernels of
    the op that it should be preferred to, or yield to: by name, ``"distribution:name"``, or ``"*"`` for all.
    ``programs`` makes kernels of several ops, where this one was made by the same code generator.
    ``out(call)`` is for compiled programs: it returns what takes operands and buffers for the results and
    fills these, or returns False; or None where the kernel cannot do that for the call.
    ``runtime_attrs(call)`` returns what takes values and then, in order, the attributes that the op takes at
    run time (``Op.late``): one serves all of them. ``inplace(call, place)`` is for changes in place: it
    returns what takes values, and run-time attributes, and writes the result over the value at ``place``,
    which has the result's shape and dtype and which nobody but the caller refers to; or None. That returns
    False, and has written nothing, where something else may refer to the value's memory; it raises before it
    writes.
    """

    name: str
    function: Callable[..., Any] | None = None
    prepare: Callable[[Call], Prepared] | None = None
    dtypes: frozenset[DType] | None = None
    supports: Callable[[Call], bool | str] | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    out: Callable[[Call], Callable[[Sequence[Any], Sequence[Any]], bool] | None] | None = None
    programs: FusedKernels | None = None
    runtime_attrs: Callable[[Call], Callable[..., Any]] | None = None
    inplace: Callable[[Call, int], Callable[..., bool] | None] | None = None

    def __post_init__(self) -> None:
        if (self.function is None) == (self.prepare is None):
            raise TypeError(f"kernel {self.name!r} needs exactly one of function= and prepare=")


KernelTable = Mapping[str, "Callable[..., Any] | Kernel | Sequence[Kernel]"]
"""Of each op, by name, the kernel, or several, best first."""

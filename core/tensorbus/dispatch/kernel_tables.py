"""Kernels that plugins and the program itself registered for a device type, in order of precedence.

Precedence is a partial order that kernels declare (``before``, ``after``); where it says nothing the kernels
of the device's own backend come first, then others by the name of their plugin, never by loading.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..backend_interface.protocols import Kernel
from ..devices.device import Device
from ..dtypes.definition import DType
from ..errors import PluginError
from ..plugins import backend, opened

if TYPE_CHECKING:
    from ..backend_interface.compilation import FusedKernels

OwnedKernel = tuple[str, Kernel]
"""A kernel, after the plugin that it belongs to."""


class KernelTables:
    """The kernels that plugins registered for one device type."""

    def __init__(self, device_type: str) -> None:
        self._type = device_type
        self._backend = backend(device_type)
        own, *others = self._backend.kernels or [("", {})]
        self._tables = [own, *sorted(others, key=lambda table: table[0])]
        self._dtypes: dict[int, frozenset[DType]] = {}
        self._ordered: dict[str, tuple[OwnedKernel | None, Sequence[OwnedKernel]]] = {}
        fused = (kernel.programs for entry in own[1].values() for kernel in _kernels_of(entry))
        self.fused = next((each for each in fused if each is not None), None)

    def candidates(self, op: str) -> Sequence[OwnedKernel]:
        """Return the kernels for ``op``: the program's, those of the device's own backend, then others."""
        kernels = [(owner, kernel) for owner, table in self._tables for kernel in _kernels_of(table.get(op))]
        own = program_kernels(op).get(self._type)
        return kernels if own is None else [own, *kernels]

    def ordered(self, op: str) -> Sequence[OwnedKernel]:
        """Return the kernels for ``op``, best first; put in order once for as long as they are the same."""
        own = program_kernels(op).get(self._type)
        known = self._ordered.get(op)
        if known is None or known[0] is not own:
            known = self._ordered[op] = own, in_order(op, self.candidates(op))
        return known[1]

    def dtypes(self, index: int) -> frozenset[DType]:
        """Return what the unit computes in."""
        if index not in self._dtypes:
            self._dtypes[index] = self._backend.properties(index).dtypes
        return self._dtypes[index]


def _kernels_of(entry: Callable[..., Any] | Kernel | Sequence[Kernel] | None) -> Sequence[Kernel]:
    """Return the kernels of an entry of a table."""
    if entry is None:
        return ()
    if isinstance(entry, Kernel):
        return (entry,)
    return entry if isinstance(entry, Sequence) else (Kernel(name="default", function=entry),)


# Each use is one operation on a dict, which Python makes whole: no lock, as `forget` also runs in forked
# children, where a lock that another thread held would never be released.
_tables: dict[str, KernelTables] = {}
_program_kernels: dict[str, Mapping[str, OwnedKernel]] = {}
_NOTHING: Mapping[str, OwnedKernel] = {}


def register_program_kernels(op: str, kernels: Mapping[str, OwnedKernel]) -> None:
    """Serve an op of the program's own: with a kernel for each of these device types."""
    _program_kernels[op] = kernels


def forget_program_kernels(op: str) -> None:
    """Forget the kernels of an op that the program has taken back."""
    _program_kernels.pop(op, None)


def program_kernels(op: str) -> Mapping[str, OwnedKernel]:
    """Return the program's own kernels for ``op``, by device type: none for ops of core and plugins."""
    return _program_kernels.get(op, _NOTHING)


def forget() -> None:
    """Forget every kernel table: plugins came or went."""
    _tables.clear()


def tables_of(device_type: str) -> KernelTables:
    """Return the kernel tables of a device type, bringing the device up if need be."""
    tables = _tables.get(device_type)
    if tables is None:
        tables = _tables.setdefault(device_type, KernelTables(device_type))
    return tables


def fused_kernels(device_type: str) -> FusedKernels | None:
    """Return what makes one kernel of several ops, where the device's own kernels have that."""
    return tables_of(device_type).fused


def is_served(device_type: str, op: str) -> bool:
    """Return whether a device type that is in use has a kernel for ``op``, or a user kernel."""
    if device_type in program_kernels(op):
        return True
    return device_type in opened() and bool(tables_of(device_type).candidates(op))


def owner_of(device: Device) -> str:
    """Return how the kernels of the device's own package are signed."""
    return backend(device.type).kernels[0][0] if backend(device.type).kernels else ""


def has_others(op: str, device: Device) -> bool:
    """Return whether a package has a kernel for an op of a device that it does not supply itself."""
    return any(op in kernels for _, kernels in backend(device.type).kernels[1:])


def names_of(owner: str, kernel: Kernel) -> tuple[str, str]:
    """Return how a kernel may be named: alone, and with its distribution."""
    return kernel.name, f"{owner.split()[0]}:{kernel.name}"


def in_order(op: str, kernels: Sequence[OwnedKernel]) -> list[OwnedKernel]:
    """Return kernels best first.

    ``before`` and ``after`` name kernels (``"flash"``), one distribution's (``"npu-fast:flash"``), or all
    (``"*"``).
    Raises ``PluginError`` naming the plugins where the declared order contradicts itself.
    """

    def meant(names: Sequence[str]) -> set[int]:
        return {
            k for k, (owner, kernel) in enumerate(kernels)
            if {"*", *names_of(owner, kernel)} & {*names}
        }  # fmt: skip

    ahead = [meant(kernel.after) - {k} for k, (_, kernel) in enumerate(kernels)]
    for k, (_, kernel) in enumerate(kernels):
        for later in meant(kernel.before) - {k}:
            ahead[later].add(k)
    pending, done = list(range(len(kernels))), list[int]()
    while pending:
        free = next((k for k in pending if ahead[k] <= set(done)), None)
        if free is None:
            claims = " and ".join(f"{kernels[k][1].name!r} of {kernels[k][0]!r}" for k in pending)
            raise PluginError(f"{op}: kernels {claims} each claim to come before the other; drop one claim.")
        pending.remove(free)
        done.append(free)
    return [kernels[k] for k in done]


def unmet(device_type: str, ops: Container[str]) -> list[str]:
    """Return what the kernel tables of a device that is ready name and nobody has: ops, and other kernels."""
    problems = []
    for op in sorted({op for _, table in backend(device_type).kernels for op in table}):
        kernels = tables_of(device_type).candidates(op)
        if op not in ops:
            owners = sorted({owner for owner, _ in kernels})
            problems.append(f"the kernel table of {', '.join(owners)} has {op!r}, and there is no such op")
        known = {"*", *(name for each in kernels for name in names_of(*each))}
        for owner, kernel in kernels:
            for where, names in (("before", kernel.before), ("after", kernel.after)):
                problems += [
                    f"kernel {kernel.name!r} of {owner} for {op!r} is to come {where} {name!r}, and there is"
                    f" no such kernel"
                    for name in names
                    if name not in known
                ]
    return problems

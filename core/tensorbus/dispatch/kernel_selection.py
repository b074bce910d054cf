"""Which kernel serves a call: what plugins registered for the op, best first, each with a verdict.

Precedence is a partial order that kernels declare (``before``, ``after``); where it says nothing the kernels
of the device's own backend come first, then others by the name of their plugin, never by loading.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..backend_interface.protocols import Call, FusedKernels, Kernel
from ..devices.device import Device
from ..dtypes.definition import DType
from ..errors import PluginError, TensorbusError, UnsupportedOpError
from ..plugins import backend, opened
from .kernel_preference import preferred

Offer = tuple[str, Kernel]
"""A kernel and the plugin that it belongs to."""


class KernelSource(Protocol):
    """Where the kernels of a device type come from: its plugins, or a capture that records instead."""

    def candidates(self, op: str) -> Sequence[Offer]:
        """Return the kernels for ``op``, those of the device's own backend first."""
        ...

    def dtypes(self, index: int) -> frozenset[DType] | None:
        """Return what the unit computes in; None for everything."""
        ...


class _Plugins:
    """The kernels that plugins registered for one device type."""

    def __init__(self, device_type: str) -> None:
        self._type = device_type
        self._backend = backend(device_type)
        own, *others = [(owner, dict(kernels)) for owner, kernels in self._backend.kernels] or [("", {})]
        self._tables = [own, *sorted(others, key=lambda table: table[0])]
        self._properties: dict[int, frozenset[DType]] = {}
        made = (kernel.programs for entry in own[1].values() for kernel in _kernels(entry))
        self.programs = next((programs for programs in made if programs is not None), None)

    def candidates(self, op: str) -> Sequence[Offer]:
        found = [(owner, kernel) for owner, table in self._tables for kernel in _kernels(table.get(op))]
        own = program_kernels(op).get(self._type)
        return found if own is None else [own, *found]

    def dtypes(self, index: int) -> frozenset[DType] | None:
        if index not in self._properties:
            self._properties[index] = self._backend.properties(index).dtypes
        return self._properties[index]


def _kernels(entry: Callable[..., Any] | Kernel | Sequence[Kernel] | None) -> Sequence[Kernel]:
    """Return the kernels of an entry of a table."""
    if entry is None:
        return ()
    if isinstance(entry, Kernel):
        return (entry,)
    return entry if isinstance(entry, Sequence) else (Kernel(name="default", function=entry),)


# Each use is one operation on a dict, which Python makes whole: no lock, as `forget` also runs in forked
# children, where a lock that another thread held would never be released.
_sources: dict[str, KernelSource] = {}
_offered: dict[str, Mapping[str, Offer]] = {}
_NOTHING: Mapping[str, Offer] = {}


def register_program_kernels(op: str, kernels: Mapping[str, Offer]) -> None:
    """Serve an op of the program's own: with a kernel for each of these device types."""
    _offered[op] = kernels


def program_kernels(op: str) -> Mapping[str, Offer]:
    """Return what the program itself has for ``op``, by device type: nothing for ops of core and plugins."""
    return _offered.get(op, _NOTHING)


def forget() -> None:
    """Forget every kernel table: plugins came or went."""
    _sources.clear()


def source(device_type: str) -> KernelSource:
    """Return where the kernels of a device type come from, bringing the device up if need be."""
    found = _sources.get(device_type)
    if found is None:
        found = _sources.setdefault(device_type, _Plugins(device_type))
    return found


def programs(device_type: str) -> FusedKernels | None:
    """Return what makes programs of several ops, where the device's own kernels have that."""
    found = source(device_type)
    return found.programs if isinstance(found, _Plugins) else None


def is_served(device_type: str, op: str) -> bool:
    """Return whether a device type that is in use has a kernel for ``op``, or the program brought one."""
    if device_type in program_kernels(op):
        return True
    return device_type in opened() and bool(source(device_type).candidates(op))


def owner_of(device: Device) -> str:
    """Return how the kernels of the device's own package are signed."""
    return backend(device.type).kernels[0][0] if backend(device.type).kernels else ""


def has_others(op: str, device: Device) -> bool:
    """Return whether a package has a kernel for an op of a device that it does not supply itself."""
    return any(op in kernels for _, kernels in backend(device.type).kernels[1:])


def _names(owner: str, kernel: Kernel) -> tuple[str, str]:
    """Return how a kernel may be named: alone, and with its distribution."""
    return kernel.name, f"{owner.split()[0]}:{kernel.name}"


def order(op: str, found: Sequence[Offer]) -> list[Offer]:
    """Return kernels best first.

    ``before`` and ``after`` name kernels (``"flash"``), one distribution's (``"npu-fast:flash"``), or all
    (``"*"``).
    Raises ``PluginError`` naming the plugins where the declared order contradicts itself.
    """

    def meant(names: Sequence[str]) -> set[int]:
        return {
            k for k, (owner, kernel) in enumerate(found)
            if {"*", *_names(owner, kernel)} & {*names}
        }  # fmt: skip

    ahead = [meant(kernel.after) - {k} for k, (_, kernel) in enumerate(found)]
    for k, (_, kernel) in enumerate(found):
        for later in meant(kernel.before) - {k}:
            ahead[later].add(k)
    pending, done = list(range(len(found))), list[int]()
    while pending:
        free = next((k for k in pending if ahead[k] <= set(done)), None)
        if free is None:
            claims = " and ".join(f"{found[k][1].name!r} of {found[k][0]!r}" for k in pending)
            raise PluginError(f"{op}: kernels {claims} each claim to come before the other; drop one claim.")
        pending.remove(free)
        done.append(free)
    return [found[k] for k in done]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether one kernel can serve a call: ``reason`` is None where it can."""

    owner: str
    kernel: Kernel
    reason: str | None


def judge(op: str, call: Call, device: Device) -> list[Verdict]:
    """Return every kernel of ``op`` on ``device``, best first, each with its verdict on ``call``."""
    offers = order(op, source(device.type).candidates(op))
    return [
        Verdict(owner=owner, kernel=kernel, reason=_refusal(owner, kernel, call)) for owner, kernel in offers
    ]


def unmet(device_type: str, ops: Collection[str]) -> list[str]:
    """Return what the kernel tables of a device that is ready name and nobody has: ops, and other kernels."""
    found = []
    tables = backend(device_type).kernels
    for op in sorted({op for _, table in tables for op in table}):
        offers = source(device_type).candidates(op)
        if op not in ops:
            owners = sorted({owner for owner, _ in offers})
            found.append(f"the kernel table of {', '.join(owners)} has {op!r}, and there is no such op")
        known = {"*", *(name for offer in offers for name in _names(*offer))}
        for owner, kernel in offers:
            for where, names in (("before", kernel.before), ("after", kernel.after)):
                found += [
                    f"kernel {kernel.name!r} of {owner} for {op!r} is to come {where} {name!r}, and there is"
                    f" no such kernel"
                    for name in names
                    if name not in known
                ]
    return found


def _refusal(owner: str, kernel: Kernel, call: Call) -> str | None:
    if kernel.dtypes is not None and not kernel.dtypes.issuperset(call.dtypes):
        return f"takes only {', '.join(sorted(d.name for d in kernel.dtypes))}"
    try:
        answer = True if kernel.supports is None else kernel.supports(call)
    except TensorbusError:
        raise
    except Exception as error:
        raise PluginError(
            f"{call.op}: kernel {kernel.name!r} of {owner} cannot say whether it serves the call: its"
            f" supports failed with {type(error).__name__}: {error}. It must return True or the reason"
            f" why not."
        ) from error
    return None if answer is True else str(answer or "does not support this call")


def choose(op: str, verdicts: Sequence[Verdict], device: Device) -> Verdict | None:
    """Return the kernel that runs: the one that is preferred here, else the first that can; None without one.

    Raises ``UnsupportedOpError`` where the preferred kernel is not there or cannot serve the call.
    """
    name = preferred(op)
    if name is None:
        return next((v for v in verdicts if v.reason is None), None)
    named = [v for v in verdicts if name in _names(v.owner, v.kernel)]
    if not named:
        known = ", ".join(repr(v.kernel.name) for v in verdicts) or "none"
        raise UnsupportedOpError(f"{op}: {device.type} has no kernel {name!r} for it; it has {known}.")
    chosen = named[0]
    if len(named) > 1:
        owners = " and ".join(_names(v.owner, v.kernel)[1] for v in named)
        raise UnsupportedOpError(f"{op}: several kernels are called {name!r}; choose one of {owners}.")
    if chosen.reason is not None:
        raise UnsupportedOpError(
            f"{op}: kernel {name!r} of {chosen.owner}, which prefer_kernel asks for, cannot serve this call"
            f" on {device}: {chosen.reason}."
        )
    return chosen

"""From an op and the types of its operands to what runs: once for each signature, then cached.

Selection: the kernels that the device's plugins registered for the op, best first by their declared order;
the first whose ``supports`` says True. Without one the op decomposes; without a decomposition it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .device import Device, ValueType
from .dtypes import DType
from .errors import DeviceError, PluginError, UnsupportedDtypeError, UnsupportedOpError
from .ops.op import Op, Shape, Spec, table
from .plugins import backend, known_types, on_change
from .runtime import Call, Kernel

Operand = ValueType | type


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What one signature of an op comes down to.

    ``run`` takes values and returns the value; it is None where the op decomposes. ``casts`` are the dtypes
    that a decomposition's operands need first, None where an operand fits as it is; ``computed`` are those
    that the op computes in. ``keeps`` and ``keeps_out``
    say which operands, and whether the result, the derivative needs.
    """

    op: Op[...]
    operands: tuple[Operand, ...]
    run: Any
    out: ValueType
    casts: tuple[DType | None, ...]
    attrs: Mapping[str, Any]
    computed: tuple[DType, ...] = ()
    keeps: tuple[bool, ...] = field(init=False, default=())
    keeps_out: bool = field(init=False, default=False)
    differentiable: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        names = self.op.operands
        if names and names[-1].startswith("*"):
            names = (*names[:-1], *(names[-1][1:],) * (len(self.operands) - len(names) + 1))
        again = self.op.vjp is None and self.op.decompose is not None
        object.__setattr__(self, "keeps", tuple(again or n in self.op.needs for n in names))
        object.__setattr__(self, "keeps_out", "out" in self.op.needs)
        object.__setattr__(self, "differentiable", self.out.dtype.is_inexact)


class KernelSource(Protocol):
    """Where the kernels of a device type come from: its plugins, or a capture that records instead."""

    def candidates(self, op: str) -> Sequence[tuple[str, Kernel]]:
        """Return ``(owner, kernel)`` pairs in the order of their registration."""
        ...

    def dtypes(self, index: int) -> frozenset[DType] | None:
        """Return what the unit computes in; None for everything."""
        ...


class _Plugins:
    """The kernels that plugins registered for one device type."""

    def __init__(self, device_type: str) -> None:
        self._backend = backend(device_type)
        self._tables = [(owner, dict(kernels)) for owner, kernels in self._backend.kernels]
        self._properties: dict[int, frozenset[DType]] = {}

    def candidates(self, op: str) -> Sequence[tuple[str, Kernel]]:
        found = []
        for owner, kernels in self._tables:
            entry = kernels.get(op)
            if entry is not None:
                found.append(
                    (owner, entry if isinstance(entry, Kernel) else Kernel(name=owner, function=entry))
                )
        return found

    def dtypes(self, index: int) -> frozenset[DType] | None:
        if index not in self._properties:
            self._properties[index] = self._backend.properties(index).dtypes
        return self._properties[index]


# Each use is one operation on a dict or list, which Python makes whole: no lock, as `invalidate` also runs in
# forked children, where a lock that another thread held would never be released.
_sources: dict[str, KernelSource] = {}
_fixed: dict[str, KernelSource] = {}
_caches: list[dict[Any, Plan]] = []


def add_source(device_type: str, source: KernelSource) -> None:
    """Serve a device type that is no plugin: the type of values being captured."""
    _fixed[device_type] = source


def new_cache() -> dict[Any, Plan]:
    """Return a cache of plans that is emptied whenever plugins come or go."""
    cache: dict[Any, Plan] = {}
    _caches.append(cache)
    return cache


def invalidate() -> None:
    """Forget every plan and every kernel table."""
    _sources.clear()
    for cache in _caches:
        cache.clear()


on_change(invalidate)


def source(device_type: str) -> KernelSource:
    """Return where the kernels of a device type come from, bringing the device up if need be."""
    found = _sources.get(device_type) or _fixed.get(device_type)
    if found is None:
        found = _sources.setdefault(device_type, _Plugins(device_type))
    return found


def order(op: str, found: Sequence[tuple[str, Kernel]]) -> list[tuple[str, Kernel]]:
    """Return kernels best first: later registrations yield, unless ``before``/``after`` say otherwise.

    Raises ``PluginError`` naming both owners where the declared order contradicts itself.
    """
    pending = list(found)
    names = {kernel.name for _, kernel in pending}
    ahead = {kernel.name: {n for n in kernel.after if n in names} for _, kernel in pending}
    for _, kernel in pending:
        for later in kernel.before:
            if later in ahead:
                ahead[later].add(kernel.name)
    result: list[tuple[str, Kernel]] = []
    while pending:
        done = {kernel.name for _, kernel in result}
        free = next((pair for pair in pending if ahead[pair[1].name] <= done), None)
        if free is None:
            claims = " and ".join(f"{kernel.name!r} of {owner!r}" for owner, kernel in pending)
            raise PluginError(f"{op}: kernels {claims} each claim to come before the other; drop one claim.")
        pending.remove(free)
        result.append(free)
    return result


def select(op: Op[...], call: Call, device: Device) -> tuple[Kernel | None, list[str]]:
    """Return the kernel that serves ``call``, or None, and why each one before it was passed over."""
    reasons = []
    for owner, kernel in order(op.name, source(device.type).candidates(op.name)):
        if kernel.dtypes is not None and not kernel.dtypes.issuperset(call.dtypes):
            reasons.append(
                f"{kernel.name} of {owner}: takes only {', '.join(sorted(d.name for d in kernel.dtypes))}"
            )
            continue
        answer = True if kernel.supports is None else kernel.supports(call)
        if answer is True:
            return kernel, reasons
        reasons.append(f"{kernel.name} of {owner}: {answer}")
    return None, reasons


def common_device(op: str, operands: Sequence[Operand]) -> Device:
    """Return the device of all operands. Raises ``DeviceError`` naming both where they differ."""
    devices = [o.device for o in operands if isinstance(o, ValueType)]
    for other in devices[1:]:
        if other != devices[0]:
            raise DeviceError(
                f"{op}: operands lie on {devices[0]} and {other}; all must be on one device."
                f" Move one with .to({str(devices[0])!r})."
            )
    return devices[0]


def plan(
    op: Op[...], operands: Sequence[Operand], shapes: Sequence[Shape] | None, attrs: Mapping[str, Any]
) -> Plan:
    """Work out how ``op`` runs. ``shapes`` is None for elementwise ops, whose plan serves every shape.

    Raises the error of the op's own rules before any kernel is touched, then ``UnsupportedDtypeError`` or
    ``UnsupportedOpError`` where the device cannot run it.
    """
    given = dict(attrs)
    device = common_device(op.name, operands) if operands else given["device"]
    if op.family == "creation":
        given.pop("device")
    dtypes = tuple(o.dtype if isinstance(o, ValueType) else o for o in operands)
    computed = op.compute(dtypes, **given) if op.compute else tuple(d for d in dtypes if isinstance(d, DType))
    sized = tuple(Spec(s, d) for s, d in zip(shapes or [()] * len(computed), computed, strict=True))
    if op.normalize is not None:
        given = op.normalize(sized, **given)
    out = op.infer(sized, **given)
    call = Call(
        op=op.name, dtypes=computed, shapes=tuple(shapes) if shapes is not None else None, attrs=given,
        out_dtype=out.dtype, out_shape=out.shape if shapes is not None else None, index=device.index,
    )  # fmt: skip
    _check_dtypes(op.name, (*(d for d in dtypes if isinstance(d, DType)), *computed, out.dtype), device)
    casts = tuple(
        c if isinstance(d, DType) and d is not c else None for d, c in zip(dtypes, computed, strict=True)
    )
    result = ValueType.of(out.dtype, device)
    kernel, reasons = select(op, call, device)
    if kernel is not None:
        run = _prepare(kernel, call, device, casts, dtypes)
        return Plan(
            op=op, operands=tuple(operands), run=run, out=result, casts=casts, attrs=given, computed=computed
        )
    if op.decompose is None:
        raise UnsupportedOpError(_unsupported(op, device, call, reasons))
    return Plan(
        op=op, operands=tuple(operands), run=None, out=result, casts=casts, attrs=given, computed=computed
    )


def _check_dtypes(op: str, dtypes: Sequence[DType], device: Device) -> None:
    known = source(device.type).dtypes(device.index)
    if known is not None and not known.issuperset(dtypes):
        lacking = next(d for d in dtypes if d not in known)
        raise UnsupportedDtypeError(
            f"{op}: {device} has no {lacking}; it has {', '.join(sorted(d.name for d in known))}."
            f" Cast with .to(dtype), or move to another device."
        )


def _prepare(
    kernel: Kernel,
    call: Call,
    device: Device,
    casts: Sequence[DType | None],
    dtypes: Sequence[DType | type],
) -> Callable[..., Any]:
    if kernel.prepare is not None:
        run = kernel.prepare(call)
    else:
        function, attrs = kernel.function, dict(call.attrs)
        assert function is not None
        run = (lambda *values: function(*values, **attrs)) if attrs else function
    if not any(casts):
        return run
    converts = [
        _cast_kernel(ValueType.of(d, device), c) if c is not None and isinstance(d, DType) else None
        for d, c in zip(dtypes, casts, strict=True)
    ]
    return lambda *values: run(
        *[v if convert is None else convert(v) for convert, v in zip(converts, values, strict=True)]
    )


def _cast_kernel(operand: ValueType, target: DType) -> Callable[..., Any]:
    run: Callable[..., Any] | None = plan(table["cast"], (operand,), None, {"dtype": target}).run
    if run is None:
        raise UnsupportedOpError(
            f"cast: {operand.device} has no kernel to turn {operand.dtype} into {target}."
        )
    return run


def _unsupported(op: Op[...], device: Device, call: Call, reasons: Sequence[str]) -> str:
    served = [t for t in known_types() if t != device.type and _serves(t, op.name)]
    asked = ", ".join(d.name for d in call.dtypes) or call.out_dtype.name
    text = f"{op.name}: no kernel on {device} for {asked}"
    if reasons:
        text += f" ({'; '.join(reasons)})"
    where = f"; supported on {', '.join(served)}" if served else ""
    return f"{text}, and it has no decomposition{where}. Move the operands with .to(device)."


def _serves(device_type: str, op: str) -> bool:
    found = _sources.get(device_type)
    return found is not None and bool(found.candidates(op))

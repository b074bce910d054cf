"""From an op and the types of its operands to what runs: once for each signature, then cached.

Selection: the kernels that the device's plugins registered for the op, best first by their declared order;
the first whose ``supports`` says True. Without one the op decomposes; without a decomposition it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..backend_interface.protocols import Call, FusedKernels, Kernel
from ..devices.device import Device, ValueType
from ..dtypes.definition import DType
from ..errors import (
    DeviceError,
    DtypeError,
    PluginError,
    TensorbusError,
    UnsupportedDtypeError,
    UnsupportedOpError,
)
from ..ops import fused_function
from ..ops.definition import Op, Shape, Spec, table
from ..ops.elementwise.family import broadcast_shapes
from ..plugins import known_types, on_change
from .host_fallback import fallback_mode, through_host
from .kernel_preference import on_first
from .kernel_selection import (
    Verdict,
    choose,
    forget,
    is_served,
    judge,
    program_kernels,
    programs,
    source,
)
from .modes import value_modes
from .result_check import wrong

Operand = ValueType | type


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What one signature of an op comes down to.

    ``run`` takes values and returns the value (of an op of several results: the values); it is None where the
    op decomposes. Its first result is examined; from then on ``run`` is the kernel alone. ``kernel`` names it
    and its package. ``out`` is the type of the result, ``outs`` and ``shapes`` tell those of several.
    ``lift`` makes operands from outside into ones of a transform first; ``run`` is then None too. ``casts``
    are the dtypes that a decomposition's operands need first, None where an operand fits as it is;
    ``computed`` are those that the op computes in. ``source`` is the kernel, and the call that it was chosen
    for. ``keeps`` and ``keeps_out`` say which operands, and whether the result, the derivative needs.
    ``programs`` makes programs of several ops, where the device's kernels are generated; ``backs`` are those
    of the derivative.
    """

    op: Op[...]
    operands: tuple[Operand, ...]
    run: Any
    out: ValueType
    casts: tuple[DType | None, ...]
    attrs: Mapping[str, Any]
    computed: tuple[DType, ...] = ()
    outs: tuple[ValueType, ...] = ()
    shapes: tuple[Shape, ...] = ()
    lift: Callable[[Any], Any] | None = None
    kernel: str = ""
    source: tuple[Kernel, Call] | None = None
    programs: FusedKernels | None = None
    backs: dict[Any, Any] = field(init=False, default_factory=dict)
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
        kinds = self.outs or (self.out,)
        object.__setattr__(self, "differentiable", any(kind.dtype.is_inexact for kind in kinds))


# Each use is one operation on a list, which Python makes whole: no lock, as `invalidate` also runs in
# forked children, where a lock that another thread held would never be released.
_caches: list[dict[Any, Plan]] = []
_observers: list[Callable[[Op[...], Call, Device, Sequence[Verdict], Verdict | None], None]] = []


def observe(
    observer: Callable[[Op[...], Call, Device, Sequence[Verdict], Verdict | None], None],
) -> None:
    """Call ``observer`` at each choice of a kernel: once for a signature, not for each call."""
    _observers.append(observer)


def notify(
    op: Op[...], call: Call, device: Device, verdicts: Sequence[Verdict], chosen: Verdict | None
) -> None:
    """Tell the observers what runs a call."""
    for observer in _observers:
        observer(op, call, device, verdicts, chosen)


def new_cache() -> dict[Any, Plan]:
    """Return a cache of plans that is emptied whenever plugins come or go."""
    cache: dict[Any, Plan] = {}
    _caches.append(cache)
    return cache


def invalidate() -> None:
    """Forget every plan and every kernel table."""
    forget()
    fused_function.forget_programs()
    for cache in _caches:
        cache.clear()


on_change(invalidate)
on_first(invalidate)


def common_device(op: str, operands: Sequence[Operand]) -> Device:
    """Return the device of all operands. Raises ``DeviceError`` naming both where they differ.

    Raises ``DtypeError`` where all of them are Python scalars.
    """
    devices = [o.device for o in operands if isinstance(o, ValueType)]
    if not devices:
        given = ", ".join(o.__name__ for o in operands if not isinstance(o, ValueType))
        raise DtypeError(
            f"{op}: at least one operand must be a tensor, got {given}. Make one with tensorbus.asarray."
        )
    if value_modes:
        inner = [d for d in devices if d.type in value_modes]
        if inner:  # the innermost transform sees the values of all others as constants
            return max(inner, key=lambda d: d.index)
    for other in devices[1:]:
        if other != devices[0]:
            raise DeviceError(
                f"{op}: operands lie on {devices[0]} and {other}; all must be on one device."
                f" Move one with .to({str(devices[0])!r})."
            )
    return devices[0]


def plan(
    op: Op[...], operands: Sequence[Operand], shapes: Sequence[Shape] | None, attrs: Mapping[str, Any],
    computed: tuple[DType, ...] | None = None, *, captured: bool = False,
) -> Plan:  # fmt: skip
    """Work out how ``op`` runs. ``shapes`` is None for elementwise ops, whose plan serves every shape.

    ``computed`` are the dtypes that the op computes in where they are known, as those of a graph's nodes are;
    ``attrs`` are as kernels see them then. Of a ``captured`` op the kernel is prepared when it runs, if ever.
    Raises the error of the op's own rules before any kernel is touched, then ``UnsupportedDtypeError`` or
    ``UnsupportedOpError`` where the device cannot run it.
    """
    given = dict(attrs)
    device = common_device(op.name, operands) if operands else given["device"]
    if op.family == "creation":
        given.pop("device")
    dtypes = tuple(o.dtype if isinstance(o, ValueType) else o for o in operands)
    normal = computed is not None
    if computed is None:
        strong = (d for d in dtypes if isinstance(d, DType))
        computed = op.compute(dtypes, **given) if op.compute else tuple(strong)
    sized = tuple(Spec(s, d) for s, d in zip(shapes or [()] * len(computed), computed, strict=True))
    if op.normalize is not None and not normal:
        given = op.normalize(sized, **given)
    outs = op.specs(sized, given)
    out = outs[0]
    call = Call(
        op=op.name, dtypes=computed, shapes=tuple(shapes) if shapes is not None else None, attrs=given,
        out_dtype=out.dtype, out_shape=out.shape if shapes is not None else None, index=device.index,
        weak=tuple(isinstance(o, type) for o in operands),
    )  # fmt: skip
    given_dtypes = [d for d in dtypes if isinstance(d, DType)]
    _check_dtypes(op.name, [*given_dtypes, *computed, *(o.dtype for o in outs)], device)
    casts = tuple(
        c if isinstance(d, DType) and d is not c else None for d, c in zip(dtypes, computed, strict=True)
    )
    several = bool(op.results)
    lift = _lift(operands, device)
    run, kernel, chosen = None, "", None
    if lift is None:
        kinds = [o.dtype for o in outs]
        run, kernel, chosen = _run(op, call, operands, device, casts, kinds, captured=captured)
    made = Plan(
        op=op, operands=tuple(operands), casts=casts, attrs=given, computed=computed,
        run=run, lift=lift, kernel=kernel, source=None if chosen is None else (chosen, call),
        out=ValueType.of(out.dtype, device),
        outs=tuple(ValueType.of(o.dtype, device) for o in outs) if several else (),
        shapes=tuple(o.shape for o in outs) if several else (),
        programs=_programs(op, device),
    )  # fmt: skip
    if kernel and not captured:
        object.__setattr__(made, "run", _examined(made, outs, sized=shapes is not None))
    return made


def _programs(op: Op[...], device: Device) -> FusedKernels | None:
    """Return what makes programs of derivatives: of core's ops only, which depend on nothing else."""
    own = device.type not in value_modes and table.owner(op.name) == "tensorbus"
    return programs(device.type) if own else None


def _examined(found: Plan, outs: Sequence[Spec], *, sized: bool) -> Callable[..., Any]:
    """Return the ``run`` of a plan until it has returned what it must, once."""
    op, run, device = found.op, found.run, found.out.device

    def first(*values: Any) -> Any:
        made = run(*values)
        if found.run is not run:
            specs = outs
            if not sized:
                shape = broadcast_shapes(*[v.shape for v in values if hasattr(v, "shape")])
                specs = [Spec(shape, o.dtype) for o in outs]
            text = wrong(made, specs, device, several=bool(op.results))
            if text is not None:
                raise PluginError(f"{op.name} on {device}: {found.kernel} {text}.")
            object.__setattr__(found, "run", run)
        return made

    return first


def _lift(operands: Sequence[Operand], device: Device) -> Callable[[Any], Any] | None:
    """Return what makes operands from outside into ones of a transform, where there are any."""
    mode = value_modes.get(device.type)
    if mode is None or all(o.device == device for o in operands if isinstance(o, ValueType)):
        return None
    return lambda x: x if getattr(x, "device", device) == device else mode.lift(x, device)


def _run(
    op: Op[...], call: Call, operands: Sequence[Operand], device: Device, casts: Sequence[DType | None],
    outs: Sequence[DType], *, captured: bool,
) -> tuple[Callable[..., Any] | None, str, Kernel | None]:  # fmt: skip
    """Return what runs ``call``, None where the op decomposes; and the kernel and its name, if it is one."""
    mode = value_modes.get(device.type)
    if mode is not None:
        run = mode.prepare(op, call)
        if run is None and op.decompose is None:
            raise UnsupportedOpError(f"{op.name}: this op has no batching rule, and no decomposition.")
        return run, "", None
    verdicts = judge(op.name, call, device)
    chosen = choose(op.name, verdicts, device)
    dtypes = [o.dtype if isinstance(o, ValueType) else o for o in operands]
    notify(op, call, device, verdicts, chosen)
    if chosen is not None:
        kernel = chosen.kernel
        named = f"kernel {kernel.name!r} of {chosen.owner}"
        if captured:
            return lambda *values: _prepare(kernel, named, call, device, casts, dtypes)(*values), named, None
        return _prepare(kernel, named, call, device, casts, dtypes), named, kernel
    if op.decompose is not None:
        return None, "", None
    if fallback_mode() == "error" or op.family in ("creation", "random"):
        raise UnsupportedOpError(_unsupported(op, device, call, verdicts))
    return _falling_back(op, call, operands, device, dtypes, outs), "", None


def _falling_back(
    op: Op[...], call: Call, operands: Sequence[Operand], device: Device, dtypes: Sequence[DType | type],
    outs: Sequence[DType],
) -> Callable[..., Any]:  # fmt: skip
    def on(host: Device) -> Callable[..., Any]:
        moved = [ValueType.of(o.dtype, host) if isinstance(o, ValueType) else o for o in operands]
        run: Callable[..., Any] | None = plan(op, moved, call.shapes, call.attrs).run
        if run is None:
            raise UnsupportedOpError(f"{op.name}: {host} has no kernel for it to fall back to.")
        return run

    return through_host(op.name, device, dtypes, outs, bool(op.results), on)


def _check_dtypes(op: str, dtypes: Sequence[DType], device: Device) -> None:
    known = None if device.type in value_modes else source(device.type).dtypes(device.index)
    if known is not None and not known.issuperset(dtypes):
        lacking = next(d for d in dtypes if d not in known)
        raise UnsupportedDtypeError(
            f"{op}: {device} has no {lacking}; it has {', '.join(sorted(d.name for d in known))}."
            f" Cast with .to(dtype), or move to another device."
        )


def _prepare(
    kernel: Kernel,
    named: str,
    call: Call,
    device: Device,
    casts: Sequence[DType | None],
    dtypes: Sequence[DType | type],
) -> Callable[..., Any]:
    if kernel.prepare is not None:
        run = _prepared(kernel, named, call, device)
    else:
        function, attrs = kernel.function, dict(call.attrs)
        assert function is not None
        run = (lambda *values: function(*values, **attrs)) if attrs else function
    if not any(casts):
        return run
    converts = [
        _cast_plan(ValueType.of(d, device), c) if c is not None and isinstance(d, DType) else None
        for d, c in zip(dtypes, casts, strict=True)
    ]
    return lambda *values: run(
        *[v if convert is None else convert.run(v) for convert, v in zip(converts, values, strict=True)]
    )


def _prepared(kernel: Kernel, named: str, call: Call, device: Device) -> Callable[..., Any]:
    assert kernel.prepare is not None
    where = f"{call.op} on {device}: prepare of {named}"
    try:
        run: object = kernel.prepare(call)
    except (TensorbusError, MemoryError):
        raise
    except Exception as error:
        raise DeviceError(f"{where} failed with {type(error).__name__}: {error}") from error
    if not callable(run):
        raise PluginError(f"{where} returned {run!r}, and must return a function of the values.")
    return run


def _cast_plan(operand: ValueType, target: DType) -> Plan:
    found = plan(table["cast"], (operand,), None, {"dtype": target})
    if found.run is None:
        raise UnsupportedOpError(
            f"cast: {operand.device} has no kernel to turn {operand.dtype} into {target}."
        )
    return found


def _unsupported(op: Op[...], device: Device, call: Call, verdicts: Sequence[Verdict]) -> str:
    own = program_kernels(op.name)
    served = [
        t for t in {**dict.fromkeys(known_types()), **own} if t != device.type and is_served(t, op.name)
    ]
    reasons = [f"{v.kernel.name} of {v.owner}: {v.reason}" for v in verdicts]
    asked = ", ".join(d.name for d in call.dtypes) or call.out_dtype.name
    text = f"{op.name}: no kernel on {device} for {asked}"
    if reasons:
        text += f" ({'; '.join(reasons)})"
    where = f"; supported on {', '.join(served)}" if served else ""
    advice = f" Give the kernel source for {device.type!r}, or a default, or move" if own else " Move"
    return (
        f"{text}, and it has no decomposition{where}.{advice} the operands with"
        f" .to(device), or allow it on the host with tensorbus.fallback('warn')."
    )

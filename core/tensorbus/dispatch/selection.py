"""Selection: the candidate that runs a call, or the error that says why none does.

Stage 3 of dispatch. The first candidate that can serve the call is taken, or the kernel that the user
prefers. Observers hear of it once for a signature: ``tb.explain``, ``TENSORBUS_LOG=dispatch``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..backend_interface.protocols import Call
from ..devices.device import Device
from ..errors import UnsupportedOpError
from ..ops.definition import Op
from ..plugins import known_types
from .candidates import Candidate, Verdict
from .kernel_preference import preferred
from .kernel_tables import is_served, names_of, program_kernels
from .modes import value_modes
from .signature import Signature


class Selection(NamedTuple):
    """The candidate that runs a call, and those that it was taken from."""

    candidates: tuple[Candidate, ...]
    taken: Candidate


Observer = Callable[[Op[...], Call, Device, Sequence[Candidate], Candidate | None], None]
_observers: list[Observer] = []


def observe(observer: Observer) -> None:
    """Call ``observer`` at each selection: once for a signature, not for each call."""
    _observers.append(observer)


def has_observers() -> bool:
    """Return whether anybody observes selections."""
    return bool(_observers)


def notify(
    op: Op[...], call: Call, device: Device, candidates: Sequence[Candidate], taken: Candidate | None
) -> None:
    """Tell the observers which candidate runs a call; None: it is refused."""
    for observer in _observers:
        observer(op, call, device, candidates, taken)


def select(signature: Signature, candidates: tuple[Candidate, ...]) -> Selection:
    """Return the candidate that runs a call. Raises ``UnsupportedOpError`` where there is none.

    It raises that, too, where the kernel that is preferred is not there or cannot serve the call.
    """
    op, device = signature.op, signature.device
    if device.type in value_modes:
        taken = next((c for c in candidates if c.reason is None), None)
        if taken is None:
            raise UnsupportedOpError(f"{op.name}: this op has no batching rule, and no decomposition.")
        return Selection(candidates=candidates, taken=taken)
    verdicts = [c for c in candidates if isinstance(c, Verdict)]
    others = [c for c in candidates if not isinstance(c, Verdict)]
    taken = choose(op.name, verdicts, device) or next((c for c in others if c.reason is None), None)
    notify(op, signature.call, device, candidates, taken)
    if taken is None:
        raise UnsupportedOpError(_unsupported(op.name, signature.call, device, verdicts))
    return Selection(candidates=candidates, taken=taken)


def choose(op: str, verdicts: Sequence[Verdict], device: Device) -> Verdict | None:
    """Return the kernel that runs: the one that is preferred here, else the first that can; None without one.

    Raises ``UnsupportedOpError`` where the preferred kernel is not there or cannot serve the call.
    """
    name = preferred(op)
    if name is None:
        return next((v for v in verdicts if v.reason is None), None)
    named = [v for v in verdicts if name in names_of(v.owner, v.kernel)]
    if not named:
        known = ", ".join(repr(v.name) for v in verdicts) or "none"
        raise UnsupportedOpError(f"{op}: {device.type} has no kernel {name!r} for it; it has {known}.")
    chosen = named[0]
    if len(named) > 1:
        owners = " and ".join(names_of(v.owner, v.kernel)[1] for v in named)
        raise UnsupportedOpError(f"{op}: several kernels are called {name!r}; choose one of {owners}.")
    if chosen.reason is not None:
        raise UnsupportedOpError(
            f"{op}: kernel {name!r} of {chosen.owner}, which prefer_kernel asks for, cannot serve this call"
            f" on {device}: {chosen.reason}."
        )
    return chosen


def _unsupported(op: str, call: Call, device: Device, verdicts: Sequence[Verdict]) -> str:
    own = program_kernels(op)
    types = {**dict.fromkeys(known_types()), **own}
    served = [t for t in types if t != device.type and is_served(t, op)]
    reasons = [f"{v.name} of {v.owner}: {v.reason}" for v in verdicts]
    dtypes = ", ".join(d.name for d in call.dtypes) or call.out_dtype.name
    text = f"{op}: no kernel on {device} for {dtypes}"
    if reasons:
        text += f" ({'; '.join(reasons)})"
    where = f"; supported on {', '.join(served)}" if served else ""
    advice = f" Give the kernel source for {device.type!r}, or a default, or move" if own else " Move"
    if "::" in op:  # a custom op
        advice = f" Give it a kernel with register_kernel({device.type!r}), or move"
    return (
        f"{text}, and it has no decomposition{where}.{advice} the operands with"
        f" .to(device), or allow it on the host with tensorbus.fallback('warn')."
    )

"""Candidates for a call: everything that could run it, best first, each with a verdict.

Stage 2 of dispatch. Kernels come in their order of precedence, then the op's decomposition, then the host.
Values of a mode have no kernels: there the mode's own rule stands in their place.

The classes are named tuples because they are made at ``import tensorbus``, in a quarter of the time that
dataclasses take.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ..backend_interface.protocols import Call, Kernel
from ..devices.device import Device, ValueType
from ..errors import PluginError, TensorbusError
from ..ops.definition import table
from .host_fallback import refusal
from .kernel_tables import OwnedKernel, tables_of
from .modes import value_modes
from .signature import Signature


class Verdict(NamedTuple):
    """A kernel, and whether it can serve a call: ``reason`` is None where it can."""

    owner: str
    kernel: Kernel
    reason: str | None

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.kernel.name


class Decomposition(NamedTuple):
    """The op's definition in other ops; it serves every call."""

    owner: str
    name: str = "decomposition"
    reason: str | None = None


class HostFallback(NamedTuple):
    """The host's kernel, with copies there and back; ``reason`` says why it is out of the question here."""

    reason: str | None
    name: str = "host fallback"
    owner: str = "tensorbus"


class ModeRule(NamedTuple):
    """The rule of a mode for an op on its values, such as a batching rule of ``vmap``; None: it has none."""

    owner: str
    run: Callable[..., Any] | None
    name: str = "rule"

    @property
    def reason(self) -> str | None:
        """Why the rule cannot serve the call."""
        return None if self.run is not None else "there is none for this op"


class Lifting(NamedTuple):
    """Operands from outside are first made values of the mode: the op then has another signature."""

    owner: str
    lift: Callable[[Any], Any]
    name: str = "lifting"
    reason: str | None = None


class BackendVerdict(NamedTuple):
    """A backend of a function that has several, such as attention; ``reason`` is None where it can serve."""

    owner: str
    name: str
    reason: str | None


Candidate = Verdict | Decomposition | HostFallback | ModeRule | Lifting | BackendVerdict


def candidates_of(signature: Signature) -> tuple[Candidate, ...]:
    """Return what could run a call, best first."""
    op, device = signature.op, signature.device
    decompositions = () if op.decompose is None else (Decomposition(owner=table.owner(op.name)),)
    mode = value_modes.get(device.type)
    if mode is None:
        fallback = HostFallback(reason=refusal(op.family))
        return (*judge(op.name, signature.call, device), *decompositions, fallback)
    if any(o.device != device for o in signature.operands if isinstance(o, ValueType)):
        lift = partial(mode.lift_operand, op.name)
        return (
            Lifting(
                owner=device.type,
                lift=lambda x: x if getattr(x, "device", device) == device else lift(x, device),
            ),
        )
    return (ModeRule(owner=device.type, run=mode.prepare(op, signature.call)), *decompositions)


def judge(op: str, call: Call, device: Device) -> list[Verdict]:
    """Return every kernel of ``op`` on ``device``, best first, each with its verdict on ``call``."""
    return [_judged(each, call) for each in tables_of(device.type).ordered(op)]


def _judged(owned: OwnedKernel, call: Call) -> Verdict:
    owner, kernel = owned
    return Verdict(owner=owner, kernel=kernel, reason=_refusal(owner, kernel, call))


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

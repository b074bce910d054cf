"""Log of dispatch decisions, for those who want to see them: ``tb.explain`` and ``TENSORBUS_LOG=dispatch``.

Imported by whoever listens, and at the start where the log was asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from ..backend_interface.protocols import Call
from ..devices.device import Device
from ..ops.definition import Op, Spec
from ..system import env
from .candidates import BackendVerdict, Candidate, Decomposition, Verdict
from .selection import observe


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The way of one signature of an op: the candidates in order, and the one taken; None: it is refused."""

    op: Op[...]
    call: Call
    device: Device
    candidates: Sequence[Candidate]
    taken: Candidate | None

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """The kernels among the candidates."""
        return tuple(c for c in self.candidates if isinstance(c, Verdict))

    @property
    def chosen(self) -> Verdict | None:
        """The kernel that was taken; None where the op decomposes, is refused or runs on the host."""
        return self.taken if isinstance(self.taken, Verdict) else None

    @property
    def outcome(self) -> str:
        """The outcome in a few words."""
        if self.taken is None:
            return "refused: no kernel"
        if isinstance(self.taken, Verdict):
            return f"kernel {self.taken.name!r} of {self.taken.owner}"
        if isinstance(self.taken, BackendVerdict):
            return f"by {self.taken.name}"
        return (
            "decomposed into other ops" if isinstance(self.taken, Decomposition) else "falls back to the host"
        )

    @property
    def signature(self) -> str:
        """The op, what it computes in, and where."""
        shapes = self.call.shapes
        operands = (
            [str(Spec(s, d)) for s, d in zip(shapes, self.call.dtypes, strict=True)]
            if shapes is not None
            else [d.name for d in self.call.dtypes]
        )
        attrs = [f"{key}={value!r}" for key, value in self.call.attrs.items()]
        return f"{self.op.name}({', '.join(operands + attrs)}) on {self.device}"


_listener: ContextVar[list[Decision] | None] = ContextVar("tensorbus_decisions", default=None)


def _report(
    op: Op[...], call: Call, device: Device, candidates: Sequence[Candidate], taken: Candidate | None
) -> None:
    decisions, logged = _listener.get(), "dispatch" in env.logged()
    if decisions is None and not logged:
        return
    decision = Decision(op=op, call=call, device=device, candidates=candidates, taken=taken)
    if decisions is not None:
        decisions.append(decision)
    else:
        passed = [f"{v.name} of {v.owner}: {v.reason}" for v in decision.verdicts if v.reason]
        rest = f" (passed over: {'; '.join(passed)})" if passed else ""
        print(f"tensorbus: {decision.signature}: {decision.outcome}{rest}", file=sys.stderr)


observe(_report)


@contextmanager
def listening() -> Iterator[list[Decision]]:
    """Collect the decisions that are made in this thread or task meanwhile."""
    decisions: list[Decision] = []
    token = _listener.set(decisions)
    try:
        yield decisions
    finally:
        _listener.reset(token)

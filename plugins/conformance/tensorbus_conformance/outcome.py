"""The outcome of one op in one dtype on one device: data, which travels between processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["native", "decomposed", "host", "missing", "failed"]
STATUSES: tuple[Status, ...] = ("native", "decomposed", "host", "missing", "failed")
MANIFEST = "(manifest)"
"""Stands in the place of the op for what the manifest says of the device itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One op in one dtype on one device: what is examined in one go."""

    device: str
    op: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.op}-{self.dtype}-{self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something wrong: which check found it, in which call, and what it is."""

    check: str
    call: str
    problem: str

    def __str__(self) -> str:
        return f"{self.check}: {self.call}: {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``route`` is how the op ran, ``calls`` counts its sample calls, ``microseconds`` its best time."""

    case: Case
    route: str
    calls: int = 0
    seconds: float = 0.0
    microseconds: float | None = None
    findings: tuple[Finding, ...] = field(default=())

    @property
    def status(self) -> Status:
        """``failed`` where something was found, else how it ran."""
        return "failed" if self.findings else self.route  # type: ignore[return-value]

    def as_dict(self) -> dict[str, Any]:
        """Return it in a form for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Outcome:
        """Return what ``as_dict`` was given."""
        findings = tuple(Finding(**f) for f in fields["findings"])
        return cls(**{**fields, "case": Case(**fields["case"]), "findings": findings})

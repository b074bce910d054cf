"""The options of a launch: what a rank needs of the cluster, and which cluster that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tensorbus.errors import ArgumentError

STRATEGIES: Final = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
MEANINGS: Final = {
    "address": "the cluster, host:port; else RAY_ADDRESS, one that runs on this machine, or a new one here",
    "cpus": "processors of each rank, 1; a fraction lets ranks share one",
    "gpus": "GPUs of each rank, 0",
    "resources": "other resources of each rank, name=amount,name=amount",
    "strategy": f"how ranks are placed on machines: {', '.join(STRATEGIES)}; PACK",
    "wait": "seconds to wait for resources: 60 for busy ones, none for those that the cluster does not have",
    "working_dir": "a folder that each machine gets a copy of, where ranks are started",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a launch. ``wait`` None: no wait for what the cluster does not have, else 60 seconds."""

    address: str | None = None
    cpus: float = 1
    gpus: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    strategy: str = "PACK"
    wait: float | None = None
    working_dir: str | None = None

    def __post_init__(self) -> None:
        amounts = {"cpus": self.cpus, "gpus": self.gpus, **self.resources}
        for name, amount in amounts.items():
            if not isinstance(amount, int | float) or not 0 <= amount < float("inf"):
                raise ArgumentError(f"launcher ray: {name} must be a number >= 0, got {amount!r}.")
        if self.gpus != int(self.gpus):
            raise ArgumentError(
                f"launcher ray: gpus must be whole, got {self.gpus!r}: ranks that communicate cannot share a"
                f" GPU."
            )
        if not any(amounts.values()):
            raise ArgumentError("launcher ray: cpus, gpus and resources are all 0; a rank needs some.")
        if self.strategy not in STRATEGIES:
            raise ArgumentError(
                f"launcher ray: strategy must be one of {', '.join(STRATEGIES)}; got {self.strategy!r}."
            )
        if self.wait is not None and not 0 <= self.wait < float("inf"):
            raise ArgumentError(f"launcher ray: wait must be a number of seconds >= 0, got {self.wait!r}.")

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> Options:
        """Return the options that the command line names. Raises ``ArgumentError`` where one is wrong."""
        values: dict[str, Any] = {}
        for name, text in texts.items():
            try:
                values[name] = _READERS.get(name, str)(text)
            except ValueError:
                raise ArgumentError(
                    f"launcher ray: {name}={text!r} cannot be read. {name}: {MEANINGS[name]}."
                ) from None
        return cls(**values)

    @property
    def needs(self) -> dict[str, float]:
        """The resources that Ray sets aside for a rank."""
        amounts = {"CPU": float(self.cpus), "GPU": float(self.gpus), **self.resources}
        return {name: amount for name, amount in amounts.items() if amount}


def _resources(text: str) -> dict[str, float]:
    pairs = (item.rpartition("=") for item in text.split(","))
    return {name: _amount(amount, name) for name, _, amount in pairs}


def _amount(text: str, name: str) -> float:
    if not name:
        raise ValueError(text)
    return float(text)


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "cpus": float,
    "gpus": float,
    "resources": _resources,
    "strategy": str.upper,
    "wait": float,
}

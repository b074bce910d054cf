"""Collectives through the host, for devices that no communicator takes: where the user allows it, counted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Final

from ...backend_interface.communication import Communicator, Shape
from ...devices.device import Device
from ...dispatch.host_fallback import FallbackWarning, count, fallback_mode
from ...errors import DistributedError
from ...ops.creation.creation import empty
from ...system.user_frame import user_frame
from ...tensor.tensor import Tensor

ALLOW: Final = "tensorbus.fallback('warn'), or 'allow', on every rank lets them go through the host."


class HostStaging:
    """A communicator of the host's memory for tensors of another device, which are copied there and back.

    ``tb.fallback`` allows it, in the thread that calls, and ``tb.fallback_counts()`` counts it, as it does
    for ops that a device has no kernel for.
    """

    def __init__(self, communicator: Communicator[Any], name: str, host: Device) -> None:
        self._communicator, self.name, self._host = communicator, name, host

    def expect(self, label: str) -> None:
        """Tell the communicator what the next collective communicates."""
        if (expect := getattr(self._communicator, "expect", None)) is not None:
            expect(label)

    def all_reduce(self, x: Tensor, reduction: str) -> Tensor:
        """Combine on the host."""
        own = self._there("all_reduce", [x], x.device)
        return self._back("all_reduce", own, [self._communicator.all_reduce(own[0], reduction)], x.device)[0]

    def all_gather(self, x: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        """Gather on the host."""
        own = self._there("all_gather", [x], x.device)
        return self._back("all_gather", own, self._communicator.all_gather(own[0], shapes), x.device)

    def reduce_scatter(self, xs: Sequence[Tensor], reduction: str) -> Tensor:
        """Combine on the host."""
        where = xs[0].device
        own = self._there("reduce_scatter", xs, where)
        part = self._communicator.reduce_scatter(own, reduction)
        return self._back("reduce_scatter", own, [part], where)[0]

    def all_to_all(self, xs: Sequence[Tensor], shapes: Sequence[Shape]) -> list[Tensor]:
        """Exchange on the host."""
        where = xs[0].device
        own = self._there("all_to_all", xs, where)
        return self._back("all_to_all", own, self._communicator.all_to_all(own, shapes), where)

    def broadcast(self, x: Tensor, root: int) -> Tensor:
        """Send from the host."""
        own = self._there("broadcast", [x], x.device)
        return self._back("broadcast", own, [self._communicator.broadcast(own[0], root)], x.device)[0]

    def send(self, x: Tensor, to: int, *tag: int) -> None:
        """Send from the host."""
        own = self._there("send", [x], x.device)
        self._communicator.send(own[0], to, *tag)
        self._back("send", own, [], x.device)

    def receive(self, like: Tensor, source: int) -> Tensor:
        """Receive on the host."""
        self._there("recv", [], like.device)
        own = empty(like.shape, dtype=like.dtype, device=self._host)
        return self._back("recv", [], [self._communicator.receive(own, source)], like.device)[0]

    @property
    def post_receive(self) -> Any:
        """The communicator's, where it has it."""
        return self._communicator.post_receive  # type: ignore[attr-defined]

    def complete_receive(self, posted: Any, like: Tensor) -> tuple[Tensor, int]:
        """Receive on the host."""
        self._there("recv", [], like.device)
        own = empty(like.shape, dtype=like.dtype, device=self._host)
        received, sender = self._communicator.complete_receive(posted, own)  # type: ignore[attr-defined]
        return self._back("recv", [], [received], like.device)[0], sender

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._communicator.barrier()

    def abort(self, reason: str) -> None:
        """End what waits."""
        self._communicator.abort(reason)

    def close(self) -> None:
        """Give back what the communicator holds."""
        self._communicator.close()

    def check(self, operation: str, where: Device) -> None:
        """Raise ``DistributedError`` where copies are not allowed here: before anything is communicated."""
        if fallback_mode() == "error":
            raise DistributedError(
                f"{operation}: {self.name} connects the host's memory, and tensors on {where} are to be"
                f" copied there and back. {ALLOW}"
            )

    def _there(self, operation: str, xs: Sequence[Tensor], where: Device) -> list[Tensor]:
        """Return the tensors on the host."""
        if fallback_mode() == "warn":
            warnings.warn(
                f"{operation}: no communicator takes tensors on {where}; they were copied to {self._host} for"
                f" {self.name}, and the results back.",
                FallbackWarning, stacklevel=user_frame()[1],
            )  # fmt: skip
        return [x.to(self._host) for x in xs]

    def _back(
        self, operation: str, own: Sequence[Tensor], results: Sequence[Tensor], where: Device
    ) -> list[Tensor]:
        """Return the results on the device, and count the bytes of both ways."""
        count(f"distributed::{operation}", where.type, sum(x.nbytes for x in [*own, *results]))
        return [x.to(where) for x in results]

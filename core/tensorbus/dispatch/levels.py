"""Levels: transforms whose tensors stand for others, nested in each other, as ``vmap`` and forward mode are.

A level is a mode. Its tensors lie on a pseudo device whose index is the level's number, so that an op of
values of several levels belongs to the innermost; what runs it calls ops on the tensors inside, in the modes
below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from ..backend_interface.protocols import Call
from ..devices.device import Device
from ..errors import DeviceError
from ..ops.definition import Op, table
from ..tensor.tensor import Tensor
from ..tracing.active_modes import mode_stack
from .modes import Mode, depth, lift_lazy, stack_of, value_modes


class Level(Mode):
    """One level: ``inner`` is the device of the tensors inside, ``device`` the pseudo device.

    An op that has one of its values as an operand runs by the rules of its value mode, on the tensors inside
    and so in the modes below; others are handed on.
    """

    reentrant = True
    device_type: ClassVar[str]
    randomness: str = "same"
    """What numbers drawn inside are for the values that a tensor stands for: see ``vmap``."""
    count: int = 1
    """How many values a tensor stands for."""

    def __init__(self, inner: Device | None) -> None:
        self.inner, self.device = inner, Device(self.device_type, len(levels()))

    def of_each(self, x: Tensor) -> Tensor:
        """Return a tensor of this level that stands for the values along axis 0 of ``x``."""
        raise NotImplementedError

    def call_function(self, cls: Any, ctx: Any, args: Sequence[Any], recorded: bool) -> Any:
        """Run an ``autograd.Function`` whose arguments are of this level; fill its context.

        ``recorded``: the context is that of a derivative, which is taken at this level.
        """
        raise NotImplementedError

    def apply(self, op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Run an op of values of this level or of those above."""
        devices = [x._vtype.device for x in operands if isinstance(x, Tensor)]
        if isinstance(device := attrs.get("device"), Device):
            devices.append(device)
        if not any(d.type in value_modes and depth(d) >= self.device.index for d in devices):
            return NotImplemented
        return table.run(op.name, lift_lazy(operands), attrs, below=True)


def levels() -> tuple[Level, ...]:
    """Return the levels that this code runs in, the outermost first."""
    return tuple([mode for mode in mode_stack.get() if isinstance(mode, Level)])


def below_level(index: int) -> AbstractContextManager[None]:
    """Return a context that has the modes below a level."""
    stack, here = mode_stack.get(), levels()
    return stack_of(stack[: stack.index(here[index])]) if index < len(here) else nullcontext()


def inner_of(device: Device) -> Device | None:
    """Return where the values lie that those on the pseudo device of a level stand for."""
    here = levels()
    if device.index >= len(here) or here[device.index].device_type != device.type:
        raise DeviceError(
            f"{device} is where tensors lie inside of {device.type}; it does not exist outside."
        )
    return here[device.index].inner


class LevelRules(ABC):
    """Part of a value mode that all levels have in common: tensors of any device meet those of a level."""

    @abstractmethod
    def lift(self, x: Any, device: Device) -> Any:
        """Return a tensor from outside as one of the level."""

    def lift_operand(self, op: str, x: Any, device: Device) -> Any:
        """Return an operand from outside as one of the level."""
        return self.lift(x, device)

    def depth(self, device: Device) -> int:
        """Return the number of the level."""
        return device.index

    def inner(self, device: Device) -> Device | None:
        """Return where the values lie that those of the level stand for."""
        return inner_of(device)


def creating(op: Op[...], call: Call, hold: Callable[[Tensor], Any]) -> Callable[[], Any]:
    """Return what creates a tensor inside of a level: on its inner device, held by ``hold``."""

    def run() -> Any:
        device = levels()[call.index].inner
        with below_level(call.index):
            return hold(table.run(op.name, (), {**call.attrs, "device": device}))

    return run

"""Saved values of derivatives that are gathered again: how to make a parameter, in place of its value."""

from __future__ import annotations

from functools import reduce
from typing import Any

from ...autograd.engine import FREED, Node, no_grad
from ...ops.definition import table
from ...tracing.active_tracer import active_tracer


class FromShards:
    """A saved value that is not kept: a parameter of a group, gathered again, and what was done to it."""

    __slots__ = ("group", "part", "place", "plans")

    def __init__(self, group: Any, place: int, plans: tuple[Any, ...]) -> None:
        self.group, self.place, self.plans = group, place, plans
        self.part = None if active_tracer() is not None else group.parameters[place]._value
        """The part that it was gathered from; None where a program is captured, which has no other."""

    def value(self) -> Any:
        """Return the value on the device; the group is gathered if it is not.

        Raises ``AutogradError`` where the parameter was changed since.
        """
        if self.part is not None and active_tracer() is None:
            self.group.check_unchanged(self.place, self.part)
        x = self.group.gathered()[self.place]
        value = x._value
        if active_tracer() is not None:
            with no_grad():
                return reduce(lambda x, plan: table.run(plan.op.name, (x,), plan.attrs), self.plans, x)._value
        for plan in self.plans:
            value = plan.run(value)
        return value


class RegatheringNode(Node):
    """A recorded op some of whose saved values are ``FromShards``."""

    __slots__ = ()

    def pull(self, g: Any, create: bool) -> list[Any]:
        """Return the gradient for each operand, given that of the result."""
        saved = self.values
        if saved is FREED:
            return super().pull(g, create)
        self.values = tuple(x.value() if isinstance(x, FromShards) else x for x in saved)
        try:
            return super().pull(g, create)
        finally:
            self.values = saved

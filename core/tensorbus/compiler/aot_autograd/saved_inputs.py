"""Inputs and results of a compiled function that eager derivatives would read: writes to them are errors.

A backward program takes old values, so that writes which came since change none of its gradients. They are
errors all the same, where they are without ``compile``. Which recorded ops would have saved which inputs and
results is noted at capture; whether such a derivative reads them is seen if one was written over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...autograd import engine, node_order, saved_values
from ...devices.device import ValueType
from ...dispatch.plan import Plan
from ...errors import AutogradError, TensorbusError
from ...ops.creation.creation import full
from ...ops.definition import table
from ...tensor.grad_mode import GradMode
from ...tensor.tensor import Tensor
from ...tracing.sym_int import at


class SavedInput:
    """An operand, or the result, of a recorded op that is an input of the compiled function, or its result.

    ``parent`` is its number among the parents of the function's node, or ``tensor`` that among the inputs
    without a history, or ``result`` that among the results; the others are -1. ``which`` is the operand's
    number, or ``out``. ``behind`` are the numbers of the results whose derivatives pass the op.
    """

    __slots__ = (
        "_reads", "behind", "parent", "plan", "result", "scalars", "shapes", "tensor", "wanted", "which",
    )  # fmt: skip

    def __init__(
        self, node: Any, which: int | str, parent: int, tensor: int, result: int, behind: frozenset[int]
    ) -> None:
        self.plan: Plan = node.plan
        self.shapes, self.which = node.shapes, which
        pairs = zip(node.values, node.plan.operands, strict=True)
        self.scalars = [None if isinstance(kind, ValueType) else value for value, kind in pairs]
        self.wanted = [x is not None for x in node.parents]
        self.parent, self.tensor, self.result, self.behind = parent, tensor, result, behind
        self._reads: bool | None = None

    def write_since(self, node: Any) -> saved_values.Write | None:
        """Return the change that overwrote it since ``node``, of a call of the function, was made."""
        if self.parent >= 0:
            write = saved_values.last_write_to(node.parents[self.parent])
        elif self.tensor >= 0:
            write = saved_values.last_write_to_tensor(node.saved[self.tensor])
        else:
            write = saved_values.last_write_to_result(node, self.result)
        return write if write is not None and write[0] >= node.order else None

    def is_read(self, sizes: Mapping[str, int]) -> bool:
        """Return whether the op's derivative reads it: seen from that of the op of ones."""
        if self._reads is None:
            try:
                self._reads = self._is_read(sizes)
            except TensorbusError:  # no values that the op takes
                self._reads = False
        return self._reads

    def _is_read(self, sizes: Mapping[str, int]) -> bool:
        operands: list[Any] = []
        with GradMode(True):
            quads = zip(self.plan.operands, at(self.shapes, sizes), self.scalars, self.wanted, strict=True)
            for kind, shape, scalar, wanted in quads:
                if not isinstance(kind, ValueType):
                    operands.append(scalar)
                    continue
                x = full(shape, 1, dtype=kind.dtype, device=kind.device)
                operands.append(x.requires_grad_() if wanted else x)
            result = table.run(self.plan.op.name, operands, at(dict(self.plan.attrs), sizes))
        outs = [*result] if self.plan.outs else [result]
        node = next((x._node for x in outs if x._node is not None), None)
        node = node.parents[0] if isinstance(node, engine.Part) else node
        if type(node) is not engine.Node or node.plan.op is not self.plan.op:
            return False
        grads = [full(x.shape, 1, dtype=x.dtype, device=x.device) for x in outs]
        derive = partial(engine.vjp_of, node, grads if self.plan.outs else grads[0], False)
        return saved_values.reads(node, self.which, self.wanted, derive)[0]

    def error(self, write: saved_values.Write, sizes: Mapping[str, int]) -> AutogradError:
        """Return what is wrong where it was written over."""
        shapes = at(self.shapes, sizes)
        return AutogradError(saved_values.message_of(self.plan, shapes, self.which, write[1]))


def saved_inputs(
    results: Sequence[Tensor], inner: Mapping[int, int], numbers: Callable[[Tensor], int]
) -> tuple[SavedInput, ...]:
    """Return what derivatives of ``results`` save of a function's inputs and results.

    ``inner`` are the numbers of the inputs with a history, by its id; ``numbers`` gives that of one without,
    -1 where it is none.
    """
    outs = {id(x._node): k for k, x in enumerate(results)}
    reached = [{id(node) for node in node_order.reached_from([x._node], inner)} for x in results]
    saved: list[SavedInput] = []
    for node in node_order.reached_from([x._node for x in results], inner):
        if id(node) in inner or type(node) is not engine.Node:
            continue
        behind = frozenset(k for k, ids in enumerate(reached) if id(node) in ids)
        untracked = saved_values.saved_tensors(node)
        triples = zip(node.values, node.plan.operands, node.parents, strict=True)
        for place, (value, kind, parent) in enumerate(triples):
            if value is None or not isinstance(kind, ValueType):
                continue
            if saved_values.may_overwrite(node, place):
                continue
            if parent is None:
                number = numbers(untracked[place]) if place in untracked else -1
                spot = (-1, number, -1)
            else:
                owner = saved_values.owner(parent, inner)
                spot = (inner.get(id(owner), -1), -1, outs.get(id(owner), -1))
            if spot != (-1, -1, -1):
                saved.append(SavedInput(node, place, *spot, behind))
        if node.plan.keeps_out and not saved_values.may_overwrite(node, "out"):
            parts = [part() for part in node.parts if part is not None] if node.plan.outs else [node]
            saved += [SavedInput(node, "out", -1, -1, outs[id(x)], behind) for x in parts if id(x) in outs]
    return tuple(saved)

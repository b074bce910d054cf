"""Gradients: the history of values, and walking it backwards.

A node holds what its op's ``vjp`` names and nothing else: values, not cells, so that rebinding a tensor later
changes no gradient; where it would in PyTorch that is an error (``saved_values``). A ``vjp`` is written in
ops, so walking back with ``create_graph`` records history again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Sequence
from typing import Any, Final

from ..devices.device import ValueType
from ..dispatch.modes import wraps
from ..dispatch.plan import Plan
from ..errors import AutogradError
from ..ops.call_errors import with_signature
from ..ops.creation.creation import full
from ..ops.definition import table
from ..ops.elementwise.where_cast import cast
from ..system.late_binding import LateFunction
from ..tensor.grad_mode import GradMode, grad_enabled
from ..tensor.grad_mode import enable_grad as enable_grad
from ..tensor.grad_mode import inference_mode as inference_mode
from ..tensor.grad_mode import is_grad_enabled as is_grad_enabled
from ..tensor.grad_mode import no_grad as no_grad
from ..tensor.grad_mode import set_grad_enabled as set_grad_enabled
from ..tensor.leaf import (
    GradientReceiver,
    Leaf,
    PostAccumulateHook,
    receiver_of,
    report_gradient_use,
    report_history_use,
    retained_ids,
)
from ..tensor.tensor import Tensor, lent, unlent, wrap_settled
from ..tracing.active_modes import active_modes
from ..tracing.active_tracer import unprofiled
from . import saved_values
from .backward_arguments import as_list, seed, tensors_of
from .gradient_shape import checked_gradient
from .gradient_sums import SliceGradients, add_slice, gather, gather_part, view_gradient
from .hooks import drop, finished, gradient_after_hooks
from .node_order import leading_to, order, reached_from

FREED: Final = ("freed",)
pass_watchers: Final[list[Any]] = []
"""Weak references to functions that are called as a backward pass begins; they return what ends it, or None.

Empty, but while calls of compiled functions are compared with Python's.
"""
_fused_vjp: Final = LateFunction("fused_vjp")


class Node:
    """One recorded op: its plan, what its derivative needs, and the histories of its operands."""

    __slots__ = (
        "__weakref__", "hooks", "order", "out", "parents", "parts", "plan", "saved", "shapes", "values",
        "written",
    )  # fmt: skip

    hooks: dict[int, Any]
    order: int
    out: Any
    parents: tuple[Any, ...]
    plan: Plan
    shapes: tuple[Any, ...]
    values: tuple[Any, ...]
    parts: list[weakref.ref[Part] | None]
    saved: Any
    """The operand without a history that a value was saved from; a tuple of several, in order; or None."""
    written: Any
    """The last change in place of the result, ``saved_values.Write``; of several results a dict by place."""

    def pull(self, g: Any, create: bool) -> list[Any]:
        """Return the gradient for each operand, given that of the result."""
        plan = self.plan
        if not create and not active_modes:
            back = view_gradient(self, g) if plan.op.view is not None else None
            if back is not None:
                return [back]
            backs: list[Any] | None = _fused_vjp(self, g) if plan.programs is not None else None
            if backs is not None:
                return backs
        own = table.owner(plan.op.name) == "tensorbus"
        return unprofiled(vjp_of, self, g, create) if own else vjp_of(self, g, create)

    def release(self) -> None:
        """Let go what the derivative needs."""
        self.values, self.out, self.saved = FREED, None, None


class Part:
    """One result of a recorded op that has several; its only operand is the op's node."""

    __slots__ = ("__weakref__", "hooks", "order", "parents", "place")

    def __init__(self, whole: Node, place: int) -> None:
        self.order = next(order)
        self.parents = (whole,)
        self.place = place


def record(plan: Plan, operands: Sequence[Any], out: Tensor) -> None:
    """Give ``out`` its history, unless gradients are off or the result cannot carry a gradient."""
    if not plan.differentiable or not grad_enabled.get():
        return
    node = Node()
    node.plan = plan
    node.order = next(order)
    node.out = out._value if plan.keeps_out else None
    node.saved = None
    first = operands[0]
    if type(first) is not Tensor or len(operands) > 2:
        saved_values.keep_operands(node, operands)
    elif len(operands) == 1:
        value = first._value
        node.shapes = (value.shape,)
        node.values = (value if plan.keeps[0] else None,)
        node.parents = (first._node,)
    else:
        second, (keep_first, keep_second) = operands[1], plan.keeps
        value = first._value
        first_value = value if keep_first else None
        if type(second) is Tensor:
            other = second._value
            node.shapes = (value.shape, other.shape)
            node.values = (first_value, other if keep_second else None)
            parent, other_parent = node.parents = (first._node, second._node)
            if parent is None:
                if keep_first:
                    node.saved = first
            elif other_parent is None and keep_second:
                node.saved = second
        elif isinstance(second, Tensor):
            saved_values.keep_operands(node, operands)
        else:
            node.shapes = (value.shape, ())
            node.values = (first_value, second)
            node.parents = (first._node, None)
    if lent and not active_modes:
        _own(node)
    out._node = node


def aliased(x: Tensor) -> Tensor:
    """Return another tensor that has the value of ``x``, and a history of its own where any is recorded."""
    out = x._alias()
    if not grad_enabled.get():
        out._node = None
        return out
    node = Node()
    node.plan = saved_values.alias_plan(x._vtype.materialized)
    node.order, node.parents = next(order), (x._node,)
    node.shapes, node.values, node.out, node.saved = (x._value.shape,), (None,), None, None
    out._node = node
    return out


def record_several(
    plan: Plan, operands: Sequence[Any], outs: Sequence[Tensor], detached: Container[int] = (),
    untracked: Container[int] = (),
) -> None:  # fmt: skip
    """Give each of ``outs`` that can carry a gradient its history, but for the places ``detached``.

    Writes to operands at the places ``untracked`` change nothing for the others' gradients.
    """
    if not plan.differentiable or not grad_enabled.get():
        return
    node = Node()
    node.plan = plan
    node.order = next(order)
    node.out = tuple(out._value for out in outs) if plan.keeps_out else None
    node.parts = [None] * len(outs)
    saved_values.keep_operands(node, operands, untracked)
    if lent and not active_modes:
        _own(node)
    for place, out in enumerate(outs):
        if place not in detached and out._vtype.dtype.is_inexact:
            out._node = part_of(node, place)


def own_saved_values(nodes: Sequence[Any]) -> None:
    """Let histories hold values that nobody else writes to before the derivative is taken."""
    for node in reached_from(nodes):
        if isinstance(node, Node):
            _own(node)


def _own(node: Node) -> None:
    if node.values is not FREED:
        node.values = tuple(map(unlent, node.values))
    if isinstance(node.out, tuple):
        node.out = tuple(map(unlent, node.out))
    elif node.out is not None:
        node.out = unlent(node.out)


def part_of(whole: Node, place: int) -> Part:
    """Return the history of one result: the same object for as long as anybody has it."""
    known = whole.parts[place]
    part = known() if known is not None else None
    if part is None:
        part = Part(whole, place)
        whole.parts[place] = weakref.ref(part)
    return part


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of ``tensors`` to ``.grad`` of every leaf that they depend on, or of ``inputs`` only.

    A 0-dimensional (or one-element) tensor needs no ``grad_tensors``. What the history kept is let go on the
    way unless ``retain_graph``; with ``create_graph`` the gradients have a history of their own.
    Raises ``AutogradError`` where there is no history, or it has been let go, and for an input that keeps no
    gradient.
    """
    if active_modes:
        report_gradient_use()
    outputs = tensors_of("backward", "tensors", tensors)
    seeds = as_list(grad_tensors, len(outputs))
    for out, g in zip(outputs, seeds, strict=True):
        if isinstance(g, Tensor) and g.device != out.device and wraps(g.device, out.device):
            raise AutogradError(
                f"backward: inside of vmap a gradient on {g.device} differs between examples, and cannot"
                " gather at tensors from outside; use tensorbus.grad, which returns it."
            )
    keep = None if inputs is None else retained_ids(tensors_of("backward", "inputs", inputs))
    receivers: dict[GradientReceiver, None] = {}
    try:
        grads = walk(outputs, seeds, retain_graph, create_graph, keep, receivers=receivers)
    except BaseException:
        drop(receivers)
        raise
    for node, g in grads.items():
        if isinstance(node, Leaf):
            if active_modes:
                report_gradient_use(node)
            if node.grad is None:
                node.grad = g._alias()
            else:
                with GradMode(create_graph):
                    node.grad = node.grad + g
    for node in [*grads, *finished(receivers)]:
        own = getattr(node, "hooks", None)
        for hook in list(own.values()) if own else ():
            if type(hook) is PostAccumulateHook:
                hook.run()


@with_signature
def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of ``outputs`` with respect to ``inputs``; no ``.grad`` is touched.

    Raises ``AutogradError`` for an input that does not require a gradient, or (unless ``allow_unused``) one
    that the outputs do not depend on.

    >>> import tensorbus as tb
    >>> x = tb.asarray([2.0]).requires_grad_()
    >>> (dx,) = tb.grad((x * x * x).sum(), x, create_graph=True)
    >>> tb.grad(dx.sum(), x)[0].tolist()
    [12.0]
    """
    results, variables = tensors_of("grad", "outputs", outputs), tensors_of("grad", "inputs", inputs)
    for place, x in enumerate(variables):
        if x._node is None:
            raise AutogradError(
                f"grad: input {place} does not require a gradient; call requires_grad_() on it."
            )
    keep = {id(x._node) for x in variables}
    grads = walk(results, as_list(grad_outputs, len(results)), retain_graph, create_graph, keep)
    gradients = [None if g is None else g._alias() for g in (grads.get(x._node) for x in variables)]
    if not allow_unused and None in [None if g is None else 0 for g in gradients]:
        place = next(k for k, g in enumerate(gradients) if g is None)
        raise AutogradError(
            f"grad: the outputs do not depend on input {place}; pass allow_unused=True to get None."
        )
    return tuple(gradients)


def walk(
    outputs: Sequence[Tensor], seeds: Sequence[Tensor | None], retain: bool | None, create: bool,
    keep: set[int] | None = None, hooks: bool = True, within: bool = False,
    receivers: dict[GradientReceiver, None] | None = None,
) -> dict[Any, Tensor]:  # fmt: skip
    """Walk histories back from the outputs; return the gradients at leaves and at the nodes in ``keep``.

    ``within``: what is behind the nodes in ``keep`` is another's to walk, also where it leads to one of them,
    and so are their hooks to call. ``receivers`` collects what has taken gradients of leaves; None: those are
    results all the same.
    """
    if pass_watchers and not within:
        return _watched(lambda: _walk_back(outputs, seeds, retain, create, keep, hooks, within, receivers))
    return _walk_back(outputs, seeds, retain, create, keep, hooks, within, receivers)


def _watched(walk: Callable[[], dict[Any, Tensor]]) -> dict[Any, Tensor]:
    """Return what ``walk`` does, for those who watch backward passes."""
    watching = [watch for reference in pass_watchers if (watch := reference()) is not None]
    ends = [end for watch in watching if (end := watch()) is not None]
    result = walk()
    for end in ends:
        end()
    return result


def _walk_back(
    outputs: Sequence[Tensor], seeds: Sequence[Tensor | None], retain: bool | None, create: bool,
    keep: set[int] | None, hooks: bool, within: bool, receivers: dict[GradientReceiver, None] | None,
) -> dict[Any, Tensor]:  # fmt: skip
    ends = keep if within and keep is not None else set()
    grads: dict[Any, Any] = {}
    result: dict[Any, Tensor] = {}
    with GradMode(create):
        for place, (out, g) in enumerate(zip(outputs, seeds, strict=True)):
            if out._node is None:
                raise AutogradError(
                    f"output {place} has no history: no tensor that it depends on requires a gradient,"
                    f" or it was computed under no_grad()."
                )
            gather(grads, out._node, seed(out, g))
        nodes = reached_from([out._node for out in outputs], ends)
        useful = {*map(id, nodes)} if keep is None else leading_to(keep, nodes)
        for node in nodes:
            known = grads.pop(node, None)
            if known is None:
                continue
            g = unprofiled(known.total) if type(known) is SliceGradients else known
            if isinstance(node, Leaf) and node.lay_out is not None:
                early = create or getattr(node, "hooks", None)  # more of the others may come
                g = node.lay_out(g) if early else node.lay_out(g, grads)
            own = getattr(node, "hooks", None)
            if own and hooks and id(node) not in ends:
                g = gradient_after_hooks(node, g)
            if isinstance(node, Leaf):
                if own and receivers is not None and (hook := receiver_of(node)) is not None:
                    with GradMode(create):
                        taken = hook.receiver.take(hook.place, g)
                    if taken:
                        receivers[hook.receiver] = None
                        continue
                result[node] = g
                continue
            if keep is not None and id(node) in keep:
                result[node] = g
            if id(node) in ends or useful.isdisjoint(map(id, node.parents)):
                continue
            if isinstance(node, Part):
                gather_part(grads, node, g)
                continue
            if active_modes:
                report_history_use(node.order)
            backs = None
            if node.order <= saved_values.last_write[0] and type(node) is Node and node.values is not FREED:
                backs = _checked(node, g, create, useful)
            parents = node.parents
            sliced = len(parents) == 1 and not create and not active_modes and type(node) is Node
            if backs is not None or not (sliced and add_slice(grads, node, g)):
                for parent, back in zip(parents, backs or node.pull(g, create), strict=True):
                    if back is not None and id(parent) in useful:
                        if parent in grads:
                            gather(grads, parent, back)
                        else:
                            grads[parent] = back
            if not (create if retain is None else retain):
                node.release()
    return result


def _checked(node: Node, g: Any, create: bool, useful: Container[int]) -> list[Any] | None:
    """Return the gradients of what saved values that were written over since, unless they depend on those."""
    if not saved_values.is_touched(node):
        return None
    wanted = [parent is not None and id(parent) in useful for parent in node.parents]
    return saved_values.gradients_unless_overwritten(node, wanted, lambda: vjp_of(node, g, create))


def vjp_of(node: Node, g: Any, create: bool) -> list[Any]:
    """Return the gradient for each operand of ``node``, in its shape and dtype; None where it has none."""
    plan, op = node.plan, node.plan.op
    if node.values is FREED:
        reason = "the history was let go by an earlier backward(); pass retain_graph=True to that one."
        raise AutogradError(f"{op.name}: {reason}")
    if op.vjp is None and op.decompose is None:
        own = " register_autograd gives it one, or" if "::" in op.name else ""
        raise AutogradError(
            f"{op.name}: this op has no derivative;{own} cut its operands off with .detach()."
        )
    used: tuple[bool, ...] = (True,)
    if op.results and op.vjp is not None:
        kinds, used = zip(g, plan.outs, plan.shapes, strict=True), tuple([back is not None for back in g])
        g = tuple(
            full(s, 0, dtype=k.dtype, device=k.device) if back is None else back for back, k, s in kinds
        )
    arguments = _arguments(node, g, create)
    if op.vjp is not None:
        arguments["used"] = used
        try:
            needed = {name: arguments[name] for name in op.needs}
        except KeyError as error:
            names = ", ".join(sorted(arguments))
            raise AutogradError(
                f"{op.name}: its vjp asks for {error.args[0]!r}; what it may name is {names}."
            ) from None
        backs = op.vjp(**needed)
        if not isinstance(backs, tuple | list) or len(backs) != len(node.parents):
            got = f"{len(backs)} gradients" if isinstance(backs, tuple | list) else type(backs).__name__
            raise AutogradError(
                f"{op.name}: its vjp returned {got}; a tuple with one for each of its {len(node.parents)}"
                f" operands is needed, None where there is none."
            )
    else:
        backs = _through_decomposition(node, g, create)
    who = f"{op.name}: its vjp"
    result: list[Any] = []
    places = zip(node.parents, backs, node.shapes, plan.operands, strict=True)
    for place, (parent, back, shape, kind) in enumerate(places):
        if parent is None or not isinstance(kind, ValueType):
            result.append(None)
        elif back is None:
            result.append(full(shape, 0, dtype=kind.dtype, device=kind.device))
        else:
            result.append(checked_gradient(back, shape, kind, who, place))
    return result


def _through_decomposition(node: Node, g: Any, create: bool) -> tuple[Any, ...]:
    """Return the gradients of a composite that has none of its own: it is run again, in recorded ops."""
    plan, op = node.plan, node.plan.op
    if op.decompose is None:
        return ()
    with GradMode(True):
        operands: list[Any] = list(node.values)
        variables: dict[int, Tensor] = {}
        saved = zip(node.values, plan.operands, node.parents, strict=True)
        for place, (value, kind, parent) in enumerate(saved):
            if isinstance(kind, ValueType):
                x = wrap_settled(value, kind, parent if create else None)
                if parent is not None:
                    variables[place] = x = x * 1 if create else x.requires_grad_()
                operands[place] = x
        casts = zip(operands, plan.casts, strict=True)
        composed = op.decompose(*[x if dtype is None else cast(x, dtype) for x, dtype in casts], **plan.attrs)
    pairs = list(zip(composed, g, strict=True)) if op.results else [(composed, g)]
    outs = [(out, back) for out, back in pairs if out._node is not None and back is not None]
    if not outs:
        return (None,) * len(operands)
    keep = {id(x._node) for x in variables.values()}
    grads = walk([out for out, _ in outs], [back for _, back in outs], None, create, keep)
    return tuple(grads.get(variables[k]._node) if k in variables else None for k in range(len(operands)))


def _arguments(node: Node, g: Any, create: bool) -> dict[str, Any]:
    """Return what a ``vjp`` may name: ``g``, ``out``, ``wanted``, operands, their shapes, the attributes."""
    plan, op = node.plan, node.plan.op
    operands = [
        wrap_settled(value, kind, parent if create else None)
        if isinstance(kind, ValueType) and value is not None
        else value
        for value, kind, parent in zip(node.values, plan.operands, node.parents, strict=True)
    ]
    if create and node.saved is not None:
        for place, x in saved_values.saved_tensors(node).items():
            if x._value is node.values[place] and x._node is None:
                operands[place] = x
    arguments: dict[str, Any] = {"g": g, "wanted": tuple(p is not None for p in node.parents), **plan.attrs}
    if plan.keeps_out and op.results:
        arguments["out"] = tuple(
            wrap_settled(value, kind, part_of(node, place) if create and kind.dtype.is_inexact else None)
            for place, (value, kind) in enumerate(zip(node.out, plan.outs, strict=True))
        )
    elif plan.keeps_out:
        arguments["out"] = wrap_settled(node.out, plan.out, node if create else None)
    for place, name in enumerate(plan.op.operands):
        if name.startswith("*"):
            arguments[name[1:]] = operands[place:]
            arguments[f"{name[1:]}_shape"] = node.shapes[place:]
        else:
            arguments[name] = operands[place]
            arguments[f"{name}_shape"] = node.shapes[place]
    return arguments

"""Runs ops on distributed tensors: by their sharding plans, on the parts that ranks have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from ...backend_interface.protocols import Call
from ...devices.device import Device, ValueType
from ...dispatch.levels import Level
from ...dispatch.modes import detached_value, stack_of
from ...errors import DeviceError
from ...ops.creation.random import bits_of_part
from ...ops.definition import Op, table
from ...tensor.tensor import Tensor, wrap
from ...tracing.active_modes import active_modes, mode_stack
from .explicit_mode import check_move
from .implicit_replication import is_replicating
from .layout import MESH, Distributed, MeshLayout, layout_of, mesh_of, part_device
from .placements import Replicate, Shard, plain
from .redistribute import move
from .sharding_plan import ShardingPlan, plan_op

MAX_PLANS: Final = 4096
replicated_ops: Final[Counter[str]] = Counter()
"""How often ops without a sharding rule ran on the whole of their operands, by name."""


class MeshMode:
    """Runs ops on values of distributed tensors."""

    def prepare(self, op: Op[...], call: Call) -> Callable[..., Any] | None:
        """Return what takes values to the result; None where an op without a rule decomposes."""
        if op.family == "creation":
            return _creating(op, call)
        if op.shard is None and op.decompose is not None:
            return None

        def run(*values: Any) -> Any:
            key = (run, *[v.layout if type(v) is Distributed else None for v in values])
            first = values[0]
            mesh = (first if type(first) is Distributed else _first(values)).layout.mesh
            plan: ShardingPlan | None = mesh.plans.get(key)
            if plan is None:
                plan = plan_op(op, values, call.dtypes, call.attrs)
                if len(mesh.plans) >= MAX_PLANS:
                    mesh.plans.clear()
                mesh.plans[key] = plan
            if plan.replicates:
                replicated_ops[op.name] += 1
            if active_modes:
                with _below():
                    return _decomposed(op, call, plan, values) if plan.decomposes else plan(values)
            return _decomposed(op, call, plan, values) if plan.decomposes else plan(values)

        return run

    def lift(self, x: Any, device: Device) -> Any:
        """Return a tensor that is the same on each rank."""
        from .dtensor import DTensor

        mesh, place = mesh_of(device)
        if x._node is None and x._vtype.device == place:
            return wrap(Distributed(x, _everywhere(mesh, x.shape)), ValueType.of(x.dtype, device))
        return DTensor.from_local(x, mesh, (Replicate(),) * mesh.ndim, shape=x.shape)

    def lift_operand(self, op: str, x: Any, device: Device) -> Any:
        """Return a 0-dimensional tensor as one that is the same on each rank; refuse all others."""
        if x._vtype.device.type != MESH and (not x.shape or is_replicating()):
            return self.lift(x, device)
        mesh, _ = mesh_of(device)
        if x._vtype.device.type == MESH:
            raise DeviceError(
                f"{op}: operands are distributed over two meshes, {x.device_mesh!r} and {mesh!r}; bring one"
                f" to the other's: distribute_tensor(x.full_tensor(), mesh, placements)."
            )
        raise DeviceError(
            f"{op}: operands are a distributed tensor, and one of shape {tuple(x.shape)} on {x.device}, which"
            f" belongs to this rank. Say how it lies: DTensor.from_local(x, mesh, [Replicate()]) where it is"
            f" the same on each rank of {mesh!r}, [Shard(0)] where it is a part, or distribute_tensor(x,"
            f" mesh, placements). In a block of distributed.implicit_replication() it counts as the same on"
            f" each rank."
        )

    def depth(self, device: Device) -> int:
        """Return -1: distributed tensors are outside of all levels."""
        return -1

    def inner(self, device: Device) -> Device | None:
        """Return where the parts lie."""
        return part_device(device)

    def parts(self, value: Distributed) -> tuple[Any, ...]:
        """Return this rank's part."""
        return (value.local,)

    def map_parts(self, value: Distributed, function: Callable[[Any], Any]) -> Distributed:
        """Return the value whose part is ``function`` of this one's."""
        return Distributed(function(value.local), value.layout)

    def detach(self, value: Distributed) -> Distributed:
        """Return the value without what derivatives would be taken by."""
        return self.map_parts(value, lambda x: wrap(detached_value(x), x._vtype))

    def random_bits(self, state: Any, shape: Sequence[int], like: Any) -> Any:
        """Return random bits of ``shape`` whose last axes lie as ``like``: each rank draws its part.

        The ranks have the same state, so that the numbers are those of any other layout.
        """
        layout: MeshLayout = like._value.layout
        lead = len(shape) - len(layout.shape)
        placements = plain(
            type(p)(p.dim + lead)
            if isinstance(p, Shard) and shape[p.dim + lead] == layout.shape[p.dim]
            else Replicate()
            for p in layout.placements
        )
        laid = layout_of(layout.mesh, placements, tuple(shape))
        value = Distributed(bits_of_part(state._value.local, laid.part), laid)
        return wrap(value, ValueType.of(value.local.dtype, state._vtype.device))

    def readable(self, value: Distributed) -> Any:
        """Return the whole tensor, for which all ranks communicate unless each has it."""
        check_move("read", "a tensor", value, (Replicate(),) * value.layout.mesh.ndim)
        return whole(value)


def whole(value: Distributed) -> Tensor:
    """Return the whole of a value, the same on each rank."""
    layout = value.layout
    target = _everywhere(layout.mesh, layout.shape)
    return value.local if target is layout else move(value.local, layout, target)


def _first(values: Any) -> Distributed:
    first: Distributed = next(v for v in values if type(v) is Distributed)
    return first


def _below() -> AbstractContextManager[None]:
    """Return a context for ops on parts: modes have seen the op already; a tracer records what runs."""
    stack = mode_stack.get()
    remaining = tuple([mode for mode in stack if mode.captures or isinstance(mode, Level)])
    return nullcontext() if len(remaining) == len(stack) else stack_of(remaining)


def _decomposed(op: Op[...], call: Call, plan: ShardingPlan, values: Any) -> Any:
    """Return the result of an op by its decomposition."""
    assert op.decompose is not None
    operands = []
    for v, local, to, dtype in zip(values, plan.moved(values), plan.moves, call.dtypes, strict=True):
        x = v
        if type(v) is Distributed:
            value = v if to is None else Distributed(local, to)
            x = wrap(value, ValueType.of(local.dtype, Device(MESH, call.index)))
            x = x if x.dtype is dtype else table.run("cast", (x,), {"dtype": dtype})
        operands.append(x)
    out = op.decompose(*operands, **call.attrs)
    return tuple([x._value for x in out]) if op.results else out._value


def _creating(op: Op[...], call: Call) -> Callable[[], Any]:
    """Return what creates a tensor that is the same on each rank."""

    def run() -> Any:
        mesh, device = mesh_of(Device(MESH, call.index))
        local = table.run(op.name, (), {**call.attrs, "device": device})
        return Distributed(local, _everywhere(mesh, local.shape))

    return run


def _everywhere(mesh: Any, shape: Any) -> MeshLayout:
    return layout_of(mesh, (Replicate(),) * mesh.ndim, tuple(shape))

"""``fully_shard``: each rank has a part of every parameter, and the whole ones while they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from ... import plugins
from ...autograd.engine import no_grad
from ...errors import ArgumentError
from ...nn.module import Module
from ...nn.parameter import Parameter, hold
from ...ops.call_errors import with_signature
from ...tensor.tensor import Tensor
from ..collectives import functional
from ..process_group.group import get_group
from ..tensor.device_mesh import META, DeviceMesh, MeshPart
from ..tensor.dtensor import DTensor, part_of
from ..tensor.layout import cell_of
from ..tensor.placements import Placement, Placements, Replicate, Shard, StridedShard, plain
from ..tensor.redistribute import redistribute
from .divided_module import FullyShardedModule, after_run, before_run, groups_in
from .group_options import GroupOptions
from .labels import label_of
from .module_class import refuse_other, with_methods
from .parameter_group import ParameterGroup
from .policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

M = TypeVar("M", bound=Module | Sequence[Module])
ShardPlacement = Callable[[Parameter], Shard | None]


@with_signature
def fully_shard(
    module: M, mesh: DeviceMesh | None = None, reshard_after_forward: bool | int | None = None,
    shard_placement_fn: ShardPlacement | None = None, mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None, ignored_params: Iterable[Tensor] | None = None,
) -> M:  # fmt: skip
    """Divide the parameters of ``module`` among ranks, which train it together; return the module itself.

    Each becomes a ``DTensor`` with ``Shard(0)`` on ``mesh``, or what ``shard_placement_fn(parameter)``
    returns, if that is not None, of the first rank's values; parts need not be equal. Those of a module that
    is divided already, or in ``ignored_params``, stay as they are: call it on the blocks of a model first and
    on the model last, and each is a group. Modules in a list are one group, which is whole from the first to
    the last of them. A group is gathered before its ``forward``, let go after it, gathered again where
    derivatives need it, and its gradients are averaged by one reduce-scatter. The group that runs next is
    gathered meanwhile.

    ``reshard_after_forward=False`` keeps a group whole until ``backward`` is over. None does that with the
    outermost module only, which ``backward`` begins with. A number lets so many ranks, next to each other,
    keep parts that make up the whole: more memory, and less far to send.

    What lies on another type of device than the tensors of ``mesh``, parameters and buffers, is moved there.

    A mesh of two dimensions has copies along the first, parts along the second; None: all ranks, parts.
    Parameters that ``parallelize_module`` has split are divided once more: ``mesh`` and the one that they lie
    on are then slices of one mesh, on which they lie afterwards. ``offload_policy`` keeps parts in the host's
    memory. Parameters on ``"meta"`` are divided without memory; ``module.to_empty(device=)`` and
    ``reset_parameters`` or a state dict fill them. Make optimizers afterwards. The parameters of a run exist
    while it does; parts are what the module lists otherwise.

    A module without parameters of its own communicates nothing, and has the methods all the same.

    Raises ``ArgumentError`` for a module that is divided already, a parameter without dimensions, or without
    the one that it is to be divided along, one that is distributed along ``mesh`` or over another mesh, and
    one that another divided module shares.

    >>> import tensorbus as tb
    >>> def rank():
    ...     model = tb.distributed.fully_shard(tb.nn.Linear(2, 3, device="cpu"))
    ...     model(tb.ones((1, 2), device="cpu")).sum().backward()
    ...     return model.weight.to_local().shape, model.weight.grad.full_tensor().tolist()
    >>> tb.distributed.run_ranks(rank, 2)[1]
    ((1, 2), [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    """
    modules = _checked_modules(module)
    mesh = _checked_mesh(modules, mesh, mp_policy, offload_policy)
    policy, offload = mp_policy or MixedPrecisionPolicy(), isinstance(offload_policy, CPUOffloadPolicy)
    parameters = _own_parameters(modules, {id(p) for p in ignored_params or ()})
    for name, p, _ in parameters:
        _check(name, p, mesh)
    axes = [_axis(name, p, shard_placement_fn) for name, p, _ in parameters]
    label = label_of(mesh.groups[-1], modules[0], [name for name, _, _ in parameters])
    device = _computing_device([p for _, p, _ in parameters], mesh, offload)
    parts = [
        _divided(p, axis, mesh, offload, f"{name!r} of {label}")
        for (name, p, _), axis in zip(parameters, axes, strict=True)
    ]
    layouts = [p._value.layout if isinstance(p, DTensor) else None for _, p, _ in parameters]
    options = GroupOptions(
        param_dtype=policy.param_dtype, reduce_dtype=policy.reduce_dtype,
        pinned=isinstance(offload_policy, CPUOffloadPolicy) and offload_policy.pin_memory,
    )  # fmt: skip
    group = ParameterGroup(
        parts, axes, layouts, [homes for _, _, homes in parameters], modules, mesh.groups[-1],
        mesh.groups[0] if mesh.ndim == 2 else None, device, options, label,
    )  # fmt: skip
    group.check_reshard("fully_shard", reshard_after_forward)
    group.set_reshard(reshard_after_forward)
    group.reshard()
    inner = {id(one): one for m in modules for one in groups_in(m)}
    for one in (*inner.values(), group):
        one.schedule = group.schedule
        group.schedule.groups.append(one)
    group.schedule.root = group
    _move_buffers(modules, mesh)
    for m in modules:
        with_methods(m, FullyShardedModule)
        divided = cast(FullyShardedModule, m)
        divided._group, divided._mp_policy = group, policy
        m.register_forward_pre_hook(before_run, prepend=True, with_kwargs=True)
        m.register_forward_hook(after_run, always_call=True)
    return module


def _checked_modules(module: object) -> list[Module]:
    """Return the modules that become one group, without those that are inside of others."""
    listed = [*module] if isinstance(module, list | tuple) else [module]
    modules = [m for m in listed if isinstance(m, Module)]
    if not modules or len(modules) != len(listed):
        raise ArgumentError(
            f"fully_shard: a module is needed, or a list of those that are one group, got"
            f" {[type(m).__name__ for m in listed] if isinstance(module, list | tuple) else module!r}."
        )
    for m in modules:
        if isinstance(m, FullyShardedModule):
            raise ArgumentError(f"fully_shard: this {type(m).__name__} is divided already.")
        refuse_other("fully_shard", m, FullyShardedModule)
    inside = {id(child) for m in modules for child in m.modules() if child is not m}
    return [*{id(m): m for m in modules if id(m) not in inside}.values()]


def _checked_mesh(
    modules: Sequence[Module], mesh: DeviceMesh | None, mp_policy: MixedPrecisionPolicy | None,
    offload_policy: OffloadPolicy | None,
) -> DeviceMesh:  # fmt: skip
    """Refuse arguments that are no such ones; return the mesh."""
    kinds: dict[str, tuple[object, type]] = {
        "mesh": (mesh, DeviceMesh), "mp_policy": (mp_policy, MixedPrecisionPolicy),
        "offload_policy": (offload_policy, OffloadPolicy),
    }  # fmt: skip
    for name, (value, kind) in kinds.items():
        if value is not None and not isinstance(value, kind):
            raise ArgumentError(f"fully_shard: {name}: {kind.__name__} or None is needed, got {value!r}.")
    mesh = DeviceMesh.from_group(get_group(), None) if mesh is None else mesh
    mesh.places("fully_shard")
    if mesh.ndim > 2:
        raise ArgumentError(f"fully_shard: a mesh of one or two dimensions is needed, got {mesh!r}.")
    return mesh


def _own_parameters(
    modules: Sequence[Module], ignored: set[int]
) -> list[tuple[str, Parameter, list[tuple[Module, str]]]]:
    """Return the parameters that are divided yet: names, and the modules and names that each has."""
    ignored = ignored | {id(p) for m in modules for inner in groups_in(m) for p in inner.parameters}
    parameters: dict[int, tuple[str, Parameter, list[tuple[Module, str]]]] = {}
    for module in modules:
        for prefix, owner in module.named_modules():
            for name, p in owner._parameters.items():
                if p is not None and id(p) not in ignored:
                    full_name = f"{prefix}.{name}" if prefix else name
                    homes = parameters.setdefault(id(p), (full_name, p, []))[2]
                    if not any(known is owner and also == name for known, also in homes):
                        homes.append((owner, name))
    return [*parameters.values()]


def _move_buffers(modules: Sequence[Module], mesh: DeviceMesh) -> None:
    """Move buffers to where the parameters are computed with; those of divided modules lie there already."""
    for module in modules:
        if isinstance(module, FullyShardedModule):
            continue
        for _, buffer in module.named_buffers(recurse=False):
            x = buffer.detach()
            if isinstance(x, DTensor) or META in (x.device.type, mesh.device_type):
                continue
            if mesh.device_type not in (None, x.device.type):
                hold(buffer, x.to(mesh.device_type))
        _move_buffers([*module.children()], mesh)


def _axis(name: str, p: Parameter, shard_placement_fn: ShardPlacement | None) -> int:
    """Return the axis that a parameter is divided along."""
    placement = None if shard_placement_fn is None else shard_placement_fn(p)
    if placement is None:
        return 0
    if not isinstance(placement, Shard) or not -p.ndim <= placement.dim < p.ndim:
        raise ArgumentError(
            f"fully_shard: shard_placement_fn returns None or Shard(dim) of a dimension that the parameter"
            f" has, of {name!r} -{p.ndim} to {p.ndim - 1}; got {placement!r}."
        )
    return placement.dim % p.ndim


def _computing_device(parameters: Sequence[Tensor], mesh: DeviceMesh, offload: bool) -> Any:
    """Return where whole parameters are to be; None: where the parts lie, which may move later."""
    devices = [part_of(p.detach()).device for p in parameters]
    device = next((device for device in devices if device.type != META), None)
    if device is not None and not offload:
        return None
    return device if device is not None and mesh.device_type in (None, device.type) else mesh.device_type


def _check(name: str, p: Parameter, mesh: DeviceMesh) -> None:
    """Refuse a parameter that cannot be divided."""
    if isinstance(p, DTensor):
        own, other = (
            {dim for part in mesh.root.parts_of(each) for dim in part.dims} for each in (mesh, p.device_mesh)
        )
        if not other or own & other:
            raise ArgumentError(
                f"fully_shard: {name!r} is distributed already, as {[*p.placements]} on {p.device_mesh!r},"
                f" and was to be divided along {mesh!r}. They must be different slices of one mesh, as"
                f" mesh['tp'] for parallelize_module and mesh['dp'] for fully_shard; or pass it in"
                f" ignored_params."
            )
        if any(type(q) not in (Shard, Replicate) for q in p.placements):
            raise ArgumentError(
                f"fully_shard: {name!r} lies as {[*p.placements]}; only Shard and Replicate can be divided"
                f" once more. Call .redistribute(...) on it first, or pass it in ignored_params."
            )
    if vars(p).get("_divided"):
        raise ArgumentError(
            f"fully_shard: {name!r} is shared with a module that is divided already; call fully_shard on one"
            f" module that has both."
        )
    if p.ndim == 0:
        raise ArgumentError(f"fully_shard: {name!r} has no dimensions to divide; make its shape (1,).")


def _divided(p: Parameter, axis: int, mesh: DeviceMesh, offload: bool, label: str) -> Parameter:
    """Return this rank's part of a parameter as a distributed one; a shape alone communicates nothing."""
    whole: Placements = (Replicate(),) * mesh.ndim
    placements: Placements = (*whole[1:], Shard(axis))
    with no_grad():
        x = part_of(p.detach())
        if x.device.type != META:
            x = x if mesh.device_type in (None, x.device.type) else x.to(mesh.device_type)
            for group in mesh.groups:
                x = functional.broadcast(x, 0, group, label=label)
        part = redistribute(x, mesh, x.shape, whole, placements).detach().clone()
        if offload and x.device.type != META:
            part = part.to(plugins.host_type() or "cpu")
        if isinstance(p, DTensor):
            mesh, placements = _divided_layout(p, axis, mesh)
        elsewhere = mesh.device_type not in (None, part.device.type)
        if elsewhere and (offload or part.device.type != META):
            mesh = mesh.on(None)
    divided = Parameter(cell_of(part, mesh, placements, p.shape), requires_grad=p.requires_grad)
    vars(divided).update(vars(p))
    vars(p)["_divided"] = True
    return divided


def _divided_layout(p: DTensor, axis: int, mesh: DeviceMesh) -> tuple[DeviceMesh, Placements]:
    """Return the mesh and the placements of a split parameter whose parts are divided along ``mesh``.

    A dimension of the mesh that comes before one that splits ``axis`` divides that one's parts.
    """
    root = mesh.root
    placements: dict[MeshPart, Placement] = dict(zip(root.parts_of(p.device_mesh), p.placements, strict=True))
    *copies, last = root.parts_of(mesh)
    placements |= dict.fromkeys(copies, Replicate())
    placements[last] = StridedShard(axis)
    parts = sorted(placements, key=lambda part: part.dims)
    return root.along(parts), plain(placements[part] for part in parts)

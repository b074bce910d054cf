"""``fully_shard``: each rank has a part of every parameter, and the whole ones while they are used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from types import MethodType
from typing import Any, TypeVar

from ... import plugins
from ...autograd.engine import no_grad
from ...autograd.node_order import order
from ...dtypes.definition import DType
from ...errors import ArgumentError
from ...func.pytree import leaves, tree_map
from ...nn.module import Module
from ...nn.parameter import Parameter
from ...ops.call_errors import with_signature
from ...tensor.tensor import Tensor
from ...tracing.mutation_counter import bump_mutation_counter
from ..collectives import functional
from ..process_group.group import get_group
from ..tensor.device_mesh import META, DeviceMesh, MeshPart
from ..tensor.dtensor import DTensor, part_of
from ..tensor.layout import cell_of
from ..tensor.placements import Placement, Placements, Replicate, Shard, StridedShard, plain
from ..tensor.redistribute import redistribute
from .labels import label_of
from .module_class import refuse_other, with_methods
from .parameter_group import ParameterGroup

M = TypeVar("M", bound=Module)


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes that a module of ``fully_shard`` computes in; None: as it is.

    Whole parameters have ``param_dtype``, as floating-point arguments of ``forward`` do with
    ``cast_forward_inputs``; gradients are averaged in ``reduce_dtype``; what ``forward`` returns has
    ``output_dtype``. Parts, their gradients and what an optimizer keeps stay in the parameters' dtype. Raises
    ``ArgumentError`` for a dtype that is not floating-point.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True

    def __post_init__(self) -> None:
        for name in ("param_dtype", "reduce_dtype", "output_dtype"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, DType) and value.is_floating):
                raise ArgumentError(
                    f"MixedPrecisionPolicy: {name} is a floating-point dtype, such as tensorbus.bfloat16, or"
                    f" None; got {value!r}."
                )


@dataclass(frozen=True)
class CPUOffloadPolicy:
    """Parts of parameters, their gradients and what an optimizer keeps lie in the host's memory."""


class FullyShardedModule(Module):
    """The methods that ``fully_shard`` adds to the class of a module."""

    _group: ParameterGroup
    _mp_policy: MixedPrecisionPolicy
    _began: int

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Let ``backward`` average gradients over ranks, or keep whole ones on each until it does."""
        for group in _groups_in(self) if recurse else [self._group]:
            group.sync = requires_gradient_sync

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Let whole parameters go after ``forward``, or keep them until ``backward`` is over."""
        for group in _groups_in(self) if recurse else [self._group]:
            group.reshard_after_forward = reshard_after_forward

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide sums of the group's gradients by ``factor``, in place of the number of ranks.

        Raises ``ArgumentError`` where it is not above 0.
        """
        if not factor > 0:
            raise ArgumentError(f"set_gradient_divide_factor: factor must be > 0, got {factor!r}.")
        self._group.divide_factor = float(factor)

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_modules_to_forward_prefetch(self, modules: Sequence[Module]) -> None:
        """Gather these divided modules while this one runs, in place of the one that ran next the last time.

        Raises ``ArgumentError`` for a module that is not divided.
        """
        self._group.forward_prefetch = _groups_of("set_modules_to_forward_prefetch", modules)

    def set_modules_to_backward_prefetch(self, modules: Sequence[Module]) -> None:
        """Gather these while this one's derivatives are taken, in place of the one that ran before it."""
        self._group.backward_prefetch = _groups_of("set_modules_to_backward_prefetch", modules)

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Make the group's parameters whole until ``reshard``, or the end of the next run.

        They are copies, which a state dict lists meanwhile; what is written into them is lost then. With
        ``async_op`` they are gathered beside the program, and whole once ``wait()`` of the result returns.
        """
        if async_op:
            self._group.start()
            return UnshardHandle(self)
        self._group.unshard()
        bump_mutation_counter()
        return None

    def reshard(self) -> None:
        """Go back to parts, and let the whole parameters go."""
        self._group.reshard()
        bump_mutation_counter()


class UnshardHandle:
    """The parameters of a divided module, on their way."""

    def __init__(self, module: FullyShardedModule) -> None:
        self._module = module

    def wait(self) -> None:
        """Make them whole."""
        self._module.unshard()


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Let a method of a divided module run as ``forward`` does, with whole parameters.

    Of a module that ``fully_shard`` has not divided nothing is changed. Raises ``ArgumentError`` where it has
    no such method.

    >>> import tensorbus as tb
    >>> class Coder(tb.nn.Linear):
    ...     def decode(self, y):
    ...         return y @ self.weight
    >>> def rank():
    ...     model = tb.distributed.fully_shard(Coder(2, 3, device="cpu"))
    ...     tb.distributed.register_fsdp_forward_method(model, "decode")
    ...     return model.decode(tb.ones((1, 3), device="cpu")).shape
    >>> tb.distributed.run_ranks(rank, 2)
    [(1, 2), (1, 2)]
    """
    method = getattr(module, method_name, None)
    function = getattr(method, "__func__", None)
    if function is None:
        raise ArgumentError(
            f"register_fsdp_forward_method: {method_name!r} is no method of this {type(module).__name__}."
        )
    if not isinstance(module, FullyShardedModule):
        return

    def run(self: Module, *args: Any, **kwargs: Any) -> Any:
        converted = _before(self, args, kwargs)
        if converted is not None:
            args, kwargs = converted
        out = None
        try:
            out = function(self, *args, **kwargs)
        finally:
            out = _after(self, args, out)
        return out

    setattr(module, method_name, MethodType(wraps(function)(run), module))


@with_signature
def fully_shard(
    module: M, mesh: DeviceMesh | None = None, reshard_after_forward: bool = True,
    mp_policy: MixedPrecisionPolicy | None = None, offload_policy: CPUOffloadPolicy | None = None,
    ignored_params: Iterable[Tensor] | None = None,
) -> M:  # fmt: skip
    """Divide the parameters of ``module`` among ranks, which train it together; return the module itself.

    Each becomes a ``DTensor`` with ``Shard(0)`` on ``mesh``, of the first rank's values; parts need not be
    equal. Those of a module that is divided already, or in ``ignored_params``, stay as they are: call it on
    the blocks of a model first and on the model last, and each is a group. A group is gathered before its
    ``forward``, let go after it with ``reshard_after_forward``, gathered again where derivatives need it, and
    its gradients are averaged by one reduce-scatter. The group that runs next is gathered meanwhile.

    A mesh of two dimensions has copies along the first, parts along the second; None: all ranks, parts.
    Parameters that ``parallelize_module`` has split are divided once more, each rank's part along axis 0:
    ``mesh`` and the one that they lie on are then slices of one mesh, on which they lie afterwards.
    ``offload_policy`` keeps parts in the host's memory. Parameters on ``"meta"`` are divided without memory;
    ``module.to_empty(device=)`` and ``reset_parameters`` or a state dict fill them. Make optimizers
    afterwards. The parameters of a run exist while it does; parts are what the module lists otherwise.

    A module without parameters of its own communicates nothing, and has the methods all the same.

    Raises ``ArgumentError`` for a module that is divided already, a parameter without dimensions, one that is
    distributed along ``mesh`` or over another mesh, and one that another divided module shares.

    >>> import tensorbus as tb
    >>> def rank():
    ...     model = tb.distributed.fully_shard(tb.nn.Linear(2, 3, device="cpu"))
    ...     model(tb.ones((1, 2), device="cpu")).sum().backward()
    ...     return model.weight.to_local().shape, model.weight.grad.full_tensor().tolist()
    >>> tb.distributed.run_ranks(rank, 2)[1]
    ((1, 2), [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    """
    mesh = _checked_mesh(module, mesh, reshard_after_forward, mp_policy, offload_policy)
    policy = mp_policy or MixedPrecisionPolicy()
    ignored = {id(p) for p in ignored_params or ()}
    ignored |= {id(p) for inner in _groups_in(module) for p in inner.parameters}
    parameters: dict[int, tuple[str, Parameter, list[tuple[Module, str]]]] = {}
    for prefix, owner in module.named_modules():
        for name, p in owner._parameters.items():
            if p is not None and id(p) not in ignored:
                full_name = f"{prefix}.{name}" if prefix else name
                parameters.setdefault(id(p), (full_name, p, []))[2].append((owner, name))
    for name, p, _ in parameters.values():
        _check(name, p, mesh)
    label = label_of(mesh.groups[-1], module, [name for name, _, _ in parameters.values()])
    device = _computing_device([p for _, p, _ in parameters.values()], mesh, offload_policy is not None)
    parts = [
        _divided(p, mesh, offload_policy is not None, f"{name!r} of {label}")
        for name, p, _ in parameters.values()
    ]
    layouts = [p._value.layout if isinstance(p, DTensor) else None for _, p, _ in parameters.values()]
    group = ParameterGroup(
        parts, layouts, [homes for _, _, homes in parameters.values()], mesh.groups[-1],
        mesh.groups[0] if mesh.ndim == 2 else None, device, policy.param_dtype, policy.reduce_dtype,
        reshard_after_forward, label,
    )  # fmt: skip
    group.reshard()
    for inner in (*_groups_in(module), group):
        inner.schedule = group.schedule
        group.schedule.groups.append(inner)
    with_methods(module, FullyShardedModule)
    module._group, module._mp_policy = group, policy
    module.register_forward_pre_hook(_before, prepend=True, with_kwargs=True)
    module.register_forward_hook(_after, always_call=True)
    return module


def _checked_mesh(
    module: Module, mesh: DeviceMesh | None, reshard_after_forward: bool,
    mp_policy: MixedPrecisionPolicy | None, offload_policy: CPUOffloadPolicy | None,
) -> DeviceMesh:  # fmt: skip
    """Refuse arguments that are no such ones; return the mesh."""
    if not isinstance(module, Module):
        raise ArgumentError(
            f"fully_shard: a module is needed, got {type(module).__name__}; call it on each, or on one module"
            f" that has them all."
        )
    if isinstance(module, FullyShardedModule):
        raise ArgumentError(f"fully_shard: this {type(module).__name__} is divided already.")
    kinds: dict[str, tuple[object, type]] = {
        "mesh": (mesh, DeviceMesh), "mp_policy": (mp_policy, MixedPrecisionPolicy),
        "offload_policy": (offload_policy, CPUOffloadPolicy),
    }  # fmt: skip
    for name, (value, kind) in kinds.items():
        if value is not None and not isinstance(value, kind):
            raise ArgumentError(f"fully_shard: {name} is a {kind.__name__} or None, got {value!r}.")
    if not isinstance(reshard_after_forward, bool):
        raise ArgumentError(
            f"fully_shard: reshard_after_forward is True or False, got {reshard_after_forward!r}; parts among"
            f" fewer ranks, and copies of them, are a mesh of two dimensions."
        )
    refuse_other("fully_shard", module, FullyShardedModule)
    mesh = DeviceMesh.from_group(get_group(), None) if mesh is None else mesh
    mesh.places("fully_shard")
    if mesh.ndim > 2:
        raise ArgumentError(f"fully_shard: a mesh of one or two dimensions is needed, got {mesh!r}.")
    return mesh


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


def _divided(p: Parameter, mesh: DeviceMesh, offload: bool, label: str) -> Parameter:
    """Return this rank's part of a parameter as a distributed one; a shape alone communicates nothing."""
    whole: Placements = (Replicate(),) * mesh.ndim
    placements: Placements = (*whole[1:], Shard(0))
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
            mesh, placements = _divided_layout(p, mesh)
        elsewhere = mesh.device_type not in (None, part.device.type)
        if elsewhere and (offload or part.device.type != META):
            mesh = mesh.on(None)
    divided = Parameter(cell_of(part, mesh, placements, p.shape), requires_grad=p.requires_grad)
    vars(divided).update(vars(p))
    vars(p)["_divided"] = True
    return divided


def _divided_layout(p: DTensor, mesh: DeviceMesh) -> tuple[DeviceMesh, Placements]:
    """Return the mesh and the placements of a split parameter whose parts are divided along ``mesh``.

    A dimension of the mesh that comes before one that splits axis 0 divides that one's parts.
    """
    root = mesh.root
    placements: dict[MeshPart, Placement] = dict(zip(root.parts_of(p.device_mesh), p.placements, strict=True))
    *copies, last = root.parts_of(mesh)
    placements |= dict.fromkeys(copies, Replicate())
    placements[last] = StridedShard(0)
    parts = sorted(placements, key=lambda part: part.dims)
    return root.along(parts), plain(placements[part] for part in parts)


def _groups_in(module: Module) -> list[ParameterGroup]:
    return [m._group for m in module.modules() if isinstance(m, FullyShardedModule)]


def _groups_of(name: str, modules: Sequence[Module]) -> list[ParameterGroup]:
    groups = [m._group for m in modules if isinstance(m, FullyShardedModule)]
    if len(groups) != len(modules):
        raise ArgumentError(f"{name}: modules that fully_shard has divided are needed, got {[*modules]}.")
    return groups


def _converted(tree: Any, dtype: DType | None) -> Any:
    """Return arguments or results with floating-point tensors in ``dtype``."""
    if dtype is None:
        return tree
    return tree_map(lambda x: x.to(dtype) if isinstance(x, Tensor) and x.dtype.is_floating else x, tree)


def _before(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    assert isinstance(module, FullyShardedModule)
    module._group.enter()
    if module._group.depth == 1:
        module.__dict__["_began"] = next(order)
    policy = module._mp_policy
    if not policy.cast_forward_inputs or policy.param_dtype is None:
        return None
    return _converted(args, policy.param_dtype), _converted(kwargs, policy.param_dtype)


def _after(module: Module, args: tuple[Any, ...], out: Any) -> Any:
    assert isinstance(module, FullyShardedModule)
    if module._group.depth:
        results = [x for x in leaves(out) if isinstance(x, Tensor)]
        began = module._began
        if module._group.depth == 1:
            del module._began
        module._group.leave(results, began)
    return _converted(out, module._mp_policy.output_dtype)

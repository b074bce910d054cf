"""``replicate``: data parallel training. Each rank has the whole module and data of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast

from ...autograd.engine import is_grad_enabled
from ...devices.device import Device
from ...errors import ArgumentError
from ...func.checkpoint import is_recomputing
from ...nn.module import Module
from ...nn.parameter import Parameter
from ...ops.call_errors import with_signature
from ...tensor.tensor import Tensor
from ...tracing.mutation_counter import bump_mutation_counter
from ..algorithms.join import NOT_JOINED, Join, Joinable, JoinConfig, JoinHook
from ..collectives.calls import group_or_all
from ..process_group.group import ProcessGroup
from ..process_group.world import get_rank
from ..tensor.device_mesh import META, DeviceMesh, mesh_for
from ..tensor.dtensor import DTensor, part_of
from .computing_copies import ComputingCopies
from .gradient_reducer import CommHook, GradientReducer
from .joined_ranks import ShadowingHook, flags_of, share_buffers
from .labels import label_of
from .module_class import SpreadModule, refuse_other, with_methods
from .policies import MixedPrecisionPolicy
from .shared_state import share

M = TypeVar("M", bound=Module)


class ReplicatedModule(SpreadModule):
    """The methods that ``replicate`` adds to the class of a module."""

    _reducer: GradientReducer
    _copies: ComputingCopies
    _shares_buffers: bool
    _join_config: JoinConfig
    _divides_by_all: bool
    """Whether averages in the block of a ``Join`` count ranks that have no more batches."""

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """Let gradients be averaged over ranks in ``backward``, or add up on each rank until they are."""
        self._reducer.sync = requires_gradient_sync

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients add up on each rank, without communication, inside of a ``with`` block."""
        before = self._reducer.sync
        self._reducer.sync = False
        try:
            yield
        finally:
            self._reducer.sync = before

    def register_comm_hook(self, state: Any, hook: CommHook) -> None:
        """Let ``hook(state, bucket)`` average the gradients of each bucket, a ``GradBucket``, from now on.

        It is called while ``backward`` goes on, with this rank's gradients, and returns a tensor of as many
        elements, or the ``Future`` of one: ``all_reduce(x, async_op=True).get_future()``, say. In programs of
        ``tensorbus.compile`` it is captured, for which it communicates by ``functional``. Those of
        ``distributed.algorithms.ddp_comm_hooks.default_hooks`` average in float16 or bfloat16.

        Raises ``ArgumentError`` for what cannot be called, and where there is a hook already; ``backward``
        does for what is no average.
        """
        if not callable(hook):
            raise ArgumentError(f"register_comm_hook: a hook(state, bucket) is needed, got {hook!r}.")
        if self._reducer.hook is not None:
            raise ArgumentError("register_comm_hook: there is a hook already; a module has one.")
        self._reducer.hook = hook, state
        bump_mutation_counter()

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:  # fmt: skip
        """Return a block in which ranks may have different numbers of batches; see ``Join``.

        A rank that has no more of them takes part in the averages of the others by zeros, and has the state
        of one that has gone on to the end afterwards, but for that of its optimizer. Sums of gradients are
        divided by the number of all ranks, or without ``divide_by_initial_world_size`` of those that go on.
        Each run in which gradients are recorded is followed by one ``backward``; other calls that communicate
        are not shadowed. A hook of ``register_comm_hook`` gets zeros, and divides as it always does.

        >>> import tensorbus as tb
        >>> def rank():
        ...     model = tb.distributed.replicate(tb.nn.Linear(1, 1, device="cpu"))
        ...     with model.join(divide_by_initial_world_size=False):
        ...         for _ in range(1 + tb.distributed.get_rank()):
        ...             model.zero_grad()
        ...             model(tb.ones((1, 1), device="cpu")).sum().backward()
        ...     return model.bias.grad.tolist()
        >>> tb.distributed.run_ranks(rank, 2)
        [[1.0], [1.0]]
        """
        return Join(
            [cast("Joinable", self)], enable, throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )  # fmt: skip

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return what a rank does that has no more batches, by ``divide_by_initial_world_size``."""
        self._divides_by_all = bool(kwargs.get("divide_by_initial_world_size", True))
        return ShadowingHook(self, self._reducer, self._divides_by_all)

    @property
    def join_device(self) -> Device:
        """The device by which ranks that go on are counted: that of the parameters."""
        return part_of(self._reducer.parameters[0]).device

    @property
    def join_process_group(self) -> ProcessGroup:
        """The ranks that gradients are averaged over."""
        return self._reducer.group


@with_signature
def replicate(
    module: M, mesh: DeviceMesh | None = None, *, process_group: ProcessGroup | None = None,
    bucket_cap_mb: float = 25.0, broadcast_buffers: bool = True, find_unused_parameters: bool = False,
    gradient_as_bucket_view: bool = True, ignored_params: Iterable[Tensor] | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
) -> M:  # fmt: skip
    """Let ranks train ``module`` together, each on data of its own; return the module itself.

    Its parameters and buffers become those of the first rank. In ``backward`` gradients are averaged over
    the ranks of ``mesh``, of one dimension, or ``process_group`` (neither: all): in buckets of at most
    ``bucket_cap_mb`` MiB, each as soon as it is full, while ``backward`` goes on. In training mode each
    forward takes over the first rank's buffers, such as running statistics, unless ``broadcast_buffers`` is
    False. ``with module.no_sync():`` and ``module.set_requires_gradient_sync(False)`` leave out the
    communication, for gradients of several batches.

    Parameters stay where they are: a ``mesh`` whose tensors lie on another type of device is refused.

    Every rank uses every parameter, or ``find_unused_parameters`` lets those that a rank did not use count as
    zeros there. With ``gradient_as_bucket_view`` gradients are parts of one tensor a bucket, else copies of
    its parts. ``ignored_params`` stay each rank's own. What requires a gradient only later, as thawed layers
    do, is averaged from then on. A module that ``parallelize_module`` has split over another dimension
    of the mesh is averaged part by part. A step with ``tensorbus.compile`` around it is one program a rank,
    collectives included.

    ``mp_policy`` says in which dtypes the module computes, by copies of its parameters that exist while it
    runs, and gradients are averaged, without ``reduce_dtype`` in ``param_dtype``; parameters and gradients
    keep their own dtypes.

    Raises ``ArgumentError`` for a module that is replicated already, has nothing to train or lies on other
    devices than the mesh, and ``DistributedError`` at the end of a ``backward`` that missed parameters.

    >>> import tensorbus as tb
    >>> def rank():
    ...     model = tb.distributed.replicate(tb.nn.Linear(2, 1, device="cpu"))
    ...     model(tb.ones((1, 2), device="cpu") * tb.distributed.get_rank()).sum().backward()
    ...     return model.weight.grad.tolist()
    >>> tb.distributed.run_ranks(rank, 2)
    [[[0.5, 0.5]], [[0.5, 0.5]]]
    """
    _check_module(module)
    if not bucket_cap_mb > 0:
        raise ArgumentError(f"replicate: bucket_cap_mb must be > 0, got {bucket_cap_mb!r}.")
    group = _group_of(mesh, process_group)
    others = {*group.ranks} - {get_rank()}
    if not isinstance(mp_policy, MixedPrecisionPolicy | None):
        raise ArgumentError(f"replicate: mp_policy is a MixedPrecisionPolicy or None, got {mp_policy!r}.")
    own = tuple(ignored_params or ())
    ignored = {id(p) for p in own}
    named = [(name, p) for name, p in module.named_parameters() if id(p) not in ignored]
    for name, p in named:
        if isinstance(p, DTensor) and any(others & {*g.ranks} for g in p.device_mesh.groups):
            raise ArgumentError(
                f"replicate: {name!r} lies as {[*p.placements]} on {p.device_mesh!r}, whose ranks were to"
                f" have copies of each other: {[*group.ranks]}. Pass another dimension of that mesh."
            )
    if mesh is not None:
        _check_devices(named, mesh)
    if not any(p.requires_grad for _, p in named):
        raise ArgumentError(f"replicate: {type(module).__name__} has no parameter that requires a gradient.")
    names, parameters = [name for name, _ in named], [p for _, p in named]
    label = label_of(group, module, names)
    share([*parameters, *module.buffers()], group, label)
    reducer = GradientReducer(
        names, parameters, group, bucket_bytes=int(bucket_cap_mb * (1 << 20)),
        find_unused=find_unused_parameters, views=gradient_as_bucket_view, label=label,
        dtype=None if mp_policy is None else mp_policy.reduce_dtype or mp_policy.param_dtype,
    )  # fmt: skip
    with_methods(module, ReplicatedModule)
    module._reducer = reducer
    if mp_policy is not None:
        module._copies = ComputingCopies(mp_policy, own)
        module.register_forward_pre_hook(_begin_run, prepend=True, with_kwargs=True)
        module.register_forward_hook(_end_run, always_call=True)
    module._join_config, module._divides_by_all = NOT_JOINED, True
    module._shares_buffers = broadcast_buffers and any(True for _ in module.buffers())
    module.register_forward_pre_hook(_before_run)
    return module


def _check_module(module: Module) -> None:
    """Raise ``ArgumentError`` for no module, and one whose parameters ranks share already."""
    if not isinstance(module, Module):
        raise ArgumentError(f"replicate: a module is needed, got {module!r}.")
    if isinstance(module, ReplicatedModule):
        raise ArgumentError(f"replicate: this {type(module).__name__} is replicated already.")
    refuse_other("replicate", module, ReplicatedModule)


def _group_of(mesh: DeviceMesh | None, process_group: ProcessGroup | None) -> ProcessGroup:
    """Return the ranks that have copies. Raises ``ArgumentError`` for no mesh, one of several dimensions."""
    if mesh is None:
        return group_or_all(process_group)
    mesh_for("replicate", mesh)
    if mesh.ndim != 1:
        raise ArgumentError(
            f"replicate: a mesh of one dimension is needed, along which the ranks have copies, got {mesh!r};"
            f" pass a slice of it, such as mesh[{(mesh.mesh_dim_names or ('dp',))[0]!r}]."
        )
    if process_group is not None:
        raise ArgumentError("replicate: say mesh or process_group, not both.")
    return group_or_all(mesh.get_group())


def _check_devices(named: list[tuple[str, Parameter]], mesh: DeviceMesh) -> None:
    """Refuse parameters that lie on another type of device than the tensors of ``mesh``."""
    types = {name: part_of(p.detach()).device.type for name, p in named}
    elsewhere = [name for name, own in types.items() if mesh.device_type not in (None, own) and own != META]
    if elsewhere:
        own, more = types[elsewhere[0]], len(elsewhere) - 3
        names = ", ".join(map(repr, elsewhere[:3])) + (f" and {more} more" if more > 0 else "")
        raise ArgumentError(
            f"replicate: {names} lie on {own!r}, and tensors of {mesh!r} on {mesh.device_type!r}. Move the"
            f" module before, module.to({mesh.device_type!r}), or make a mesh of None, for any device."
        )


def _begin_run(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    assert isinstance(module, ReplicatedModule)
    return module._copies.enter(module, args, kwargs)


def _end_run(module: Module, args: tuple[Any, ...], out: Any) -> Any:
    assert isinstance(module, ReplicatedModule)
    return module._copies.leave(out)


def _before_run(module: Module, args: tuple[Any, ...]) -> None:
    assert isinstance(module, ReplicatedModule)
    reducer, config = module._reducer, module._join_config
    reducer.note_new()
    shares = module._shares_buffers and module.training and reducer.sync
    if not config.enable:
        reducer.present = None
        if shares:
            share_buffers(module, reducer)
        return
    if is_recomputing():
        return
    Join.notify_join_context(cast("Joinable", module))
    averages = reducer.sync and is_grad_enabled()
    flags = flags_of(reducer, here=True, averages=averages, shares=shares)
    if shares:
        share_buffers(module, reducer, flags)
    size = reducer.group.size
    reducer.present = flags[:size].sum() if averages and not module._divides_by_all else None


Joinable.register(ReplicatedModule)

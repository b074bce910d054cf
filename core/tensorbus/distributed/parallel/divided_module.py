"""The methods of a divided module, and what happens before and after each of its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from types import MethodType
from typing import Any

from ...devices.stream import Event, Stream
from ...errors import ArgumentError
from ...nn.module import Module
from ...tensor.tensor import Tensor
from ...tracing.mutation_counter import bump_mutation_counter
from ..tensor.device_mesh import META
from ..tensor.dtensor import part_of
from .group_options import GroupOptions
from .module_class import SpreadModule
from .parameter_group import ParameterGroup
from .policies import MixedPrecisionPolicy
from .tensor_trees import converted, tensors_in


class FullyShardedModule(SpreadModule):
    """The methods that ``fully_shard`` adds to the class of a module.

    Those that have ``recurse`` are of all divided modules in this one, or of this one alone.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> tuple[bool, object, object]:
    ...     model = dist.fully_shard(tb.nn.Linear(4, 2, device="cpu"))
    ...     part = model.weight.to_local().shape
    ...     model.unshard()
    ...     return isinstance(model, dist.FullyShardedModule), part, model.weight.shape
    >>> dist.run_ranks(rank, 2)[0]
    (True, (1, 4), (2, 4))
    """

    _group: ParameterGroup
    _mp_policy: MixedPrecisionPolicy

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Let ``backward`` average gradients over ranks, or keep whole ones on each until it does."""
        for options in _options_of(self, recurse):
            options.sync = options.all_reduce = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Let ``backward`` average over ranks that have the same parts, or keep this rank's until it does."""
        for options in _options_of(self, recurse):
            options.all_reduce = requires_all_reduce

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Let the next ``backward`` wait for its averages, or leave them on their way until a last one does.

        Gradients are those of before until then, but for a program of ``tensorbus.compile``, which waits.
        """
        self._group.schedule.is_last_backward = is_last_backward

    def set_reshard_after_forward(
        self, reshard_after_forward: bool | int | None, recurse: bool = True
    ) -> None:
        """Let whole parameters go after ``forward``, or keep them until ``backward`` is over.

        A number and None mean what they do in ``fully_shard``.
        """
        groups = groups_in(self) if recurse else [self._group]
        for group in groups:
            group.check_reshard("set_reshard_after_forward", reshard_after_forward)
        for group in groups:
            group.set_reshard(reshard_after_forward)

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Let whole parameters go after ``backward``, or keep them for the next batch's ``forward``.

        They are gathered again all the same where a part was changed.
        """
        for options in _options_of(self, recurse):
            options.reshard_after_backward = reshard_after_backward

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Gather parameters ahead of derivatives, or only where one turns out to need them."""
        self._group.options.unshard_in_backward = unshard_in_backward

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide sums of the group's gradients by ``factor``, in place of the number of ranks.

        Raises ``ArgumentError`` where it is not above 0.
        """
        if not factor > 0:
            raise ArgumentError(f"set_gradient_divide_factor: factor must be > 0, got {factor!r}.")
        self._group.options.divide_factor = float(factor)

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Let ranks exchange sums, divided afterwards, or averages."""
        self._group.options.only_sums = enable

    def set_all_reduce_hook(
        self, hook: Callable[[Tensor], object] | None, *, stream: Stream | None = None
    ) -> None:
        """Call ``hook(average)`` before an average is added to gradients; None: no hook.

        It gets one tensor of what this rank has of all gradients of one dtype, after the all-reduce of a mesh
        of two dimensions, and may change it in place, by ranks of another group, say. ``backward`` calls it
        at its end, in ``stream`` if there is one, group after group in one order on all ranks.
        """
        self._group.options.all_reduce_hook = hook
        self._group.options.all_reduce_stream = stream

    def set_post_optim_event(self, event: Event) -> None:
        """Let the model's next gather wait for ``event``, behind an optimizer's step in another stream."""
        self._group.schedule.event = event

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

        They are copies: what is written into them is lost then. State dicts list the parts all the same. With
        ``async_op`` they are gathered beside the program, and whole once ``wait()`` of the result returns.
        """
        if async_op:
            self._group.start_ahead()
            return UnshardHandle(self)
        self._group.unshard()
        bump_mutation_counter()
        return None

    def reshard(self) -> None:
        """Go back to parts, and let the whole parameters go."""
        self._group.reshard()
        bump_mutation_counter()


class UnshardHandle:
    """The parameters of a divided module, on their way: what ``unshard(async_op=True)`` returns.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> float:
    ...     model = dist.fully_shard(tb.nn.Linear(4, 2, device="cpu"))
    ...     handle = model.unshard(async_op=True)  # the all_gather goes on beside the program
    ...     handle.wait()
    ...     return model.weight.size
    >>> dist.run_ranks(rank, 2)
    [8, 8]
    """

    def __init__(self, module: FullyShardedModule) -> None:
        self._module: FullyShardedModule | None = module

    def wait(self) -> None:
        """Make them whole; a second time does nothing."""
        module, self._module = self._module, None
        if module is not None:
            module.unshard()


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
        changed = before_run(self, args, kwargs)
        if changed is not None:
            args, kwargs = changed
        out = None
        try:
            out = function(self, *args, **kwargs)
        finally:
            out = after_run(self, args, out)
        return out

    setattr(module, method_name, MethodType(wraps(function)(run), module))


def groups_in(module: Module) -> list[ParameterGroup]:
    """Return the groups of a module and of those inside, each once."""
    groups = {id(m._group): m._group for m in module.modules() if isinstance(m, FullyShardedModule)}
    return [*groups.values()]


def before_run(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make parameters whole; return arguments in the dtype that the module computes in, None as they are."""
    assert isinstance(module, FullyShardedModule)
    group, policy = module._group, module._mp_policy
    if group.depth == 0 and not group.has_values:
        _check_values(module, args, kwargs)
    group.enter()
    if not policy.cast_forward_inputs or policy.param_dtype is None:
        return None
    return converted(args, policy.param_dtype), converted(kwargs, policy.param_dtype)


def after_run(module: Module, args: tuple[Any, ...], out: Any) -> Any:
    """Go back to parts; return the results in the dtype that the policy asks for."""
    assert isinstance(module, FullyShardedModule)
    if module._group.depth:
        module._group.leave(tensors_in(out), module)
    return converted(out, module._mp_policy.output_dtype)


def _options_of(module: FullyShardedModule, recurse: bool) -> list[GroupOptions]:
    return [group.options for group in (groups_in(module) if recurse else [module._group])]


def _groups_of(name: str, modules: Sequence[Module]) -> list[ParameterGroup]:
    groups = [m._group for m in modules if isinstance(m, FullyShardedModule)]
    if len(groups) != len(modules):
        raise ArgumentError(f"{name}: modules that fully_shard has divided are needed, got {[*modules]}.")
    return groups


def _check_values(module: FullyShardedModule, args: Any, kwargs: Any) -> None:
    """Refuse to compute with values where parameters have none."""
    empty = {id(p) for p in module._group.parameters if part_of(p.detach()).device.type == META}
    module._group.has_values = not empty
    if not empty or all(x.device.type == META for x in tensors_in((args, kwargs))):
        return
    names = [name for name, p in module.named_parameters() if id(p) in empty]
    raise ArgumentError(
        f"fully_shard: {', '.join(map(repr, names[:8]))} of this {type(module).__name__} lie on 'meta', with"
        f" a shape and without values. Call to_empty(device=...) on the model, then reset_parameters or"
        f" load_state_dict."
    )

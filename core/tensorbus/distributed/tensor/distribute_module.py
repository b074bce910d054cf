"""``distribute_module``: a module whose parameters are distributed tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...errors import ArgumentError
from ...nn.module import Module
from ...nn.parameter import Parameter
from .device_mesh import DeviceMesh, mesh_for
from .dtensor import DTensor, distribute_tensor
from .module_hook import MeshHook
from .placements import Replicate

M = TypeVar("M", bound=Module)


def distribute_module(
    module: M, device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Module, DeviceMesh], object] | None = None,
    input_fn: Callable[[Module, tuple[Any, ...], DeviceMesh], Any] | None = None,
    output_fn: Callable[[Module, Any, DeviceMesh], Any] | None = None,
) -> M:  # fmt: skip
    """Make parameters and buffers of ``module`` distributed tensors; return the module itself.

    ``partition_fn(name, submodule, device_mesh)`` is called for ``module`` and each module in it, and
    registers those that are split; all others become whole on each rank. ``input_fn(module, args,
    device_mesh)`` changes what goes into ``module``, as a forward pre-hook does, and ``output_fn(module, out,
    device_mesh)`` what comes out.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     layer = dist.distribute_module(tb.nn.Linear(2, 3, device="cpu"), mesh)
    ...     return layer.weight.placements
    >>> dist.run_ranks(rank, 2)[0]
    (Replicate(),)
    """
    if not isinstance(module, Module):
        raise ArgumentError(f"distribute_module: a Module is needed, got {type(module).__name__}.")
    mesh = mesh_for("distribute_module", device_mesh)
    for name, submodule in [*module.named_modules()]:
        if partition_fn is not None:
            partition_fn(name, submodule, mesh)
        _replicate_rest(submodule, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(MeshHook(lambda m, args: input_fn(m, args, mesh)))
    if output_fn is not None:
        module.register_forward_hook(MeshHook(lambda m, args, out: output_fn(m, out, mesh)))
    return module


def _replicate_rest(module: Module, mesh: DeviceMesh) -> None:
    whole = [Replicate()] * mesh.ndim
    for name, parameter in [*module.named_parameters(recurse=False)]:
        if not isinstance(parameter, DTensor):
            laid = distribute_tensor(parameter, mesh, whole)
            module.register_parameter(name, Parameter(laid, requires_grad=parameter.requires_grad))
    for name, buffer in [*module.named_buffers(recurse=False)]:
        if not isinstance(buffer, DTensor):
            setattr(module, name, distribute_tensor(buffer, mesh, whole))

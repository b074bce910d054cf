"""New distributed tensors with one number everywhere: each rank makes its own part, and none communicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dtypes.definition import DType, default_float
from ...errors import ArgumentError
from ...ops.creation import creation
from ...ops.movement.family import as_shape
from .device_mesh import DeviceMesh, mesh_for
from .dtensor import DTensor
from .layout import cell_of
from .placements import Partial, Placement, Placements, Replicate, checked_placements, local_shape


def zeros(
    *shape: int | Sequence[int], device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None, dtype: DType | str | None = None,
    requires_grad: bool = False,
) -> DTensor:  # fmt: skip
    """Return zeros, laid out by ``placements`` as ``distribute_tensor`` has them; None: whole on each rank.

    Raises ``ArgumentError`` for placements that do not fit.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     x = dist.zeros(3, 2, device_mesh=mesh, placements=[dist.Shard(0)])
    ...     return x.shape, x.to_local().tolist()
    >>> dist.run_ranks(rank, 2)
    [((3, 2), [[0.0, 0.0], [0.0, 0.0]]), ((3, 2), [[0.0, 0.0]])]
    """
    return _filled("zeros", shape, 0, device_mesh, placements, dtype, requires_grad)


def ones(
    *shape: int | Sequence[int], device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None, dtype: DType | str | None = None,
    requires_grad: bool = False,
) -> DTensor:  # fmt: skip
    """Return ones, laid out as ``zeros`` does; raises as that.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> tuple[object, float]:
    ...     x = dist.ones(3, 2, device_mesh=dist.init_device_mesh("cpu", (2,)), placements=[dist.Shard(0)])
    ...     return x.to_local().shape, x.sum().item()
    >>> dist.run_ranks(rank, 2)
    [((2, 2), 6.0), ((1, 2), 6.0)]
    """
    return _filled("ones", shape, 1, device_mesh, placements, dtype, requires_grad)


def empty(
    *shape: int | Sequence[int], device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None, dtype: DType | str | None = None,
    requires_grad: bool = False,
) -> DTensor:  # fmt: skip
    """Return a tensor with unspecified contents, laid out as ``zeros`` does; raises as that.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> tuple[object, object]:
    ...     x = dist.empty(3, device_mesh=dist.init_device_mesh("cpu", (2,)), placements=[dist.Shard(0)])
    ...     return x.shape, x.to_local().shape
    >>> dist.run_ranks(rank, 2)
    [((3,), (2,)), ((3,), (1,))]
    """
    return _filled("empty", shape, None, device_mesh, placements, dtype, requires_grad)


def full(
    shape: int | Sequence[int], fill_value: Any, *, device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None, dtype: DType | str | None = None,
    requires_grad: bool = False,
) -> DTensor:  # fmt: skip
    """Return ``fill_value`` everywhere, in its own dtype where none is given, laid out as ``zeros`` does.

    Raises as ``zeros`` does, and ``DtypeError`` for a number that the dtype has not.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[int]:
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     return dist.full(3, 7, device_mesh=mesh, placements=[dist.Shard(0)]).to_local().tolist()
    >>> dist.run_ranks(rank, 2)
    [[7, 7], [7]]
    """
    return _filled("full", (shape,), fill_value, device_mesh, placements, dtype, requires_grad)


def laid_out(
    name: str, shape: Any, mesh: DeviceMesh, placements: Sequence[Placement] | None
) -> tuple[tuple[int, ...], Placements, tuple[int, ...]]:
    """Return shape and placements of a new tensor, checked, and the shape of this rank's part."""
    places, whole = mesh.places(name), (Replicate(),) * mesh.ndim
    size = creation.check_shape(name, as_shape(name, shape[0] if len(shape) == 1 else shape))
    chosen = checked_placements(name, whole if placements is None else placements, mesh.ndim, len(size))
    if any(isinstance(p, Partial) for p in chosen):
        raise ArgumentError(
            f"{name}: a new tensor is laid out by Shard and Replicate, got {[*chosen]}; redistribute the"
            f" result to Partial."
        )
    return size, chosen, local_shape(size, chosen, mesh.shape, places)


def _filled(
    name: str, shape: Any, value: Any, device_mesh: DeviceMesh | None, placements: Sequence[Placement] | None,
    dtype: DType | str | None, requires_grad: bool,
) -> DTensor:  # fmt: skip
    mesh = mesh_for(name, device_mesh)
    size, chosen, part_shape = laid_out(name, shape, mesh, placements)
    device = mesh.device_type
    if value is None:
        part = creation.empty(part_shape, dtype=dtype or default_float, device=device)
    else:
        kind = dtype or (None if name == "full" else default_float)
        part = creation.full(part_shape, value, dtype=kind, device=device)
    laid: DTensor = cell_of(part, mesh, chosen, size)
    laid.requires_grad_(requires_grad)
    return laid

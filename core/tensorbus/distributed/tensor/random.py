"""Random distributed tensors: each rank draws its own part of them, and none communicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ...dtypes.definition import DType, default_float
from ...ops.creation.creation import full
from ...ops.movement.movement import broadcast_to
from ...random import sampling
from ...random.generator import Generator
from .creation import laid_out
from .device_mesh import DeviceMesh, mesh_for
from .dtensor import DTensor
from .layout import cell_of
from .placements import Placement


def rand(
    *shape: int | Sequence[int], device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None, dtype: DType | str | None = None,
    generator: Generator | None = None, requires_grad: bool = False,
) -> DTensor:  # fmt: skip
    """Return numbers spread evenly over [0, 1), the same for any placements: those of ``tb.rand``.

    Each rank draws its part of them. The ranks of the mesh call it with generators in the same state, as
    those are by default; a rank that needs numbers of its own besides has them from a ``Generator`` of its
    own. ``placements`` as ``distribute_tensor`` has them. Raises ``ArgumentError`` for others.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     x = dist.rand(3, device_mesh=mesh, placements=[dist.Shard(0)], generator=tb.Generator(0))
    ...     return x.full_tensor().tolist() == tb.rand(3, generator=tb.Generator(0)).tolist()
    >>> dist.run_ranks(rank, 2)
    [True, True]
    """
    like = _blank("rand", shape, device_mesh, placements, dtype)
    return cast("DTensor", sampling.rand_like(like, generator=generator, requires_grad=requires_grad))


def randn(
    *shape: int | Sequence[int], device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None, dtype: DType | str | None = None,
    generator: Generator | None = None, requires_grad: bool = False,
) -> DTensor:  # fmt: skip
    """Return normally distributed numbers, the same for any placements: those of ``tb.randn``.

    Ranks, generators and placements are as for ``rand``; raises as that.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> bool:
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     x = dist.randn(3, device_mesh=mesh, placements=[dist.Shard(0)], generator=tb.Generator(0))
    ...     return x.full_tensor().tolist() == tb.randn(3, device="cpu", generator=tb.Generator(0)).tolist()
    >>> dist.run_ranks(rank, 2)
    [True, True]
    """
    like = _blank("randn", shape, device_mesh, placements, dtype)
    return cast("DTensor", sampling.randn_like(like, generator=generator, requires_grad=requires_grad))


def _blank(
    name: str, shape: Any, device_mesh: DeviceMesh | None, placements: Sequence[Placement] | None,
    dtype: DType | str | None,
) -> DTensor:  # fmt: skip
    """Return a tensor that says how the new one lies; its part is one element, seen everywhere."""
    mesh = mesh_for(name, device_mesh)
    size, chosen, part = laid_out(name, shape, mesh, placements)
    zero = full((), 0, dtype=dtype or default_float, device=mesh.device_type)
    like: DTensor = cell_of(broadcast_to(zero, part), mesh, chosen, size)
    return like

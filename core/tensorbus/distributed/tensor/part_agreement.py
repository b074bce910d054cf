"""Comparison of the parts that ranks make a distributed tensor of: ``DTensor.from_local(run_check=True)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ArgumentError
from ...tensor.tensor import Tensor
from ..collectives import functional
from ..collectives.objects import all_gather_object
from .device_mesh import DeviceMesh
from .placements import Placements, Replicate


def check_agreement(x: Tensor, mesh: DeviceMesh, placements: Placements, shape: Sequence[int] | None) -> None:
    """Raise ``ArgumentError``, on all ranks alike, where their parts are not those of one tensor.

    Placements, dtype, history and the ``shape`` of the whole are the same; None for that: shapes of parts,
    too. Elements are the same along dimensions of the mesh that are ``Replicate``.
    """
    asked = {
        "placements": [*placements], "dtype": str(x.dtype), "requires_grad": x.requires_grad,
        "shape": tuple(x.shape if shape is None else shape),
    }  # fmt: skip
    seen: list[Any] = [(mesh.get_rank(), asked)]
    for group in mesh.groups:
        each: list[Any] = [None] * group.size
        all_gather_object(each, seen, group)
        seen = [one for some in each for one in some]
    first, those = min(seen, key=lambda one: mesh.mesh.flatten().tolist().index(one[0]))
    for rank, these in seen:
        if wrong := [name for name in asked if these[name] != those[name]]:
            differences = ", ".join(f"{name} {these[name]} and not {those[name]}" for name in wrong)
            advice = (
                " Where lengths do not divide, shape= says that of the whole." if "shape" in wrong else ""
            )
            raise ArgumentError(
                f"from_local: the ranks of {mesh!r} must pass parts of one tensor, and rank {rank} has"
                f" {differences} as rank {first}.{advice}"
            )
    _compare(x.detach(), mesh, placements)


def _compare(x: Tensor, mesh: DeviceMesh, placements: Placements) -> None:
    """Raise ``ArgumentError``, on all ranks alike, where parts that are ``Replicate`` are not the same."""
    for dim, (group, placement) in enumerate(zip(mesh.groups, placements, strict=True)):
        if not isinstance(placement, Replicate):
            continue
        first = functional.broadcast(x, 0, group)
        alike = (first == x) | ((first != first) & (x != x))  # as NaN is
        if not functional.all_reduce(alike.all().to("int32"), "min", group).item():
            raise ArgumentError(
                f"from_local: along dimension {dim} of {mesh!r} parts of shape {tuple(x.shape)} are"
                f" Replicate, and a rank of {[*group.ranks]} has other elements than rank {group.ranks[0]}."
            )

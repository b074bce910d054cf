"""Decisions that ranks take together who share parameters, as copies or in parts: see ``amp.GradScaler``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...amp.rank_agreement import RankAgreement
from ...autograd.engine import no_grad
from ...interchange.host_array import asarray
from ...tensor.leaf import Leaf, receiver_of
from ...tensor.tensor import Tensor
from ..collectives import functional
from ..process_group.group import ProcessGroup
from ..tensor.dtensor import DTensor, part_of
from .gradient_reducer import GradientReducer

Shared = tuple[ProcessGroup, Tensor]
"""A group of ranks, and a parameter that they share."""


def groups_of(parameters: Sequence[Tensor]) -> list[Shared]:
    """Return the groups of ranks that share any of the parameters, of more than this rank, each once."""
    groups: dict[tuple[int, ...], Shared] = {}
    for p in parameters:
        sharing = [*p.device_mesh.groups] if isinstance(p, DTensor) else []
        hook = receiver_of(p._node) if isinstance(p._node, Leaf) else None
        if hook is not None and isinstance(hook.receiver, GradientReducer):
            sharing.append(hook.receiver.group)
        for group in sharing:
            if group.size > 1:
                groups.setdefault(tuple(group.ranks), (group, p))
    return [*groups.values()]


def any_of(flag: bool, groups: Sequence[Shared]) -> bool:
    """Return whether ``flag`` is set on any rank: along one group after the other, as on a mesh."""
    with no_grad():
        for group, p in groups:
            mine = asarray(int(flag), device=part_of(p.detach()).device)
            flag = bool(functional.all_reduce(mine, "max", group, label="whether a gradient is not finite"))
    return flag


AGREEMENT: Final = RankAgreement(part_of, groups_of, any_of)
"""What losses that are scaled ask other ranks by."""

"""``new_group``, and what a rank has in the place of a group that it is not in."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from operator import index
from typing import Final, ParamSpec, TypeVar, cast

from ...errors import ArgumentError, DistributedError
from ...system.user_frame import user_frame
from .group import ProcessGroup
from .world import current, seconds

P = ParamSpec("P")
R = TypeVar("R")


class NonMember(ProcessGroup):
    """The stand-in for a group on ranks that are not in it: false, without ranks, their own place is -1."""

    def __init__(self) -> None:
        self.ranks, self.rank, self.size = (), -1, -1

    def __repr__(self) -> str:
        return "GroupMember.NON_GROUP_MEMBER"

    def __reduce__(self) -> str:
        return "NON_GROUP_MEMBER"


NON_GROUP_MEMBER: Final = NonMember()


class GroupMember:
    """PyTorch's name of what ``new_group`` returns on a rank that is not in the group.

    It is false, and collectives with it warn and do nothing.

    >>> bool(GroupMember.NON_GROUP_MEMBER)
    False
    """

    NON_GROUP_MEMBER = NON_GROUP_MEMBER


class NonMemberError(DistributedError):
    """A call by a rank that is not in the group."""


def check_member(group: ProcessGroup) -> None:
    """Raise ``NonMemberError`` for what stands for a group that this rank is not in."""
    if group is NON_GROUP_MEMBER:
        raise NonMemberError(
            f"distributed: rank {current().rank} is not in the group, which new_group says by returning"
            f" {group!r}. Call on its ranks only: `if group:`."
        )


def by_members(function: Callable[P, R]) -> Callable[P, R]:
    """Make a call do nothing but warn on ranks that are not in its group, and return None there."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except NonMemberError:
            name, rank = function.__name__, current().rank
            warnings.warn(
                f"{name}: rank {rank} is not in the group, and does nothing.", stacklevel=user_frame()[1]
            )
            return cast(R, None)

    return call


def new_group(ranks: Sequence[int] | None = None, timeout: float | timedelta | None = None) -> ProcessGroup:
    """Make a group of some ranks of the program; None: of all.

    All ranks call it, in the same order. One that is not in the group gets ``GroupMember.NON_GROUP_MEMBER``,
    which is false, and with which collectives do nothing but warn, as PyTorch's do. Ranks keep the order in
    which they are given. ``timeout`` is the seconds that its collectives wait for other ranks; None: as many
    as ``init`` or ``run_ranks`` says.

    Raises ``ArgumentError`` for a rank that does not exist or stands twice, and a timeout not above 0.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     pair = dist.new_group([0, 2])
    ...     return dist.get_rank(pair) if pair else pair
    >>> dist.run_ranks(rank, 3)
    [0, GroupMember.NON_GROUP_MEMBER, 1]
    """
    world = current()
    try:
        chosen = tuple(range(world.size)) if ranks is None else tuple(map(index, ranks))
    except TypeError:
        chosen = ()
    if not chosen or len(set(chosen)) != len(chosen) or not 0 <= min(chosen) <= max(chosen) < world.size:
        raise ArgumentError(
            f"new_group: ranks must be different numbers from 0 to {world.size - 1}, got {ranks!r}."
        )
    limit = None if timeout is None else seconds(timeout, "new_group")
    count = world.group_counts[chosen] = world.group_counts.get(chosen, 0) + 1
    if world.rank not in chosen:
        return NON_GROUP_MEMBER
    return ProcessGroup(world, f"{','.join(map(str, chosen))}#{count}", chosen, limit)

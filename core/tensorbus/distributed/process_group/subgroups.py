"""Ranks of groups as numbers in the program and back, and groups that divide the ranks of another."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ArgumentError
from .group import ProcessGroup, get_group
from .membership import NON_GROUP_MEMBER, new_group
from .world import get_world_size


def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    """Return the ranks of a group as numbers in the program, in its order; None: of all ranks.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> dist.run_ranks(lambda: dist.get_process_group_ranks(dist.new_group([1, 0])), 2)
    [[1, 0], [1, 0]]
    """
    return [*get_group().ranks] if group is None else [*group.ranks]


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Return the number in the program of the rank at a place in a group.

    Raises ``ArgumentError`` where the group has no such place.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     group = dist.new_group([2, 0, 1])
    ...     return dist.get_global_rank(group, 0), dist.get_group_rank(group, 0)
    >>> dist.run_ranks(rank, 3)[0]
    (2, 1)
    """
    if not 0 <= group_rank < group.size:
        raise ArgumentError(
            f"get_global_rank: group_rank must be 0 to {group.size - 1} in {group!r}, got {group_rank!r}."
        )
    return group.ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Return the place in a group of a rank of the program.

    Raises ``ArgumentError`` for a rank that is not in the group.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> dist.run_ranks(lambda: dist.get_group_rank(dist.new_group([1, 0]), 1), 2)
    [0, 0]
    """
    if global_rank not in group.ranks:
        raise ArgumentError(f"get_group_rank: rank {global_rank!r} is not in {group!r}.")
    return group.ranks.index(global_rank)


def new_subgroups(
    group_size: int, group: ProcessGroup | None = None
) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Divide the ranks of ``group`` (None: all) into groups of ``group_size`` ranks that follow each other.

    Returns the one that this rank is in, and all of them, ``GroupMember.NON_GROUP_MEMBER`` for those that it
    is not in. All ranks of the program call it. Raises ``ArgumentError`` where ``group_size`` does not divide
    the number of ranks.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> dist.run_ranks(lambda: dist.new_subgroups(2)[0].ranks, 4)
    [(0, 1), (0, 1), (2, 3), (2, 3)]
    """
    ranks = get_process_group_ranks(group)
    if group_size < 1 or len(ranks) % group_size:
        raise ArgumentError(
            f"new_subgroups: group_size must divide the number of ranks, {len(ranks)}, got {group_size!r}."
        )
    starts = range(0, len(ranks), group_size)
    return new_subgroups_by_enumeration([ranks[start : start + group_size] for start in starts])


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Make several groups, of which no rank is in two; return as ``new_subgroups`` does.

    All ranks of the program call it. Raises ``ArgumentError`` for no group, a rank that does not exist, and
    one that stands twice.

    >>> import tensorbus as tb
    >>> def rank():
    ...     mine, every = tb.distributed.new_subgroups_by_enumeration([[0, 2], [1]])
    ...     return mine.ranks, [*map(bool, every)]
    >>> tb.distributed.run_ranks(rank, 3)
    [((0, 2), [True, False]), ((1,), [False, True]), ((0, 2), [True, False])]
    """
    every = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if not every or len(set(every)) != len(every) or not set(every) <= set(range(get_world_size())):
        raise ArgumentError(
            f"new_subgroups_by_enumeration: lists of different ranks, 0 to {get_world_size() - 1}, are"
            f" needed, got {[[*ranks] for ranks in ranks_per_subgroup_list]}."
        )
    groups = [new_group(ranks) for ranks in ranks_per_subgroup_list]
    return next(filter(None, groups), NON_GROUP_MEMBER), groups

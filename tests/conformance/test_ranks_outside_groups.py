"""Ranks that are not in a group: collectives, messages and objects do nothing there but warn."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist

OUTSIDE: dict[str, Callable[[Any, Any], Any]] = {
    "all_reduce": lambda x, g: dist.all_reduce(x, group=g),
    "all_reduce beside": lambda x, g: dist.all_reduce(x, group=g, async_op=True),
    "reduce": lambda x, g: dist.reduce(x, 0, group=g),
    "broadcast": lambda x, g: dist.broadcast(x, 0, group=g),
    "all_gather": lambda x, g: dist.all_gather([x, x], x, group=g),
    "all_gather_into_tensor": lambda x, g: dist.all_gather_into_tensor(x, x, group=g),
    "reduce_scatter": lambda x, g: dist.reduce_scatter(x, [x, x], group=g),
    "reduce_scatter_tensor": lambda x, g: dist.reduce_scatter_tensor(x, x, group=g),
    "all_to_all": lambda x, g: dist.all_to_all([x, x], [x, x], group=g),
    "all_to_all_single": lambda x, g: dist.all_to_all_single(x, x, group=g),
    "gather": lambda x, g: dist.gather(x, None, 0, group=g),
    "scatter": lambda x, g: dist.scatter(x, None, 0, group=g),
    "barrier": lambda x, g: dist.barrier(g),
    "monitored_barrier": lambda x, g: dist.monitored_barrier(g),
    "all_gather_object": lambda x, g: dist.all_gather_object([0, 0], 1, group=g),
    "gather_object": lambda x, g: dist.gather_object(1, None, 0, group=g),
    "broadcast_object_list": lambda x, g: dist.broadcast_object_list([1], 0, group=g),
    "scatter_object_list": lambda x, g: dist.scatter_object_list([1], None, 0, group=g),
    "send_object_list": lambda x, g: dist.send_object_list([1], 0, group=g),
    "recv_object_list": lambda x, g: dist.recv_object_list([1], 0, group=g),
    "isend": lambda x, g: dist.isend(x, 0, group=g),
    "irecv": lambda x, g: dist.irecv(x, 0, group=g),
    "isend of send": lambda x, g: dist.send(x, 0, group=g),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_ranks_outside_of_a_group_do_nothing_but_warn(name: str, device: str) -> None:
    def rank(r: int) -> Any:
        group, x = dist.new_group([0, 2]), tb.full((2,), float(r), device=device)
        if group:
            return None
        assert group is dist.GroupMember.NON_GROUP_MEMBER
        assert (dist.get_rank(group), dist.get_world_size(group), copy.deepcopy(group) is group) == (
            -1,
            -1,
            True,
        )
        assert pickle.loads(pickle.dumps(group)) is group
        with pytest.warns(UserWarning, match=f"^{name.split()[0]}: rank 1 is not in the group"):
            assert OUTSIDE[name](x, group) is None
        assert x.tolist() == [r, r]
        with pytest.raises(tb.errors.DistributedError, match="rank 1 is not in the group"):
            dist.functional.all_reduce(x, group=group)
        return dist.recv(x, 0, group=group) if name == "irecv" else -1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert dist.run_ranks(lambda: rank(dist.get_rank()), 3) == [None, -1, None]

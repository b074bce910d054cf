"""A block of ``explicit()``: nothing communicates by itself, and errors say what would have been sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import distributed as dist

S, R, P = dist.Shard, dist.Replicate, dist.Partial
GATHER = "all_gather, for which each rank sends 32 bytes"
EXCHANGE = "all_to_all, for which each rank sends 16 bytes"
REDUCE = "all_reduce, for which each rank sends 4 bytes"
REFUSED: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "an operand": (GATHER, lambda rows, whole: rows @ rows.mT),
    "a function that is not linear, of terms": (REDUCE, lambda rows, whole: rows.sum().exp()),
    "the row at an index": (EXCHANGE, lambda rows, whole: rows[0]),
    "a large box": (EXCHANGE, lambda rows, whole: rows[1:]),
    "a softmax over what is split": ("all_", lambda rows, whole: tb.nn.functional.softmax(rows, 0)),
    "a result that goes where it is written": (GATHER, lambda rows, whole: whole.add_(rows)),
    "a copy": (GATHER, lambda rows, whole: whole.copy_(rows)),
    "item": (REDUCE, lambda rows, whole: rows.sum().item()),
    "a branch": (REDUCE, lambda rows, whole: bool(rows.sum())),
    "tolist": (GATHER, lambda rows, whole: rows.tolist()),
    "numpy": (GATHER, lambda rows, whole: rows.numpy()),
    "asarray": (GATHER, lambda rows, whole: np.asarray(rows)),
    "local_map": (
        "local_map.*argument 0.*" + GATHER,
        lambda rows, whole: dist.local_map(tb.exp, [R()], [[R()]])(rows),
    ),
}
ALLOWED: dict[str, Callable[[Any, Any], Any]] = {
    "parts": lambda rows, whole: (rows * 2 + rows.sum(1, keepdim=True)) @ whole.mT,
    "what each rank has, cut": lambda rows, whole: rows + whole,
    "a change in place": lambda rows, whole: rows.clone().add_(rows).copy_(whole),
    "assignment": lambda rows, whole: (rows.__setitem__(0, 1.0), rows.__setitem__(slice(1, 3), whole[:2])),
    "what is asked for": lambda rows, whole: (rows.redistribute([R()]) @ whole.mT, rows.full_tensor()),
    "elements that each rank has": lambda rows, whole: (whole.tolist(), whole.sum().item(), whole.numpy()),
    "showing a part": lambda rows, whole: repr(rows),
    "local_map": lambda rows, whole: dist.local_map(tb.add, [S(0)], [[S(0)], [S(0)]])(rows, whole),
}


def _two() -> tuple[Any, Any]:
    mesh = dist.init_device_mesh("cpu", (2,))
    whole = dist.distribute_tensor(tb.ones((4, 4), device="cpu"), mesh)
    return whole.redistribute([S(0)]), whole


def test_what_would_communicate_is_refused_and_says_what_it_would_send() -> None:
    def rank() -> None:
        for message, call in REFUSED.values():
            rows, whole = _two()
            before = len(dist.records())
            with dist.explicit(), pytest.raises(dist.DistributedError, match=message):
                call(rows, whole)
            if message in (GATHER, EXCHANGE):  # and nothing was sent
                assert len(dist.records()) == before
            with dist.explicit(), dist.explicit(False):
                call(rows, whole)
        for call in ALLOWED.values():
            with dist.explicit():
                call(*_two())
        leaf = _two()[1].requires_grad_()
        with dist.explicit():
            (_two()[0] @ leaf).sum().backward()
        assert leaf.grad.placements == (R(),)

    dist.run_ranks(rank, 2)


def test_compiled_calls_are_refused_as_others_are_whichever_came_first() -> None:
    def rank() -> int:
        rows, _ = _two()
        alone = tb.ones((4, 4), device="cpu")
        for first in (False, True):
            summed = tb.compile(lambda x: (x - x.sum(0)).exp())
            mixed = tb.compile(lambda x, y: x + y)
            for refuses in (first, not first, first):
                with dist.explicit(refuses):
                    if refuses:
                        with pytest.raises(dist.DistributedError, match="all_reduce"):
                            summed(rows)
                    else:
                        assert summed(rows).tolist() == (rows - rows.sum(0)).exp().tolist()
                with dist.implicit_replication(refuses):
                    if refuses:
                        assert mixed(rows, alone).placements == (S(0),)
                    else:
                        with pytest.raises(tb.DeviceError, match="Say how it lies"):
                            mixed(rows, alone)
        local = tb.compile(lambda x: x * 2)
        local(rows)
        with dist.explicit(), dist.implicit_replication():  # it asked for neither: the program stays
            local(rows)
        return len(local.this_rank.graphs)

    assert dist.run_ranks(rank, 2) == [1, 1]

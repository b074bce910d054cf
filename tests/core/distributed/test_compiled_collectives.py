"""Programs do each collective of the function, in its order, whatever becomes of the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist

reduce = dist.functional.all_reduce


def _one_rank_uses_it(x: Any) -> Any:
    total = reduce(x * 2)
    return total.sum() if dist.get_rank() == 0 else x.sum()


def _ranks_return_them_in_other_orders(x: Any) -> Any:
    first, second = reduce(x * 2), reduce(x * 3)
    return (first, second) if dist.get_rank() == 0 else (second, first)


def _equal_calls(x: Any) -> Any:
    return reduce(x) + reduce(x)


def _nobody_uses_it(x: Any) -> Any:
    reduce(x)
    return x


def _one_rank_uses_the_gradient(x: Any) -> Any:
    y = x.detach().requires_grad_()
    (reduce(y * 2) * reduce(y * 3)).sum().backward()
    return y.grad if dist.get_rank() == 0 else y.detach()


def _between_breaks(x: Any) -> Any:
    first, second = reduce(x * 2), reduce(x * 3)
    if first.sum().item() > 0:
        return second if dist.get_rank() == 0 else first
    return x


def _empty_parts(x: Any) -> Any:
    mesh = dist.init_device_mesh(None, (2,))
    y = dist.distribute_tensor(x, mesh, [dist.Shard(0)]).redistribute([dist.Replicate()])
    return y.redistribute([dist.Shard(0)])[1:1].sum().full_tensor() + y[2:].max().full_tensor()


def _indices(x: Any) -> Any:
    places = reduce(x).to(tb.int64) - 2
    return x[places] if dist.get_rank() == 0 else x


def _in_place(x: Any) -> Any:
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def _beside_the_program(x: Any) -> Any:
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x + 1
    work.wait()
    return y + z


def _from_one_to_another(x: Any) -> Any:
    y = x * 2
    if dist.get_rank() == 0:
        dist.send(y, 1)
    else:
        dist.recv(y, 0)
    return y + 1


def _waiting(x: Any) -> Any:
    y = x + 1
    dist.barrier()
    return y * 2


def _of_a_branch(x: Any) -> Any:
    def branch(x: Any) -> Any:
        first, second = reduce(x * 2), reduce(x * 3)
        return first - second if dist.get_rank() == 0 else -(second - first)

    return tb.cond(x.sum() > 0, branch, lambda x: x, (x,)) + reduce(x)


BREAKING = [_beside_the_program, _from_one_to_another, _waiting, _between_breaks, _of_a_branch]
"""Functions of what is no op: Python does it, between programs."""


@pytest.mark.filterwarnings("ignore:cond. the functions cannot be captured")
@pytest.mark.parametrize(
    "function",
    [
        *BREAKING[:3], _of_a_branch, _in_place,
        _one_rank_uses_it, _ranks_return_them_in_other_orders, _equal_calls, _nobody_uses_it,
        _one_rank_uses_the_gradient, _between_breaks, _empty_parts, _indices,
    ],
    ids=lambda f: f.__name__[1:],
)  # fmt: skip
def test_a_program_does_the_collectives_of_its_function(function: Callable[[Any], Any]) -> None:
    def rank() -> Any:
        compiled = tb.compile(function)
        numbers, calls = [], []
        for run in (function, compiled, compiled, compiled):
            before = len(dist.records())
            out = run(tb.arange(3.0))
            calls.append([(r.operation, r.shapes) for r in dist.records()[before:]])
            numbers.append([x.tolist() for x in (out if isinstance(out, tuple) else (out,))])
        return numbers[1:] == numbers[:1] * 3, calls[1:] == calls[:1] * 3, calls[0]

    results = dist.run_ranks(rank, 2, timeout=20)
    assert [r[:2] for r in results] == [(True, True)] * 2, results
    operations = [[operation for operation, _ in r[2] if operation not in ("send", "recv")] for r in results]
    assert operations[0] == operations[1]
    assert all(calls for *_, calls in results)


@pytest.mark.filterwarnings("ignore:cond. the functions cannot be captured")
@pytest.mark.parametrize("function", BREAKING, ids=lambda f: f.__name__[1:])
def test_fullgraph_refuses_what_communicates_outside_of_programs(function: Callable[[Any], Any]) -> None:
    def rank() -> None:
        tb.compile(function, fullgraph=True)(tb.arange(3.0))

    with pytest.raises(tb.errors.CaptureError, match=r"communicates|asks for a value"):
        dist.run_ranks(rank, 2, timeout=20)


def test_a_program_that_fails_does_no_collective_again() -> None:
    def rank() -> tuple[int, str]:
        picked = tb.compile(lambda x, places: reduce(x)[places], fullgraph=True)
        x = tb.arange(3.0)
        for _ in range(2):
            picked(x, tb.asarray([2, 0]))
        before, failure = len(dist.records()), ""
        try:
            picked(x, tb.asarray([2, 7 * dist.get_rank()])).tolist()
        except IndexError as error:
            failure = str(error)
        return len(dist.records()) - before, failure

    (calls, failure), (failed_calls, failed) = dist.run_ranks(rank, 2, timeout=20)
    assert (calls, failed_calls, failure) == (1, 1, "")
    assert "index 7 is out of range" in failed


def test_backward_programs_do_collectives_in_order() -> None:
    def rank() -> list[Any]:
        def loss(x: Any, y: Any) -> Any:
            return (reduce(x * y) * reduce(x + y)).sum()

        compiled = tb.compile(loss, fullgraph=True)
        results = []
        for run in (loss, compiled, compiled):
            x, y = (tb.arange(3.0).requires_grad_(k != dist.get_rank() + 1) for k in (0, 1))
            before = len(dist.records())
            run(x, y).backward()
            results.append((x.grad.tolist(), len(dist.records()) - before))
        return results

    for value in dist.run_ranks(rank, 2, timeout=20):
        assert value[1:] == value[:1] * 2
        assert value[0][1] == 4

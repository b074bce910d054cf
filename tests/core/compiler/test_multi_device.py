"""Transfers between devices are part of a captured program, and so are their gradients."""

from __future__ import annotations

import pytest
import tensorbus as tb
from tensorbus.errors import DeviceError

NEAR, FAR = "refdev:0", "refdev:1"


def whole(fn, *calls):
    """Compare each call with an eager one; return the compiled function, which has not broken."""
    compiled = tb.compile(fn, fullgraph=True)
    for args in calls:
        want, got = fn(*args), compiled(*args)
        assert [(t.tolist(), str(t.device)) for t in want] == [(t.tolist(), str(t.device)) for t in got]
    assert len(compiled.replays) == 1, compiled.reasons
    assert not compiled.recompiles
    return compiled


def inputs():
    return [(tb.arange(3.0, device=NEAR) + k,) for k in range(3)]


def test_there_and_back_and_there_again() -> None:
    def fn(x):
        far = (x * 2).to(FAR) + 1
        near = far.to(NEAR) * x
        again = near.to(FAR) - far
        return far, near, again, x.to(FAR), again.to(NEAR)

    compiled = whole(fn, *inputs())
    assert [g.op for g in compiled.graphs[0]][-1] == "multiply"
    assert len(compiled.graphs) == 4


def test_results_of_several_devices_without_a_transfer() -> None:
    whole(lambda x, y: (x + 1, y * 2), *[(x, x.to(FAR)) for (x,) in inputs()])


def test_a_value_is_transferred_once() -> None:
    def fn(x):
        y = x * 2
        return y.to(FAR) + y.to(FAR), y.to(FAR)

    assert len(whole(fn, *inputs()).graphs) == 2


def test_constants_and_numbers_belong_to_each_device() -> None:
    scale = 3.0

    def fn(x):
        far = tb.arange(3.0, device=FAR) * scale
        return far.to(NEAR) * scale + x * scale, far

    whole(fn, *inputs())


def test_gradients_go_back_the_way_that_values_came() -> None:
    def build():
        weight = tb.asarray([1.0, 2.0, 3.0], device=NEAR).requires_grad_()

        def fn(x):
            weight.grad = None
            far = (weight * x).to(FAR)
            loss = (far * far).sum()
            loss.backward()
            return loss.detach(), weight.grad

        return fn

    eager, compiled = build(), tb.compile(build(), fullgraph=True)
    for (x,) in inputs():
        assert [t.tolist() for t in eager(x)] == [t.tolist() for t in compiled(x)]
    assert compiled.replays


def test_a_training_step_over_two_devices_is_one_cache_entry() -> None:
    def build():
        tb.manual_seed(0)
        first, second = tb.nn.Linear(3, 4).to(NEAR), tb.nn.Linear(4, 1).to(FAR)
        optimizer = tb.optim.Adam([*first.parameters(), *second.parameters()], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = (second(tb.tanh(first(x)).to(FAR)) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach(), first.weight.detach(), second.weight.detach()

        return step

    eager, compiled = build(), tb.compile(build(), fullgraph=True)
    for k in range(5):
        x = tb.ones((2, 3), device=NEAR) * k
        for want, got in zip(eager(x), compiled(x), strict=True):
            assert (abs(want - got) < 1e-6).all()
    assert compiled.replays, compiled.reasons


def test_a_differentiable_result_that_crosses_devices_is_left_to_python() -> None:
    weight = tb.ones(3, device=NEAR).requires_grad_()
    compiled = tb.compile(lambda x: ((weight * x).to(FAR) * 2).sum())
    for _ in range(5):
        weight.grad = None
        compiled(tb.arange(3.0, device=NEAR)).backward()
        assert weight.grad.tolist() == [0.0, 2.0, 4.0]
    assert not compiled.breaks
    assert "crosses devices" in compiled.reasons[0]


def test_tensors_of_two_devices_in_one_op_are_still_an_error() -> None:
    compiled = tb.compile(lambda x, y: x + y)
    with pytest.raises(DeviceError, match="refdev"):
        compiled(tb.ones(1, device=NEAR), tb.ones(1, device=FAR))


def test_an_index_out_of_range_after_a_transfer_is_an_error() -> None:
    compiled = tb.compile(lambda x, i: x.to(FAR)[i] * 2)
    x = tb.asarray([1.0, 2.0], device=NEAR)
    for i in ([0, 1], [1, 1], [1, 0]):
        compiled(x, tb.asarray(i, device=FAR))
    with pytest.raises(IndexError):  # now or when the value is asked for
        compiled(x, tb.asarray([0, 5], device=FAR)).tolist()
    assert compiled(x, tb.asarray([0, 0], device=FAR)).tolist() == [2.0, 2.0]

"""What histories keep of tensors so that writes to them are noticed: what is needed, and not for long."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.autograd import saved_values


def leaf(*values: float) -> Tensor:
    return tb.asarray(values, device="cpu").requires_grad_()


def test_a_history_lets_go_of_operands() -> None:
    x, c = leaf(1.0, 2.0), tb.ones((2,), device="cpu")
    y = (x * c).sum()
    reference = weakref.ref(c)
    del c
    assert reference() is not None
    y.backward()
    assert reference() is None


def test_a_change_makes_no_cycle() -> None:
    """A tensor whose old value its own history needs: that keeps the value, and not the tensor."""
    gc.collect()
    gc.disable()
    try:
        for change in (
            lambda c, x: c.mul_(x),
            lambda c, x: c.__imul__(x),
            lambda c, x: c.div_(x),
            lambda c, x: c[:1].mul_(x[:1]),
        ):
            x, c = leaf(1.0, 2.0), tb.ones((2,), device="cpu") * 3.0
            change(c, x)
            c += 1.0
            c.sum().backward()
            reference = weakref.ref(c)
            del c
            assert reference() is None
    finally:
        gc.enable()


def test_copies_have_histories_of_their_own() -> None:
    x = leaf(1.0, 2.0) * 2.0
    copies = [x.clone(), x.clone(), tb.zeros((2,), device="cpu").copy_(x), x.reshape((2,), copy=True)]
    z = sum(((c * c).sum() for c in copies[1:]), (copies[0] * copies[0]).sum())
    x.add_(1)
    z.backward(retain_graph=True)
    copies[1].add_(1)
    with pytest.raises(tb.AutogradError, match="add_ has overwritten"):
        z.backward()


def test_a_tensor_that_stops_asking_is_still_followed() -> None:
    x = leaf(1.0, 2.0)
    z = (x * x).sum()
    x.requires_grad_(False)
    x.add_(1)
    with pytest.raises(tb.AutogradError, match="add_ has overwritten"):
        z.backward()
    c, y = tb.ones((2,), device="cpu"), leaf(1.0, 2.0)
    z = (c * y).sum()
    c.requires_grad_()
    with tb.no_grad():
        c.add_(1)
    with pytest.raises(tb.AutogradError, match="add_ has overwritten"):
        z.backward()


def test_equal_values_of_several_tensors_are_told_apart() -> None:
    x = leaf(1.0, 2.0) * 2.0
    c = x.detach().clone()
    z = (x * c).sum()  # the gradient of x reads c, which holds the same value
    x.add_(1)
    z.backward()


def test_only_gradients_that_are_asked_for_count() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    a, b = x * 1.0, y * 1.0
    z = (a * b).sum()
    b.add_(1)
    assert tb.grad(z, y, retain_graph=True)[0].tolist() == [1.0, 2.0]
    with pytest.raises(tb.AutogradError, match="second operand"):
        tb.grad(z, x)


def test_a_write_that_fails_is_none() -> None:
    x = leaf(1.0, 2.0) * 1.0
    z = (x * x).sum()
    with pytest.raises(tb.ShapeError):
        x.add_(tb.ones((3,), device="cpu"))
    with pytest.raises(tb.TensorbusError):
        x[5] = 1.0
    z.backward()


def test_compiled_functions_that_are_gone_leave_nothing() -> None:
    def halving(b: Tensor) -> Callable[[], Tensor]:
        @tb.compile
        def halve() -> Tensor:
            b.mul_(0.5)
            return b.sum()

        assert [halve().tolist() for _ in range(2)] == [b.sum().tolist() * 2, b.sum().tolist()]
        return halve

    gc.collect()
    known = set(saved_values._clocks)
    shared = leaf(8.0, 8.0).detach()
    living, gone = halving(shared), [halving(leaf(1.0, 2.0).detach() * 1.0) for _ in range(3)]
    gone.append(halving(shared))
    assert len(set(saved_values._clocks) - known) == 4
    del gone
    gc.collect()
    assert set(saved_values._clocks) - known == {id(shared)}
    z = (leaf(1.0, 2.0) * shared).sum()
    living()
    with pytest.raises(tb.AutogradError, match="a compiled function has overwritten"):
        z.backward()

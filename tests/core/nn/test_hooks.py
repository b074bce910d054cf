"""Hooks of modules: their order, what they may change, and that they can be taken away."""

from __future__ import annotations

from typing import Any

import pytest
import tensorbus as tb
from tensorbus import nn


class Scale(nn.Module):
    def forward(self, x: tb.Tensor, factor: float = 2.0) -> tb.Tensor:
        return x * factor


class Fails(nn.Module):
    def forward(self, x: tb.Tensor) -> tb.Tensor:
        raise ValueError("on purpose")


def test_hooks_run_in_order_and_may_change_what_passes():
    module, seen = Scale(), []
    module.register_forward_pre_hook(lambda m, args: seen.append(("first", len(args))))
    module.register_forward_pre_hook(lambda m, args: args[0] + 1)
    module.register_forward_pre_hook(lambda m, args: seen.append(("before all", len(args))), prepend=True)
    module.register_forward_hook(lambda m, args, out: out * 10)
    module.register_forward_hook(lambda m, args, out: seen.append((args[0].item(), out.item())))
    assert module(tb.asarray(1.0)).item() == 40.0
    assert seen == [("before all", 1), ("first", 1), (2.0, 40.0)]


def test_hooks_with_keywords():
    module = Scale()
    module.register_forward_pre_hook(lambda m, args, kwargs: (args, {"factor": 5.0}), with_kwargs=True)
    seen: list[Any] = []
    module.register_forward_hook(lambda m, args, kwargs, out: seen.append(kwargs), with_kwargs=True)
    assert module(tb.asarray(1.0), factor=3.0).item() == 5.0
    assert seen == [{"factor": 5.0}]
    wrong = Scale()
    wrong.register_forward_pre_hook(lambda m, args, kwargs: 1, with_kwargs=True)
    with pytest.raises(TypeError, match=r"\(args, kwargs\)"):
        wrong(tb.asarray(1.0))


def test_a_hook_can_be_taken_away():
    module = Scale()
    handle = module.register_forward_hook(lambda m, args, out: out + 1)
    assert module(tb.asarray(1.0)).item() == 3.0
    handle.remove()
    handle.remove()
    assert module(tb.asarray(1.0)).item() == 2.0
    with module.register_forward_pre_hook(lambda m, args: args[0] * 7):
        assert module(tb.asarray(1.0)).item() == 14.0
    assert module(tb.asarray(1.0)).item() == 2.0


def test_a_hook_that_is_always_called_sees_failures():
    module, seen = Fails(), []
    module.register_forward_hook(lambda m, args, out: seen.append("not me"))
    module.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    with pytest.raises(ValueError, match="on purpose"):
        module(tb.asarray(1.0))
    assert seen == [None]


def test_a_hook_that_fails_after_a_failure_is_told_beside_it():
    module = Fails()
    module.register_forward_hook(lambda m, args, out: {}["no such key"], always_call=True)
    with pytest.raises(ValueError, match="on purpose") as caught:
        module(tb.asarray(1.0))
    assert "no such key" in caught.value.__notes__[0]


def test_backward_hooks_see_both_gradients():
    module, seen = nn.Linear(2, 1, bias=False), []
    nn.init.constant_(module.weight, 3.0)
    module.register_full_backward_hook(lambda m, inputs, outputs: seen.append((inputs, outputs)))
    x = tb.asarray([[1.0, 2.0]]).requires_grad_()
    (module(x) * 5 + x.sum()).sum().backward()
    ((inputs, outputs),) = seen
    assert inputs[0].tolist() == [[15.0, 15.0]]
    assert outputs[0].tolist() == [[5.0]]
    assert x.grad is not None
    assert x.grad.tolist() == [[16.0, 16.0]]


def test_a_backward_hook_may_replace_the_only_gradient():
    module = Scale()
    module.register_full_backward_hook(lambda m, inputs, outputs: (inputs[0] * 100,))
    x = tb.asarray([1.0]).requires_grad_()
    module(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [200.0]


def test_a_backward_hook_without_a_gradient_of_the_input():
    module, seen = nn.Linear(2, 1), []
    module.register_full_backward_hook(lambda m, inputs, outputs: seen.append((inputs, outputs[0].tolist())))
    module(tb.ones((1, 2))).sum().backward()
    assert seen == [((None,), [[1.0]])]
    with tb.no_grad():
        module(tb.ones((1, 2)))
    assert len(seen) == 1

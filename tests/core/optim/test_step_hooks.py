"""Hooks around steps, and the keywords by which PyTorch chooses implementations."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import optim

from error_bounds import gamma

MAKE: dict[str, Callable[..., optim.Optimizer]] = {
    name: getattr(optim, name)
    for name in (
        "SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta", "Rprop", "ASGD",
        "Adafactor",
    )
}  # fmt: skip


def one() -> tb.Tensor:
    x = tb.asarray([1.0, -2.0]).requires_grad_()
    x.grad = tb.asarray([0.5, 3.0])
    return x


@pytest.mark.parametrize("name", MAKE)
def test_choices_of_an_implementation_change_nothing(name: str) -> None:
    x, y = one(), one()
    MAKE[name]([x]).step()
    MAKE[name]([y], foreach=True, fused=None, capturable=True, differentiable=False).step()
    assert y.tolist() == pytest.approx(x.tolist(), rel=gamma(16, "float32"), abs=0)
    with pytest.raises(tb.ArgumentError, match=f"{name}: differentiable=True is not supported"):
        MAKE[name]([x], differentiable=True)
    with pytest.raises(tb.ArgumentError, match="differentiable=True is not supported"):
        MAKE[name]([{"params": [x], "differentiable": True}])
    with pytest.raises(TypeError, match="faster"):
        MAKE[name]([x], faster=True)


def test_decoupled_decay_of_adam_is_that_of_adamw() -> None:
    x, y, z = one(), one(), one()
    adam = optim.Adam([x], lr=0.1, weight_decay=0.5, decoupled_weight_decay=True)
    adamw = optim.AdamW([y], lr=0.1, weight_decay=0.5)
    plain = optim.Adam([z], lr=0.1, weight_decay=0.5)
    for _ in range(2):
        for optimizer in (adam, adamw, plain):
            optimizer.step()
    assert x.tolist() == y.tolist() != z.tolist()
    saved = adamw.state_dict()
    del saved["param_groups"][0]["decoupled_weight_decay"]
    again = optim.AdamW([y], lr=0.1)
    again.load_state_dict(saved)
    adam.step()
    again.step()
    assert x.tolist() == y.tolist()


def test_hooks_run_around_each_step_until_they_are_removed() -> None:
    x = one()
    optimizer = optim.SGD([x], lr=1.0)
    seen: list[Any] = []
    pre = optimizer.register_step_pre_hook(
        lambda o, args, kwargs: seen.append(("pre", o is args[0], x.tolist()))
    )
    post = optimizer.register_step_post_hook(
        lambda o, args, kwargs: seen.append(("post", kwargs, x.tolist()))
    )
    optimizer.step()
    assert seen == [("pre", True, [1.0, -2.0]), ("post", {}, [0.5, -5.0])]
    pre.remove()
    pre.remove()
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("new"))
    pre.remove()
    optimizer.step()
    assert [entry if entry == "new" else entry[0] for entry in seen[2:]] == ["new", "post"]
    post.remove()
    copied = copy.deepcopy(optimizer)
    assert copied.param_groups[0]["params"][0] is not x
    del seen[:]
    copied.param_groups[0]["params"][0].grad = tb.asarray([1.0, 1.0])
    before = x.tolist()
    copied.step()
    assert seen == ["new"]
    assert x.tolist() == before
    assert copied.param_groups[0]["params"][0].tolist() == [before[0] - 1, before[1] - 1]


def test_a_hook_may_change_the_arguments() -> None:
    x = one()
    optimizer = optim.SGD([x], lr=1.0)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((*args, lambda: 7), {}))
    assert optimizer.step() == 7
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(tb.ArgumentError, match="a step pre-hook of SGD returns None or"):
        optimizer.step()


def test_hooks_of_steps_that_a_class_writes_itself() -> None:
    class Mine(optim.SGD):
        def step(self, closure: Any = None) -> Any:
            seen.append("mine")
            return super().step(closure)

    seen: list[str] = []
    x = one()
    for optimizer in (Mine([x], lr=1.0), optim.LBFGS([x], max_iter=1)):
        optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("pre"))
        optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("post"))
    optimizer.step(lambda: (x * x).sum())
    assert seen == ["pre", "post"]
    Mine([x], lr=1.0).step()
    assert seen == ["pre", "post", "mine"]


@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("late", [False, True])
def test_hooks_run_at_each_call_of_a_compiled_step(name: str, late: bool) -> None:
    def run(compiled: bool) -> Any:
        x = tb.asarray([1.0, -2.0]).requires_grad_()
        optimizer = MAKE[name]([x], lr=0.1)
        seen: list[Any] = []
        counts = {"pre": 0}

        def pre(o: Any, args: Any, kwargs: Any) -> None:
            counts["pre"] += 1
            o.param_groups[0]["lr"] *= 0.9
            x.grad = x.grad.clip(-1.5, 1.5)

        def post(o: Any, args: Any, kwargs: Any) -> None:
            seen.append(round(x.sum().item(), 5))

        def register() -> list[Any]:
            return [optimizer.register_step_pre_hook(pre), optimizer.register_step_post_hook(post)]

        def step() -> Any:
            optimizer.zero_grad()
            loss = (x * x).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        handles = [] if late else register()
        function = tb.compile(step) if compiled else step
        results = []
        for k in range(9):
            if k == 3 and late:
                handles = register()
            if k == 6:
                for handle in handles:
                    handle.remove()
            results.append(round(function().item(), 5))
        return results, seen, counts, optimizer.param_groups[0]["lr"]

    assert run(True) == run(False)


def test_a_hook_that_can_be_captured_is_part_of_the_program() -> None:
    x = tb.asarray([1.0, -2.0]).requires_grad_()
    optimizer = optim.SGD([x], lr=0.1)
    limits = {"n": 0}

    def halve(o: Any, args: Any, kwargs: Any) -> None:
        limits["n"] += 1
        for parameter in o.param_groups[0]["params"]:
            parameter.grad = parameter.grad * 0.5

    optimizer.register_step_pre_hook(halve)

    @tb.compile
    def step() -> None:
        optimizer.zero_grad()
        (x * x).sum().backward()
        optimizer.step()

    for _ in range(6):
        step()
    assert limits == {"n": 6}
    assert x.tolist() == pytest.approx([0.9**6, -2 * 0.9**6], rel=gamma(6 * 3, "float32"), abs=0)
    assert len(step.replays) <= 2

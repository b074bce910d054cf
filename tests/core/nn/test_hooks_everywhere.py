"""Hooks of every module, and hooks before gradients go back: eager and compiled."""

from __future__ import annotations

import pytest
import tensorbus as tb
from tensorbus import nn


def doubled(module, args, out):
    return out * 2 if isinstance(module, nn.ReLU) else None


@pytest.fixture(params=["eager", "compiled"])
def transform(request):
    return tb.compile if request.param == "compiled" else lambda fn: fn


def test_hooks_of_every_module_run_before_its_own(transform) -> None:
    model, seen = nn.Sequential(nn.ReLU()), []
    model[0].register_forward_pre_hook(lambda m, args: seen.append("own before"))
    model[0].register_forward_hook(lambda m, args, out: seen.append("own after"))
    with (
        nn.register_module_forward_pre_hook(lambda m, args: seen.append(f"before {type(m).__name__}")),
        nn.register_module_forward_hook(lambda m, args, out: seen.append(f"after {type(m).__name__}")),
    ):
        transform(lambda x: model(x))(tb.ones(1))
    inner = ["before ReLU", "own before", "after ReLU", "own after"]
    assert seen == ["before Sequential", *inner, "after Sequential"]
    seen.clear()
    model(tb.ones(1))
    assert seen == ["own before", "own after"]


def test_what_hooks_of_every_module_return_replaces(transform) -> None:
    model = nn.Sequential(nn.ReLU(), nn.Identity())
    run = transform(lambda x: model(x))
    x = tb.asarray([1.0, -2.0])
    assert run(x).tolist() == [1.0, 0.0]
    with nn.register_module_forward_hook(doubled):
        assert run(x).tolist() == [2.0, 0.0]
        assert run(x).tolist() == [2.0, 0.0]
        with nn.register_module_forward_pre_hook(
            lambda m, args: args[0] + 10 if isinstance(m, nn.ReLU) else None
        ):
            assert run(x).tolist() == [22.0, 16.0]
    assert run(x).tolist() == [1.0, 0.0]


def test_keywords_and_failures_reach_hooks_of_every_module() -> None:
    class Fails(nn.Module):
        def forward(self, x, factor=1.0):
            raise ValueError("on purpose")

    seen = []
    with (
        nn.register_module_forward_hook(lambda m, a, k, out: seen.append((k, out)), with_kwargs=True,
                                        always_call=True),
        pytest.raises(ValueError, match="on purpose"),
    ):  # fmt: skip
        Fails()(tb.ones(1), factor=3.0)
    assert seen == [({"factor": 3.0}, None)]


def test_hooks_of_every_module_see_gradients() -> None:
    model, seen = nn.Sequential(nn.ReLU(), nn.ReLU()), []

    def back(module, x, out):
        seen.append((type(module).__name__, x[0].tolist(), out[0].tolist()))

    with nn.register_module_full_backward_hook(back):
        x = tb.asarray([1.0, -1.0]).requires_grad_()
        (model(x) * 3).sum().backward()
    assert seen == [
        ("ReLU", [3.0, 0.0], [3.0, 3.0]), ("ReLU", [3.0, 0.0], [3.0, 0.0]),
        ("Sequential", [3.0, 0.0], [3.0, 3.0]),
    ]  # fmt: skip
    assert x.grad.tolist() == [3.0, 0.0]


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_pre_hook_replaces_the_gradient_of_the_result(everywhere, transform) -> None:
    class Scale(nn.Module):
        def forward(self, x):
            return x * 5

    model, seen = Scale(), []

    def hook(module, gradients):
        return (gradients[0] * 2,)

    handle = (
        nn.register_module_full_backward_pre_hook(hook)
        if everywhere
        else model.register_full_backward_pre_hook(hook)
    )
    last = model.register_full_backward_pre_hook(lambda m, g: seen.append(g[0].tolist()))
    after = model.register_full_backward_hook(lambda m, i, o: seen.append((i[0].tolist(), o[0].tolist())))

    def step(x):
        x.grad = None
        model(x).sum().backward()
        return x.grad

    x = tb.ones(1).requires_grad_()
    assert transform(step)(x).tolist() == [10.0]
    assert seen == [[2.0], ([10.0], [2.0])]
    for h in (handle, last, after):
        h.remove()
    assert step(x).tolist() == [5.0]


def test_a_pre_hook_is_called_where_no_input_wants_a_gradient() -> None:
    model, seen = nn.Linear(2, 1, bias=False), []
    model.register_full_backward_pre_hook(lambda m, g: seen.append(("before", len(g))))
    model.register_full_backward_hook(lambda m, x, out: seen.append(("after", x)))
    model(tb.ones((1, 2))).sum().backward()
    assert seen == [("before", 1), ("after", (None,))]


def test_gradients_of_several_results_cannot_be_replaced() -> None:
    class Pair(nn.Module):
        def forward(self, x):
            return x * 2, x * 3

    model, seen = Pair(), []
    model.register_full_backward_pre_hook(lambda m, g: seen.append([t.item() for t in g]))
    x = tb.asarray(1.0).requires_grad_()
    a, b = model(x)
    (a + b * 10).backward()
    assert seen == [[1.0, 10.0]]
    model.register_full_backward_pre_hook(lambda m, g: (g[0] * 2, g[1]))
    a, b = model(x)
    with pytest.raises(tb.AutogradError, match="return None"):
        (a + b).backward()


def test_a_first_hook_is_put_before_others() -> None:
    model, seen = nn.ReLU(), []
    model.register_full_backward_pre_hook(lambda m, g: seen.append(2))
    model.register_full_backward_pre_hook(lambda m, g: seen.append(1), prepend=True)
    model(tb.ones(1).requires_grad_()).sum().backward()
    assert seen == [1, 2]

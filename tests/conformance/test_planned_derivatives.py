"""Derivatives of products and convolutions, whose ops run by their plans on devices that generate code.

Everywhere they give what the cpu device gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.autograd import engine
from tensorbus.devices.device import Device
from tensorbus.eager_fusion import fused_vjp as derivatives
from tensorbus.eager_fusion.fused_function import programs_on

from error_bounds import assert_within, gamma

F: Any = tb.nn.functional
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 16)).astype("f4")
Y = RNG.normal(size=(6, 16)).astype("f4")
IMAGE = RNG.normal(size=(4, 6, 3, 5)).astype("f4")
BIAS = RNG.normal(size=6).astype("f4")
KERNEL = RNG.normal(size=(4, 3, 3, 2)).astype("f4")
LINEAR: dict[str, tuple[Callable[..., Tensor], tuple[Any, ...]]] = {
    "matmul": (lambda x, y: x @ y, (X, Y.T.copy())),
    "matmul, each of several with one": (lambda x, y: x @ y, (IMAGE[0], X[:5, :4])),
    "linear": (F.linear, (X, Y, BIAS)),
    "conv2d": (F.conv2d, (IMAGE[:, :3], KERNEL)),
    "conv2d, in groups and steps": (
        lambda x, w: F.conv2d(x, w, stride=2, padding=(1, 2), groups=2), (IMAGE, KERNEL)
    ),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2), (IMAGE[:, :4], KERNEL)),
}  # fmt: skip


def close(got: Tensor, wanted: Tensor, terms: int) -> None:
    """Check sums of so many terms, which are products of what is about 1."""
    exact = wanted.to("float64").numpy()
    assert_within(got.to("cpu").to("float64").numpy(), exact, 8 * gamma(terms, "float32") * terms)


@pytest.mark.parametrize("name", LINEAR)
def test_derivatives_of_products_run_by_plans(
    device: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second derivative of a shape makes the plans, and later ones run no rule."""
    function, arrays = LINEAR[name]
    xs, there = ([tb.asarray(a, device=d).requires_grad_() for a in arrays] for d in (device, "cpu"))
    wanted = function(*there)
    seed = tb.cos(wanted.detach())
    expected = tb.grad(wanted, there, seed)
    rules: list[str] = []
    planned: list[bool] = []
    rule, plans = engine.vjp_of, derivatives.planned_program

    def counted(node: Any, *rest: Any) -> Any:
        rules.append(node.plan.op.family)
        return rule(node, *rest)

    def noted(*arguments: Any) -> Any:
        planned.append(plans(*arguments) is not None)
        return plans(*arguments)

    monkeypatch.setattr(engine, "vjp_of", counted)
    monkeypatch.setattr(derivatives, "planned_program", noted)
    for _ in range(3):
        rules.clear()
        got = tb.grad(function(*xs), xs, seed.to(device))
        for one, other in zip(got, expected, strict=True):
            assert one is not None
            assert other is not None
            close(one, other, wanted.size)
    (only,) = tb.grad(function(*xs), xs[:1], seed.to(device))
    assert only is not None
    close(only, expected[0], wanted.size)
    if planned and all(planned):
        assert not {"matmul", "convolution"} & {*rules}
    maker = programs_on(Device(device))
    if maker is not None and not maker.least and name == "matmul":
        assert planned

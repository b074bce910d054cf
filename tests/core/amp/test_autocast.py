"""Products in a narrow dtype, sums in float32; eager and compiled; gradients in the parameters' dtype."""

from __future__ import annotations

import pytest
import tensorbus as tb
from tensorbus import nn


def test_products_are_narrow_and_sums_wide() -> None:
    x = tb.ones((2, 3))
    with tb.autocast():
        y = x @ x.mT
        assert y.dtype is tb.bfloat16
        assert nn.functional.softmax(y, dim=-1).dtype is tb.float32
        assert y.sum().dtype is tb.float32
        assert (y + x[:, :2]).dtype is tb.float32
        with tb.autocast(enabled=False):
            assert (x @ x.mT).dtype is tb.float32
        assert (tb.ones((2, 2), dtype=tb.float64) @ tb.ones((2, 2), dtype=tb.float64)).dtype is tb.float64
    assert (x @ x.mT).dtype is tb.float32


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_trains_under_it(compiled: bool) -> None:
    tb.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 1))
    optimizer = tb.optim.SGD(model.parameters(), lr=0.05)

    def step(x, y):
        optimizer.zero_grad()
        with tb.autocast(tb.bfloat16):
            out = model(x)
            assert out.dtype is tb.bfloat16
            loss = nn.functional.mse_loss(out, y)
        assert loss.dtype is tb.float32
        loss.backward()
        optimizer.step()
        return loss.detach()

    fn = tb.compile(step) if compiled else step
    x, y = tb.uniform((16, 4)), tb.ones((16, 1))
    losses = [fn(x, y).item() for _ in range(20)]
    assert losses[-1] < losses[0] / 2
    assert all(p.grad.dtype is tb.float32 for p in model.parameters())


def test_it_is_guarded_and_local_to_its_thread() -> None:
    compiled = tb.compile(lambda x: x @ x)
    x = tb.ones((2, 2))
    assert compiled(x).dtype is tb.float32
    with tb.autocast(tb.float16):
        assert compiled(x).dtype is tb.float16
    assert compiled.recompiles == ["autocast"]
    assert compiled(x).dtype is tb.float32

    @tb.autocast()
    def decorated(x):
        return x @ x

    assert decorated(x).dtype is tb.bfloat16
    with pytest.raises(TypeError, match="float16 or bfloat16"):
        tb.autocast(tb.float64)


def test_for_one_type_of_device() -> None:
    here, there = tb.ones((2, 2)), tb.ones((2, 2), device="refdev")
    run = tb.compile(lambda x: x @ x)
    contexts = {"cpu": tb.autocast("cpu", tb.float16), "refdev": tb.autocast("refdev", dtype="float16")}
    for first, context in contexts.items():
        wanted = [tb.float16, tb.float32] if first == "cpu" else [tb.float32, tb.float16]
        for _ in range(2):
            with context:
                assert [(x @ x).dtype for x in (here, there)] == wanted
                assert [run(x).dtype for x in (here, there)] == wanted
    with tb.autocast(device_type="cpu"):
        assert (here @ here).dtype is tb.bfloat16
    for wrong, actual in (
        ("cpuu", "Did you mean 'cpu'"),
        ("cpu:0", "a type of device is needed"),
        (3, "needed"),
    ):
        with pytest.raises(tb.DeviceError, match=actual):
            tb.autocast(wrong)


def test_generators_run_inside_at_each_step() -> None:
    @tb.autocast("float16")
    def products():
        for _ in range(2):
            yield (tb.ones((2, 2)) @ tb.ones((2, 2))).dtype

    results = []
    for dtype in products():
        results.append((dtype, (tb.ones((2, 2)) @ tb.ones((2, 2))).dtype))
    assert results == [(tb.float16, tb.float32)] * 2

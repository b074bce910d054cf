"""The device ``meta``: every op has its shape and gradients there, nothing is read, and modules leave it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorbus as tb
from tensorbus import nn
from tensorbus.dtypes import definition as dt
from tensorbus.errors import DeviceError
from tensorbus.ops.definition import table
from tensorbus.testing.sample import samples_of
from tensorbus_conformance.examination import all_ops
from tensorbus_conformance.trial import Trial

from error_bounds import assert_alike


def specs(trial: Trial, device: str, record: bool) -> list[object]:
    """Return shapes and dtypes of the results of a call, and of the gradients of what it was called with."""
    tensors = trial.tensors(device)
    if record:
        for x in tensors:
            x.requires_grad_(x.dtype.is_inexact)
    results = trial.run(tensors, device)
    recorded = [y for y in results if y.requires_grad]
    if recorded:
        tb.autograd.backward(recorded, [tb.ones_like(y) for y in recorded])
    grads = [x.grad for x in tensors if x.grad is not None]
    return [(y.shape, y.dtype) for y in (*results, *grads)]


def test_every_op_has_the_shapes_of_a_device_with_memory() -> None:
    all_ops()
    differing = {}
    for op in table:
        for place, sample in enumerate(samples_of(op)):
            dtypes = [d for d in (dt.float32, dt.int64, dt.complex64, *op.dtypes) if d in op.dtypes]
            dtype = next((d for d in dtypes if d in (sample.dtypes or dtypes)), None)
            if sample.raises is None and not sample.large and dtype is not None:
                trial = Trial(op=op, device="meta", dtype=dtype, sample=sample, place=place)
                smooth = sample.smooth and (op.vjp is not None or op.decompose is not None)
                expected, got = (specs(trial, device, smooth) for device in ("cpu", "meta"))
                if expected != got:
                    differing[trial.title] = expected, got
                break
    assert not differing


x, full = tb.ones((2, 3), device="meta"), tb.ones((2, 3), device="cpu")
REFUSED: dict[str, Callable[[], object]] = {
    "elements": lambda: x.tolist(),
    "a number": lambda: x.sum().item(),
    "a branch": lambda: bool(x.sum() > 0),
    "an array": lambda: x.numpy(),
    "a copy elsewhere": lambda: x.to("cpu"),
    "a result whose size depends on elements": lambda: x[x > 0],
    "operands of two devices": lambda: x + full,
    "a module moved": lambda: nn.Linear(3, 2, device="meta").to("cpu"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_needs_elements_is_refused(what: str) -> None:
    with pytest.raises(DeviceError, match="meta"):
        REFUSED[what]()


def test_a_module_made_there_gets_memory_and_values() -> None:
    with tb.device("meta"):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Embedding(5, 2))
        optimizer = tb.optim.AdamW(model.parameters())
        model[2](model[1](model[0](tb.randn(5, 3)))).sum().backward()
        optimizer.step()
    weight = model[0].weight
    with tb.no_grad():
        weight[1] = 0
    assert weight.grad.shape == (4, 3)
    assert "shape=(4, 3)" in repr(weight)
    assert tb.device("meta").memory_stats().allocated == 0
    assert tb.compile(lambda x: (x * 2).sum(-1))(weight.detach()).shape == (4,)
    assert full.to("meta").device == weight.device

    direct = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Embedding(5, 2))
    model.to_empty(device="cpu")
    assert weight is model[0].weight
    assert weight.grad is None
    for each in model.modules():
        if hasattr(each, "reset_parameters"):
            each.reset_parameters()
    model.load_state_dict(direct.state_dict())

    other = nn.Sequential(*[nn.Linear(3, 4, device="meta"), nn.BatchNorm1d(4, device="meta")])
    saved = {k: v for k, v in direct.state_dict().items() if k[0] in "01"}
    assert not other.load_state_dict(saved, assign=True).missing_keys
    sample = tb.randn(6, 3)
    assert_alike(other(sample), direct[1](direct[0](sample)), roundings=16)
    with pytest.raises(tb.StateError, match="int64"):
        other.load_state_dict({**saved, "0.bias": tb.zeros(4, dtype="int64")}, assign=True)

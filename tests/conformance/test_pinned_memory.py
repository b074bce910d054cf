"""Asynchronous copies: the same values on every device, with pinned memory or without."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn
from tensorbus.backend_interface.capabilities import SupportsPinnedMemory
from tensorbus.func import vmap

DTYPES = ("bool", "int64", "float32", "bfloat16", "complex64", "float8_e5m2")


@pytest.fixture
def unit(device: str) -> tb.Device:
    """The device that is examined."""
    return tb.Device(device)


def has_pinned(unit: tb.Device) -> bool:
    """Return whether the unit has pinned memory."""
    return isinstance(unit.runtime, SupportsPinnedMemory)


def length(unit: tb.Device) -> int:
    """Return the length of matrices that take a moment to multiply: a device in Python takes its time."""
    return 400 if has_pinned(unit) else 12


def placed(x: tb.Tensor, unit: tb.Device) -> tb.Tensor:
    """Return ``x`` in pinned memory of the unit, where it has such."""
    return x.pin_memory(unit) if has_pinned(unit) else x


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_come_there_and_back(unit: tb.Device, dtype: str) -> None:
    kind = getattr(tb, dtype)
    if kind not in unit.properties.dtypes:
        with pytest.raises(tb.UnsupportedDtypeError):
            tb.ones((2,), dtype=kind, device="cpu").to(unit, non_blocking=True)
        return
    for shape in ((), (3,), (4, 0), (300, 70)):
        x = (tb.arange(int(np.prod(shape)), device="cpu").reshape(shape) % 3).to(kind)
        there = placed(x, unit).to(unit, non_blocking=True)
        assert (there.device, there.dtype, there.shape) == (unit, kind, shape)
        back = there.to("cpu", non_blocking=True)
        assert (back.device, back.dtype, back.shape) == (x.device, kind, shape)
        assert back.tolist() == x.tolist()


def test_a_pinned_tensor_is_the_same_tensor_elsewhere(unit: tb.Device) -> None:
    x = tb.arange(12.0, device="cpu").reshape(3, 4).requires_grad_()
    if not has_pinned(unit):
        with pytest.raises(tb.DeviceError, match=r"pin_memory: .* has no memory of the host that it copies"):
            x.pin_memory(unit)
        assert not x.is_pinned()
        return
    assert not x.is_pinned(unit)
    pinned = x.pin_memory(unit)
    assert pinned.is_pinned()
    assert pinned.is_pinned(unit)
    assert pinned.pin_memory(unit) is pinned
    assert pinned.tolist() == x.tolist()
    pinned.to(unit, non_blocking=True).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0] * 4] * 3
    assert not (pinned.detach() + 1).is_pinned()
    assert not pinned.detach().to(unit).is_pinned()


def test_only_the_hosts_tensors_are_pinned(unit: tb.Device) -> None:
    x = tb.ones((2,), device=unit)
    if x.device.type == "cpu":
        return
    asked = unit if has_pinned(unit) else None
    with pytest.raises(tb.DeviceError, match=r"pin_memory"):
        x.pin_memory(asked)


def test_views_of_pinned_memory_are_copied_as_they_look(unit: tb.Device) -> None:
    x = placed(tb.arange(60.0, device="cpu").reshape(6, 10), unit)
    for view in (x.T, x[2:], x[:, 3:7], tb.flip(x, axis=0)):
        assert view.to(unit, non_blocking=True).tolist() == view.tolist()


def test_a_result_is_not_read_before_it_is_there(unit: tb.Device) -> None:
    n = length(unit)
    x = tb.ones((n, n), device=unit)
    for _ in range(3):
        y = (x @ x) @ x
        actual = y.to("cpu", non_blocking=True)
        assert float(actual.numpy().min()) == n * n
        read = {
            "op": lambda z: (z + 1)[0, 0].item(),
            "method": lambda z: z.max().item() + 1,
            "item": lambda z: z[3, 3].item() + 1,
            "list": lambda z: z.tolist()[0][0] + 1,
            "another device": lambda z: z.to(unit)[0, 0].item() + 1,
            "dlpack": lambda z: float(np.from_dlpack(z).min()) + 1,
            "detached": lambda z: z.detach()[0, 0].item() + 1,
            "copied": lambda z: z.clone()[0, 0].item() + 1,
        }
        for name, one in read.items():
            assert one(y.to("cpu", non_blocking=True)) == n * n + 1, name


def test_the_source_may_go_and_change_meanwhile(unit: tb.Device) -> None:
    for k in range(10):
        x = placed(tb.full((20_000,), float(k), device="cpu"), unit)
        there = x.to(unit, non_blocking=True, copy=True)
        x += 1
        del x
        other = placed(tb.full((20_000,), -1.0, device="cpu"), unit)
        back = (there * 2).to("cpu", non_blocking=True)
        del there
        spoiled = tb.full((20_000,), -5.0, device=unit)
        assert float(back.numpy().max()) == float(back.numpy().min()) == 2.0 * k
        del other, spoiled


def test_dropped_results_disturb_nobody(unit: tb.Device) -> None:
    n = length(unit)
    x = tb.ones((n, n), device=unit)
    for k in range(20):
        (x @ x).to("cpu", non_blocking=True)
        retained = placed(tb.full((n, n), float(k), device="cpu"), unit)
        unit.synchronize()
        assert float(retained.numpy().max()) == float(retained.numpy().min()) == float(k)


def test_every_thread_waits(unit: tb.Device) -> None:
    n = length(unit)
    x = tb.ones((n, n), device=unit)
    back = (x @ x).to("cpu", non_blocking=True)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append((back * 2).tolist()[5][5])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [2.0 * n] * 4


def test_a_copy_in_a_side_stream_is_done_when_the_stream_is(unit: tb.Device) -> None:
    x = placed(tb.arange(1000.0, device="cpu"), unit)
    side = tb.Stream(unit)
    with tb.stream(side):
        there = x.to(unit, non_blocking=True)
        back = (there + 1).to("cpu", non_blocking=True)
    reached = side.record_event()
    side.synchronize()
    assert reached.is_done()
    assert back.tolist() == [k + 1.0 for k in range(1000)]


def test_compiled_functions_take_what_is_under_way(unit: tb.Device) -> None:
    @tb.compile
    def double(x: tb.Tensor) -> tb.Tensor:
        return x * 2 + 1

    for k in range(4):
        x = tb.full((50,), float(k), device=unit).to("cpu", non_blocking=True)
        assert double(x).tolist() == [2.0 * k + 1] * 50
    assert len(double.replays) == 1
    assert not double.recompiles


def test_a_copy_in_a_compiled_function_is_a_step_of_it(unit: tb.Device) -> None:
    go = tb.compile(lambda x: (x.to(unit, non_blocking=True) * 2).to("cpu", non_blocking=True) + 1)
    for k in range(3):
        x = placed(tb.full((8,), float(k), device="cpu"), unit)
        assert go(x).tolist() == [2.0 * k + 1] * 8


def test_gradients_come_back_the_same_way(unit: tb.Device) -> None:
    x = tb.asarray([1.0, 2.0], device=unit).requires_grad_()
    (x * 3).to("cpu", non_blocking=True).sum().backward()
    assert x.grad is not None
    assert x.grad.device == unit
    assert x.grad.tolist() == [3.0, 3.0]
    y = (x.detach() * 2).to("cpu", non_blocking=True).requires_grad_()
    (y * y).sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == [4.0, 8.0]


def test_what_is_under_way_serves_everything_that_needs_elements(unit: tb.Device, tmp_path: Path) -> None:
    def coming() -> tb.Tensor:
        return (tb.arange(6.0, device=unit).reshape(2, 3) + 1).to("cpu", non_blocking=True)

    whole = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert vmap(lambda row: row.sum())(coming()).tolist() == [6.0, 15.0]
    x = coming()
    x[0] = 0.0
    assert x.tolist() == [[0.0] * 3, whole[1]]
    x, y = tb.zeros((2, 3), device="cpu"), coming()
    x += y
    assert x.tolist() == whole
    with tb.no_grad():
        x.rebind(coming())
    assert x.tolist() == whole
    assert tb.concat([coming(), coming()], axis=0).tolist() == whole * 2
    assert tb.max(coming(), axis=1).tolist() == [3.0, 6.0]
    assert pickle.loads(pickle.dumps(coming())).tolist() == whole
    assert copy.deepcopy(coming()).tolist() == whole
    assert tb.linalg.qr(coming()).R.shape == (2, 3)
    assert bool((coming() == tb.asarray(whole, device="cpu")).all())
    assert "6.0" in repr(coming())
    tb.save({"x": coming()}, tmp_path / "x.safetensors")
    assert tb.load(tmp_path / "x.safetensors")["x"].tolist() == whole


def test_modules_move_without_waiting(unit: tb.Device) -> None:
    tb.manual_seed(0)
    with tb.device("cpu"):
        net = nn.Linear(7, 3)
    before = net.weight.tolist()
    net.to(unit, non_blocking=True)
    assert net.weight.device == unit
    assert net.weight.tolist() == before
    net.to("cpu", non_blocking=True)
    assert net(tb.zeros((1, 7), device="cpu")).shape == (1, 3)


def test_a_new_stream_of_the_default_device(unit: tb.Device) -> None:
    with unit:
        x = tb.ones((20, 20))
        with tb.stream() as side:
            y = x @ x
        assert side.device == unit
        side.record_event().wait()
        assert (y + 1)[0, 0].item() == 21.0
    assert x.to_device("cpu", stream=side)[0, 0].item() == 1.0

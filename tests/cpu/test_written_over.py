"""Changes in place are made in the memory that there is, unless something else can see it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor

from error_bounds import assert_alike

LONG = 1 << 17
CHANGES: dict[str, Callable[[Tensor], Any]] = {
    "an element": lambda x: x.__setitem__(5, 9.0),
    "a tensor": lambda x: x.__setitem__(5, tb.asarray(9.0)),
    "a slice": lambda x: x.__setitem__(slice(3, 100, 7), 9.0),
    "backwards": lambda x: x.__setitem__(slice(9, None, -3), tb.arange(4.0)),
    "everything": lambda x: x.__setitem__(..., 9.0),
    "by a mask": lambda x: x.__setitem__(x > 2, 9.0),
    "by an index": lambda x: x.__setitem__(tb.asarray([-1, 4, 4, 0]), tb.arange(4.0)),
    "add": lambda x: x.__iadd__(1),
    "divide": lambda x: x.__itruediv__(tb.full((LONG,), 3.0)),
    "broadcast": lambda x: x.__imul__(tb.asarray([2.0])),
    "add_": lambda x: x.add_(2.0), "sub_": lambda x: x.sub_(1.5), "mul_": lambda x: x.mul_(0.5),
    "zero_": lambda x: x.zero_(), "fill_": lambda x: x.fill_(9.0), "copy_": lambda x: x.copy_(tb.ones(LONG)),
    "masked_fill_": lambda x: x.masked_fill_(x > 2, 0.0),
}  # fmt: skip
VIEWS: dict[str, Callable[[Tensor], Any]] = {
    "detach": lambda x: x.detach(),
    "a part": lambda x: x[3:50],
    "another shape": lambda x: x.reshape(2, -1),
    "part of a part": lambda x: x[:50][3:9],
    "lent by dlpack": lambda x: np.from_dlpack(x),
    "lent to numpy": lambda x: np.asarray(x),
}
HOLDERS: dict[str, Callable[[Tensor], Any]] = {
    "numpy": lambda x: x.numpy(),
    "a view of numpy's": lambda x: x.numpy()[1:],
    "memoryview": lambda x: memoryview(x.numpy()),
    "a list": lambda x: [x._value],
}


def _new() -> Tensor:
    return tb.asarray(np.arange(LONG, dtype=np.float32) % 7)


def _memory(x: Tensor) -> int:
    return int(x._value.ctypes.data)


def _elements(x: Any) -> Any:
    return np.array(x[0] if isinstance(x, list) else x)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_nobody_else_holds_is_written_over(change: Callable[[Tensor], Any]) -> None:
    x, y = _new(), _new()
    at = _memory(x)
    change(x)
    assert _memory(x) == at
    other = y.detach()
    change(y)
    assert other is not None
    assert _memory(y) != at
    np.testing.assert_array_equal(x.numpy(), y.numpy())


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_somebody_holds_stays(change: Callable[[Tensor], Any], hold: Callable[[Tensor], Any]) -> None:
    x = _new()
    held = hold(x)
    before = _elements(held)
    change(x)
    np.testing.assert_array_equal(_elements(held), before)


@pytest.mark.parametrize("take", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_views_show_changes(change: Callable[[Tensor], Any], take: Callable[[Tensor], Any]) -> None:
    x = _new()
    view = take(x)
    change(x)
    np.testing.assert_array_equal(np.array(view), np.array(take(x)))


def test_a_part_that_outlives_the_whole_is_written_over_alone() -> None:
    x = _new()
    first, second = x[:10], x[10:20]
    del x
    first[0] = 9.0
    assert second.tolist() == [3.0, 4.0, 5.0, 6.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    del first
    at = _memory(second)
    second[0] = 9.0
    assert _memory(second) == at
    assert second[:3].tolist() == [9.0, 4.0, 5.0]


def test_arrays_that_are_shared_are_written_to_where_they_may_be() -> None:
    array = np.zeros(8, np.float32)
    x = tb.asarray(array, copy=False)
    x[0] = 5.0
    y = tb.from_dlpack(array)
    y[1] = 5.0
    frozen = np.frombuffer(bytes(32), np.float32)
    z = tb.asarray(frozen, copy=False)
    z[2] = 5.0
    assert array.tolist() == [5.0, 5.0, *[0.0] * 6]
    assert not frozen.any()
    assert x[0].item() == y[1].item() == z[2].item() == 5.0


def test_a_value_put_into_itself_is_read_first() -> None:
    x = tb.arange(6.0)
    x[1:] = x[:-1]
    assert x.tolist() == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    x[tb.asarray([5, 4, 3, 2, 1, 0])] = x
    assert x.tolist() == [4.0, 3.0, 2.0, 1.0, 0.0, 0.0]
    x[:] = x
    x[::-1] = x
    assert x.tolist() == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]


def test_repeated_elements_are_not_one() -> None:
    x = tb.broadcast_to(tb.asarray([1.0]), (4,))
    with pytest.raises(tb.ArgumentError, match=r"one element .* shows at several places\. Change a copy"):
        x[0] = 5.0
    assert x.tolist() == [1.0, 1.0, 1.0, 1.0]


def test_what_a_derivative_needs_stays() -> None:
    """A copy that stands for it may change, and what is written to is refused; what was computed stays."""
    w = tb.full((LONG,), 3.0).requires_grad_()
    x = w * 1.0
    y = x.clone()
    product = x * x
    y[0] = 100.0
    y += 1.0
    z = y.exp()
    shown = z.clone()
    shown[1] = 0.0
    (product.sum() + shown[2]).backward()
    assert w.grad[:2].tolist() == [6.0, 6.0]
    assert_alike(w.grad[2].item(), 6.0 + float(np.exp(4.0)), roundings=2)
    product = x * x
    x[0] = 100.0
    with pytest.raises(tb.AutogradError, match="multiply's derivative needs its first operand"):
        product.sum().backward()


def test_a_history_grows_in_place() -> None:
    w = tb.asarray([2.0, 3.0]).requires_grad_()
    x = tb.zeros((LONG,))
    at = _memory(x)
    for k in range(4):
        x[2 * k : 2 * k + 2] = w * k
    assert _memory(x) == at
    x.sum().backward()
    assert w.grad.tolist() == [6.0, 6.0]


def test_a_refused_change_changes_nothing() -> None:
    w = tb.ones((LONG,)).requires_grad_()
    with pytest.raises(tb.AutogradError):
        w[0] = 5.0
    with pytest.raises(tb.AutogradError):
        w += 1.0
    x = tb.ones((LONG,))
    with pytest.raises(tb.IndexingError):
        x[tb.asarray([0, LONG])] = 5.0
    with pytest.raises(tb.ShapeError):
        x += tb.ones((2, LONG))
    with pytest.raises(tb.DtypeError):
        x += tb.ones((LONG,), dtype=tb.complex64)
    assert w.numpy().all()
    assert x.sum().item() == LONG == w.sum().item()
    with tb.no_grad():
        at = _memory(w)
        w[0] = 5.0
    assert _memory(w) == at


def test_a_compiled_function_keeps_its_constants() -> None:
    state = tb.zeros((LONG,))
    places = tb.arange(float(LONG))

    @tb.compile
    def step(x: Tensor) -> Tensor:
        state[1] = x[0]
        return x + places + state

    x = tb.ones((LONG,))
    outs = []
    for _ in range(4):
        outs.append(step(x))
        state[2] = 7.0
        places[3] = 50.0
        x[0] = float(x[0].item() + 1)
    assert [out[:4].tolist() for out in outs] == [
        [1.0, 3.0, 3.0, 4.0], [2.0, 4.0, 10.0, 51.0], [3.0, 5.0, 10.0, 51.0], [4.0, 6.0, 10.0, 51.0]
    ]  # fmt: skip


def test_transforms_write_over_nothing_of_others() -> None:
    x = tb.arange(6.0).reshape(2, 3)

    def changed(row: Tensor) -> Tensor:
        out = row * 1
        out[0] = row[2]
        return out

    assert tb.vmap(changed)(x).tolist() == [[2.0, 1.0, 2.0], [5.0, 4.0, 5.0]]
    assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_parts_that_threads_assign_are_all_there() -> None:
    x = tb.zeros((8, LONG))
    gate = threading.Barrier(8)

    def put(k: int) -> None:
        value = tb.full((LONG,), float(k + 1))
        gate.wait()
        for _ in range(5):
            x[k] = value

    threads = [threading.Thread(target=put, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.min(axis=1).tolist() == x.max(axis=1).tolist() == [float(k + 1) for k in range(8)]

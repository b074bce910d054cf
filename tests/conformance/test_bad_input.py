"""Arguments that an op refuses: errors name op, shapes, dtypes and devices; tensors stay as they were."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import DtypeError as Dtype
from tensorbus import ShapeError as Shape
from tensorbus.ops.movement import movement, windows

from installed import available

NAN = float("nan")
WRONG: Any = {value: value for value in (1.5, None, "a")}
Refusal = tuple[Callable[[Any], Any], type[Exception], str]
SHAPES: dict[str, Refusal] = {
    "shapes that do not broadcast": (lambda t: t.x + t.v, Shape, r"add.*\(2, 3\), \(2,\).*lengths \[2, 3\]"),
    "... once a plan is known": (lambda t: [t.x + t.x, t.x + t.v], Shape, r"\(2, 3\), \(2,\)"),
    "... in where": (lambda t: tb.where(t.x > 0, t.x, t.v), Shape, "where|broadcast"),
    "... with no elements": (lambda t: t.v + tb.zeros((0,), device=t.device), Shape, r"\(2,\), \(0,\)"),
    "matmul": (lambda t: t.x @ t.x, Shape, r"matmul.*\(2, 3\) and \(2, 3\)"),
    "matmul of vectors": (lambda t: t.v @ t.x.T, Shape, r"matmul.*\(2,\) and \(3, 2\)"),
    "matmul of a scalar": (lambda t: t.x @ tb.asarray(1.0, device=t.device), Shape, "at least 1 dimension"),
    "matmul of batches": (lambda t: t.x[:, :, None] @ t.x.T[:, None], Shape, "broadcast"),
    "reshape": (lambda t: t.x.reshape(4), Shape, r"reshape: 6 element.*\(2, 3\).*\(4,\)"),
    "reshape twice unknown": (lambda t: t.x.reshape(-1, -1), Shape, "one of them may be -1"),
    "reshape of nothing": (lambda t: tb.zeros((0, 3), device=t.device).reshape(0, -1), Shape, "reshape"),
    "reshape to text": (lambda t: tb.reshape(t.x, "ab"), Shape, "tuple of integers"),
    "broadcast_to": (lambda t: tb.broadcast_to(t.x, (3, 2)), Shape, r"\(2, 3\), \(3, 2\)|broadcast_to"),
    "permute_dims": (lambda t: tb.permute_dims(t.x, (0, 0)), Shape, "permute_dims: axes"),
    "concat": (lambda t: tb.concat([t.x, t.x.T]), Shape, r"concat: shapes \(2, 3\), \(3, 2\)"),
    "concat of ranks": (lambda t: tb.concat([t.x, t.v]), Shape, "concat"),
    "concat of nothing": (lambda t: tb.concat([]), Shape, "at least one"),
    "concat of scalars": (lambda t: tb.concat([t.x.sum()]), Shape, "0-dimensional"),
    "stack": (lambda t: tb.stack([t.x, t.v]), Shape, "stack: shapes"),
    "squeeze": (lambda t: tb.squeeze(t.x, 0), Shape, "squeeze: axis 0"),
    "negative padding": (lambda t: movement.pad(t.x, (-1, 0), (0, 0)), Shape, "pad: low"),
    "a slice beyond": (lambda t: movement.slice(t.x, (0, 2), (2, 2), (1, 1)), Shape, "leave shape"),
    "windows too large": (lambda t: windows.windows(t.x, (4,), (1,), (1,)), Shape, "windows"),
    "an axis beyond": (lambda t: t.x.sum(axis=2), Shape, r"sum: axis 2 is out of range for 2 dimension"),
    "an axis twice": (lambda t: t.x.max(axis=(0, -2)), Shape, "max: axis .* twice"),
    "an axis of text": (lambda t: t.x.mean(axis="a"), Shape, "mean: an axis is an integer"),
    "an axis of a fraction": (lambda t: tb.flip(t.x, axis=0.5), Shape, "flip: an axis is an integer"),
    "an axis of no axes": (lambda t: tb.softmax(t.x.sum(), axis=1), Shape, "softmax.*0-dimensional"),
    "no axis where one is needed": (
        lambda t: tb.cumulative_sum(t.x), Shape, "cumulative_sum: an axis is needed",
    ),
    "the largest of nothing": (
        lambda t: tb.zeros((0,), device=t.device).max(), Shape, r"max: no elements along axis.*\(0,\)",
    ),
    "the place of it": (
        lambda t: tb.argmax(tb.zeros((2, 0), device=t.device), axis=1), Shape, r"argmax: no elements",
    ),
    "the largest of nothing, of no rows": (
        lambda t: tb.zeros((0, 0), device=t.device).max(axis=1), Shape, r"max: no elements along axis",
    ),
    "the place of it, of no rows": (
        lambda t: tb.argmax(tb.zeros((0, 0), device=t.device), axis=1), Shape, r"argmax: no elements",
    ),
    "take beyond": (lambda t: tb.take(t.x, t.n, axis=2), Shape, "take: axis 2"),
    "tensordot": (lambda t: tb.tensordot(t.x, t.x, axes=1), Shape, "tensordot"),
    "tensordot of too many": (lambda t: tb.tensordot(t.x, t.x, axes=3), Shape, "3 axes"),
    "gather by unequal indices": (lambda t: tb.gather(t.x, t.n, t.n[:1]), Shape, "gather: index shapes"),
    "scatter of a wrong value": (
        lambda t: tb.scatter(t.x, t.v, t.n), Shape, r"scatter: a value of shape \(2,\)",
    ),
    "conv of a large kernel": (
        lambda t: tb.conv1d(t.x[None], tb.zeros((1, 2, 4), device=t.device)),
        Shape, r"conv1d: a kernel of \(4,\)",
    ),
    "conv of wrong channels": (
        lambda t: tb.conv1d(t.x[None], tb.zeros((1, 3, 1), device=t.device)), Shape, "2 channels",
    ),
    "conv of wrong ranks": (lambda t: tb.conv2d(t.x, t.x), Shape, r"conv2d: an input of 4 dimensions"),
    "pooling of a large window": (lambda t: tb.max_pool2d(t.x[None], 4), Shape, "max_pool2d: a window"),
    "pooling without space": (lambda t: tb.max_pool2d(t.v, 1), Shape, "at least 3 dimensions"),
    "layer_norm": (lambda t: tb.layer_norm(t.x, 2), Shape, r"layer_norm.*\(2, 3\)"),
    "losses of wrong targets": (lambda t: tb.cross_entropy(t.x, t.n[:1]), Shape, "cross_entropy"),
    "a matrix of a vector": (lambda t: t.v.T, Shape, "needs 2 dimensions"),
    "one of many": (lambda t: t.x.item(), Shape, r"one-element.*\(2, 3\)"),
    "the truth of many": (lambda t: bool(t.x), Shape, r"truth of a tensor of shape \(2, 3\)"),
    "the length of a scalar": (lambda t: len(t.x.sum()), TypeError, "0-dimensional tensor has no length"),
    "iterating over a scalar": (lambda t: list(t.x.sum()), TypeError, "0-dimensional"),
    "in place to another shape": (lambda t: t.v.__iadd__(t.x.T), Shape, "in-place change keeps shape"),
    "a negative length": (lambda t: tb.zeros((2, -1), device=t.device), Shape, r"lengths must be >= 0"),
    "a fraction of a length": (lambda t: tb.ones(WRONG[1.5], device=t.device), Shape, "tuple of integers"),
    "no length": (lambda t: tb.full(WRONG[None], 1.0, device=t.device), Shape, "tuple of integers"),
    "more than 64 bits count": (
        lambda t: tb.zeros((1 << 40, 1 << 40), device=t.device), Shape, "more than any device",
    ),
    "more axes than there are": (
        lambda t: tb.zeros((1,) * 65, device=t.device), Shape, "at most 64 dimensions",
    ),
    "a step of nothing": (lambda t: tb.arange(0, 1, 0, device=t.device), Shape, "step must not be 0"),
    "an endless range": (lambda t: tb.arange(float("inf"), device=t.device), Shape, "finite"),
    "a ragged list": (
        lambda t: tb.asarray([[1, 2], [3]], device=t.device), Shape, r"shapes \[\(1,\), \(2,\)\]",
    ),
    "a list nested too deep": (
        lambda t: tb.asarray(_deep(100), device=t.device), Shape, "nested more than 64",
    ),
}  # fmt: skip
DTYPES: dict[str, Refusal] = {
    "bools subtracted": (lambda t: t.b - t.b, Dtype, "subtract: not defined for bool"),
    "a bool negated": (lambda t: -t.b, Dtype, "negative: not defined for bool"),
    "bits of floats": (lambda t: t.x & t.x, Dtype, "bitwise_and: not defined for float32"),
    "floats shifted": (lambda t: t.x << 1, Dtype, "bitwise_left_shift: not defined for float32"),
    "a condition of floats": (
        lambda t: tb.where(t.x, t.x, t.x), Dtype, "where: the condition must be bool, got float32",
    ),
    "a scalar too large": (
        lambda t: t.n + (1 << 63), Dtype, "add: 9223372036854775808 does not fit in int64",
    ),
    "a scalar far too large": (
        lambda t: t.x * 10**400, Dtype, "multiply: an integer of 1329 bits is too large",
    ),
    "a scalar below zero": (
        lambda t: t.u * -1, Dtype, "multiply: -1 does not fit in uint8, which holds 0 to 255",
    ),
    "no common dtype": (lambda t: t.n + t.n.to("uint64"), Dtype, "int64 and uint64 have no common"),
    "a text operand": (lambda t: t.x + "a", Dtype, "add: needs tensors, got Tensor, str"),
    "a list operand": (lambda t: tb.add(t.x, [1, 2, 3]), Dtype, "add: needs tensors, got Tensor, list"),
    "a NumPy operand": (
        lambda t: t.x * np.ones((2, 3), object), Dtype,
        "of dtype object holds no numbers|needs tensors, got ndarray",
    ),
    "no tensor at all": (lambda t: tb.exp(1.0), Dtype, "exp: at least one operand must be a tensor"),
    "nothing": (lambda t: tb.sum(None), Dtype, "sum: needs tensors, got NoneType"),
    "an unknown dtype": (
        lambda t: tb.zeros((1,), dtype="flot32", device=t.device), Dtype, "Did you mean 'float32'",
    ),
    "a dtype of NumPy": (lambda t: t.x.to(dtype=np.float32), Dtype, "no dtype is called"),
    "a fill that does not fit": (
        lambda t: tb.full((2,), 300, dtype="uint8", device=t.device), Dtype, "300 does not fit in uint8",
    ),
    "a fill of NaN": (
        lambda t: tb.full((2,), NAN, dtype="int32", device=t.device), Dtype, "nan is not a whole number",
    ),
    "a fill of text": (
        lambda t: tb.full((2,), WRONG["a"], device=t.device), Dtype, "full: a number is needed, got 'a'",
    ),
    "a padding that does not fit": (lambda t: movement.pad(t.u, (1,), (0,), 1.5), Dtype, "pad: 1.5"),
    "a range of bools": (
        lambda t: tb.arange(3, dtype="bool", device=t.device), Dtype, "arange: not defined for bool",
    ),
    "a fractional step": (
        lambda t: tb.arange(0, 1, 0.5, dtype="int32", device=t.device), Dtype, "0.5 is not a whole number",
    ),
    "linspace of bools": (
        lambda t: tb.linspace(0, 1, 3, dtype="bool", device=t.device), Dtype, "linspace: a real dtype",
    ),
    "NaN as an integer": (
        lambda t: tb.asarray([NAN], dtype="int32", device=t.device), Dtype, "nan is not a whole number",
    ),
    "a large number": (lambda t: tb.asarray([1 << 64], device=t.device), Dtype, "does not fit in uint64"),
    "a list of text": (lambda t: tb.asarray(["a"], device=t.device), Dtype, "str is no number"),
    "text": (lambda t: tb.asarray("abc", device=t.device), Dtype, "str is no number"),
    "None": (lambda t: tb.asarray([None], device=t.device), Dtype, "NoneType is no number"),
    "an array of objects": (
        lambda t: tb.asarray(np.array([object()]), device=t.device), Dtype, "dtype object",
    ),
    "an array of text": (lambda t: tb.asarray(np.array(["a"]), device=t.device), Dtype, "dtype str"),
    "an array of dates": (
        lambda t: tb.asarray(np.array(["2020-01-01"], "datetime64[D]"), device=t.device), Dtype, "datetime64",
    ),
    "an array of records": (lambda t: tb.asarray(np.zeros(2, [("a", "i4")]), device=t.device), Dtype, "void"),
    "in place to another dtype": (
        lambda t: t.n.__itruediv__(2), Dtype, "in-place change keeps.*int64.*float32",
    ),
    "a float as an index": (lambda t: [1, 2][t.v[:1]], TypeError, "only an integer tensor is an index"),
    "targets of floats": (lambda t: tb.nll_loss(t.x, t.v), Dtype, "nll_loss: the target"),
}  # fmt: skip

NEED_UINT8 = {"a scalar below zero", "a padding that does not fit"}


def _deep(depth: int) -> Any:
    count: Any = 1
    for _ in range(depth):
        count = [count]
    return count


@pytest.mark.parametrize("name", [*SHAPES, *DTYPES])
def test_refused(device: str, name: str) -> None:
    call, error, text = {**SHAPES, **DTYPES}[name]
    t = SimpleNamespace(
        device=device,
        x=tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device),
        v=tb.asarray([7.0, 8.0], device=device),
        n=tb.asarray([1, 0], device=device),
        b=tb.asarray([True, False], device=device),
    )
    if name in NEED_UINT8:
        t.u = tb.asarray([1, 255], dtype="uint8", device=device)
    before = {k: v.tolist() for k, v in vars(t).items() if k != "device"}
    assert issubclass(error, TypeError if error in (Dtype, TypeError) else ValueError)
    with pytest.raises(error, match=text):
        call(t)
    assert {k: v.tolist() for k, v in vars(t).items() if k != "device"} == before


@pytest.mark.parametrize("other", available())
def test_tensors_of_two_devices_do_not_meet(device: str, other: str) -> None:
    if device == other:
        return
    x, y = tb.asarray([1.0, 2.0], device=device), tb.asarray([3.0, 4.0], device=other)
    for call in (
        lambda: x + y,
        lambda: tb.concat([x, y]),
        lambda: tb.where(y > 0, x, x),
        lambda: x[y.to("int64")],
        lambda: x @ y,
    ):
        with pytest.raises(tb.DeviceError, match=f"({device}:0.*{other}:0)|({other}:0.*{device}:0)"):
            call()
    with pytest.raises(tb.DeviceError):
        x += y
    with pytest.raises(tb.DeviceError, match="operands lie on"):
        x[0] = y[0]
    leaf = x.clone().requires_grad_()
    with pytest.raises(tb.DeviceError, match="move it"):
        (leaf * 2).backward(y)
    assert (x.tolist(), y.tolist(), leaf.grad) == ([1.0, 2.0], [3.0, 4.0], None)


def test_more_than_the_memory(device: str) -> None:
    x = tb.asarray([1.0, 2.0], device=device)
    for call in (
        lambda: tb.zeros((1 << 46,), device=device),
        lambda: tb.arange(1 << 46, device=device),
        lambda: tb.broadcast_to(x, (1 << 45, 2)) + 1,
    ):
        with pytest.raises(tb.OutOfMemoryError, match=device) as caught:
            call()
        assert isinstance(caught.value, MemoryError)
    assert (x + 1).tolist() == [2.0, 3.0]


def test_a_full_memory_leaves_every_tensor_as_it_was(device: str) -> None:
    there = tb.device(device)
    total = there.memory_stats().total
    if there.memory_stats().scope != "device" or total is None or total > 4 << 30:
        pytest.skip(f"{device} has more memory than a test should fill")
    x, held = tb.asarray([1.0, 2.0], device=device), []

    def fill() -> None:
        for _ in range(1000):
            held.append(tb.ones((1 << 24,), device=device))
            there.synchronize()

    with pytest.raises(tb.OutOfMemoryError, match=f"{device}:0"):
        fill()
    assert held
    with pytest.raises(tb.OutOfMemoryError):
        held[0] += tb.ones((1 << 27, 2), device=device)
    assert held[0][:2].tolist() == [1.0, 1.0]
    assert x.tolist() == [1.0, 2.0]
    held.clear()
    assert (x + tb.ones((2,), device=device)).tolist() == [2.0, 3.0]


@pytest.mark.parametrize("spec", ["cudaa", "cpu:7", "refdev:99", "", "cpu:-1", "cpu:x", 5, 1.5])
def test_devices_that_are_not_there(spec: Any) -> None:
    with pytest.raises(tb.DeviceError):
        tb.zeros((1,), device=spec)
    with pytest.raises(tb.DeviceError):
        tb.asarray([1.0], device="cpu").to(device=spec)


def test_a_mistake_is_told_without_what_it_led_to(device: str) -> None:
    x, y = tb.ones((2, 3), device=device), tb.ones(4, device=device)
    for call in (
        lambda: x + y,
        lambda: x.add(y),
        lambda: x @ x,
        lambda: x.reshape(4),
        lambda: tb.where(x > 0, x, y),
    ):
        with pytest.raises(tb.ShapeError) as raised:
            call()
        error = raised.value
        assert error.__cause__ is None
        assert error.__suppress_context__ or error.__context__ is None

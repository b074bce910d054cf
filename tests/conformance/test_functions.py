"""Functions written in ops, against NumPy on every device; results for empty and 0-dimensional tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.dtypes import definition as dt

from agreement import check
from installed import dtypes as dtypes_of
from samples import native

X = np.linspace(-2, 3, 24, dtype=np.float32).reshape(2, 3, 4)
E = np.zeros((2, 0), np.float32)
INF, NAN = float("inf"), float("nan")


def t(a: Any, device: str) -> tb.Tensor:
    return tb.asarray(a, device=device)


CASES: dict[str, tuple[Callable[[str], tb.Tensor], Any]] = {
    "arange": (lambda d: tb.arange(5, device=d), np.arange(5)),
    "arange down": (lambda d: tb.arange(5, 0, -2, device=d), np.arange(5, 0, -2)),
    "arange of nothing": (lambda d: tb.arange(5, 0, device=d), np.arange(5, 0)),
    "arange of fractions": (lambda d: tb.arange(0.0, 1.0, 0.1, device=d), np.arange(0.0, 1.0, 0.1)),
    "arange of unsigned down": (
        lambda d: tb.arange(5, 0, -1, dtype="uint8", device=d), np.arange(5, 0, -1).astype(np.uint8),
    ),
    "linspace": (lambda d: tb.linspace(0, 1, 7, device=d), np.linspace(0, 1, 7)),
    "linspace without the end": (
        lambda d: tb.linspace(5, -5, 4, endpoint=False, device=d), np.linspace(5, -5, 4, endpoint=False),
    ),
    "linspace of integers": (
        lambda d: tb.linspace(-1, 3, 7, dtype="int32", device=d), np.linspace(-1, 3, 7, dtype=np.int32),
    ),
    "logspace": (lambda d: tb.logspace(-1, 2, 4, device=d), np.logspace(-1, 2, 4)),
    "logspace of another base": (
        lambda d: tb.logspace(0, 5, 5, base=2.0, endpoint=False, device=d),
        np.logspace(0, 5, 5, base=2.0, endpoint=False),
    ),
    "linspace of one": (lambda d: tb.linspace(3, 9, 1, device=d), np.linspace(3, 9, 1)),
    "linspace of none": (lambda d: tb.linspace(3, 9, 0, device=d), np.linspace(3, 9, 0)),
    "eye": (lambda d: tb.eye(3, 4, k=1, device=d), np.eye(3, 4, k=1)),
    "eye below": (lambda d: tb.eye(3, k=-5, device=d), np.eye(3, k=-5)),
    "eye of nothing": (lambda d: tb.eye(0, device=d), np.eye(0)),
    "zeros_like": (lambda d: tb.zeros_like(t(X, d)), np.zeros_like(X)),
    "full_like": (lambda d: tb.full_like(t(X, d), 2.5), np.full_like(X, 2.5)),
    "tril": (lambda d: tb.tril(t(X, d), k=-1), np.tril(X, -1)),
    "triu": (lambda d: tb.triu(t(X, d), k=1), np.triu(X, 1)),
    "stack": (lambda d: tb.stack([t(X, d), t(X, d) + 1], axis=-1), np.stack([X, X + 1], -1)),
    "concat flat": (lambda d: tb.concat([t(X, d), t(X[0], d)], axis=None), np.concatenate([X, X[0]], None)),
    "moveaxis": (lambda d: tb.moveaxis(t(X, d), 0, -1), np.moveaxis(X, 0, -1)),
    "squeeze": (lambda d: tb.squeeze(t(X[:1, :, :1], d), (0, -1)), np.squeeze(X[:1, :, :1], (0, -1))),
    "expand_dims": (lambda d: tb.expand_dims(t(X, d), -1), X[..., None]),
    "flatten": (lambda d: tb.flatten(t(X, d), 1), X.reshape(2, 12)),
    "flatten a scalar": (lambda d: tb.flatten(t(1.0, d)), np.ones(1)),
    "matrix_transpose": (lambda d: t(X, d).mT, np.swapaxes(X, 1, 2)),
    "take": (lambda d: tb.take(t(X, d), t([2, -1, 0], d), axis=1), np.take(X, [2, -1, 0], 1)),
    "tensordot": (
        lambda d: tb.tensordot(t(X, d), t(X, d), axes=((0, -1), (0, 2))),
        np.tensordot(X, X, ((0, 2), (0, 2))),
    ),
    "outer": (
        lambda d: tb.tensordot(t(X[0, 0], d), t(X[0, 1], d), axes=0), np.multiply.outer(X[0, 0], X[0, 1]),
    ),
    "dot": (lambda d: t(X[0, 0], d) @ t(X[0, 1], d), X[0, 0] @ X[0, 1]),
    "matrix by vector": (lambda d: t(X, d) @ t(X[0, 0], d), X @ X[0, 0]),
    "vector by matrix": (lambda d: t(X[0, :, 0], d) @ t(X, d), X[0, :, 0] @ X),
    "matmul over nothing": (
        lambda d: tb.zeros((2, 0), device=d) @ tb.zeros((0, 3), device=d), np.zeros((2, 3)),
    ),
    "var": (lambda d: tb.var(t(X, d), axis=(0, 2), correction=1), X.astype(float).var((0, 2), ddof=1)),
    "std": (lambda d: tb.std(t(X, d), keepdims=True), X.astype(float).std(keepdims=True)),
    "clip": (lambda d: tb.clip(t(X, d), -1.0, t(X, d) * 0 + 1), np.clip(X, -1, 1)),
    "logsumexp": (
        lambda d: tb.logsumexp(t(X, d) * 500, axis=1), np.logaddexp.reduce(X.astype(float) * 500, 1),
    ),
    "logsumexp of infinities": (
        lambda d: tb.logsumexp(t([[-INF, -INF], [INF, 0.0], [-INF, 1.0]], d), axis=1),
        np.array([-INF, INF, 1.0]),
    ),
    "logsumexp of nothing": (lambda d: tb.logsumexp(t(E, d), axis=1), np.full(2, -INF)),
    "sum of nothing": (lambda d: t(E, d).sum(axis=1), np.zeros(2)),
    "prod of nothing": (lambda d: t(E, d).prod(axis=1), np.ones(2)),
    "all of nothing": (lambda d: t(E, d).all(), np.array(True)),
    "any of nothing": (lambda d: t(E, d).any(), np.array(False)),
    "mean of nothing": (lambda d: t(E, d).mean(axis=1), np.full(2, NAN)),
    "var of nothing": (lambda d: tb.var(t(E, d)), np.array(NAN)),
    "max beside nothing": (lambda d: t(E, d).max(axis=0), np.zeros(0)),
    "argmax beside nothing": (lambda d: tb.argmax(t(E, d), axis=0), np.zeros(0, int)),
    "softmax of nothing": (lambda d: tb.softmax(t(E, d)), E),
    "log_softmax of nothing": (lambda d: tb.log_softmax(t(E, d)), E),
    "running sum of nothing": (lambda d: tb.cumulative_sum(t(E, d), axis=1), E),
    "adding nothing": (lambda d: t(E, d) + tb.ones((1,), device=d), E),
    "concat with nothing": (
        lambda d: tb.concat([t(E, d), tb.ones((2, 1), device=d)], axis=1), np.ones((2, 1)),
    ),
    "reshape nothing": (lambda d: t(E, d).reshape(-1), np.zeros(0)),
    "reshape nothing back": (lambda d: t(E, d).reshape(0, 5), np.zeros((0, 5))),
    "a batch of nothing": (
        lambda d: tb.conv1d(tb.zeros((0, 2, 5), device=d), tb.ones((3, 2, 2), device=d)), np.zeros((0, 3, 4)),
    ),
    "max of one": (lambda d: t(2.0, d).max(), np.array(2.0)),
    "argmax of one": (lambda d: tb.argmax(t(2.0, d)), np.array(0)),
    "max of NaN": (lambda d: t([1.0, NAN, 3.0], d).max(), np.array(NAN)),
    "argmax of NaN": (lambda d: tb.argmax(t([1.0, NAN, NAN], d)), np.array(1)),
    "maximum of NaN": (lambda d: tb.maximum(t([NAN, 1.0], d), t([0.0, NAN], d)), np.array([NAN, NAN])),
    "running sum": (lambda d: tb.cumulative_sum(t([True, True, False], d)), np.array([1, 1 + 1, 2])),
    "gelu": (lambda d: tb.gelu(t([0.0, 1.0, -10.0, INF], d)), np.array([0.0, 0.8413447, -0.0, INF])),
    "rand": (lambda d: tb.rand(0, 3, device=d), np.zeros((0, 3))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_function(device: str, name: str) -> None:
    make, expected = CASES[name]
    actual = make(device)
    assert str(actual.device) == f"{device}:0"
    check(actual.numpy(), expected, 16, 1.0)


@pytest.mark.parametrize("name", [d.name for d in dt.ALL])
def test_creation_in_every_dtype(device: str, name: str) -> None:
    dtype = dt.BY_NAME[name]
    if dtype not in dtypes_of(device):
        with pytest.raises(tb.UnsupportedDtypeError, match=f"{device}:0 has no {name}"):
            tb.zeros((2,), dtype=name, device=device)
        return
    for make, value in ((tb.zeros, 0), (tb.ones, 1), (tb.empty, 0)):
        result = make((2, 3), dtype=name, device=device)
        assert result.dtype is dtype
        assert np.array_equal(result.numpy(), np.full((2, 3), value, native(dtype)))
    assert tb.eye(2, dtype=name, device=device).tolist() == [[1, 0], [0, 1]]
    if dtype.kind not in ("bool", "complex"):
        assert tb.arange(5, dtype=name, device=device).tolist() == [0, 1, 2, 3, 4]


def test_the_default_device_is_where_new_tensors_are(device: str) -> None:
    with tb.device(device):
        results = [
            tb.zeros((2,)),
            tb.arange(3),
            tb.eye(2),
            tb.linspace(0, 1, 2),
            tb.asarray([1]),
            tb.rand(2),
            tb.randint(0, 3, (2,)),
        ]
    assert {str(x.device) for x in results} == {f"{device}:0"}


def test_tensors_as_python_objects(device: str) -> None:
    x = t([1.0, 2.0], device)
    assert len(x) == 2
    assert [float(v) for v in x] == [1.0, 2.0]
    assert any(v == 2.0 for v in x)
    assert not any(v == 3.0 for v in x)
    assert {x: "found"}[x] == "found"
    for other in (None, "text", object()):
        answers: Any = (x == other, x != other)
        assert answers == (False, True)
    assert (int(x[1]), complex(x[0]), bool(x[0] - 1)) == (2, 1 + 0j, False)
    assert [10, 20, 30][t(1, device)] == 20
    assert bool(t([[True]], device)) is True
    with pytest.raises(AttributeError):
        x.nonsense  # noqa: B018


def test_history_holds_no_memory_after_backward(device: str) -> None:
    there = tb.device(device)
    if there.memory_stats().scope != "device":
        pytest.skip(f"{device} shares the memory of the process")
    x = tb.ones((1 << 16,), device=device).requires_grad_()
    x.grad = tb.ones((1 << 16,), device=device)
    tb.exp(x).sum().backward()
    there.synchronize()
    before = there.memory_stats().allocated
    for _ in range(3):
        loss = (tb.exp(x) * tb.sin(x)).sum()
        there.synchronize()
        assert there.memory_stats().allocated >= before + (1 << 18)
        loss.backward()
        there.synchronize()
        assert there.memory_stats().allocated <= before + (1 << 12)

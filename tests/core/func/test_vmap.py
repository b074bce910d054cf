"""vmap against a loop over the examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_alike, assert_within, of_sum

F = tb.nn.functional
RANDOM = np.random.default_rng(7)
ROUNDINGS = 27 + 8  # sums of a kernel's elements, and the ops around them


def _tensor(*shape: int) -> tb.Tensor:
    return tb.asarray(RANDOM.normal(size=shape).astype("float32"))


ROWS = _tensor(5, 3, 4)
OTHER = _tensor(4, 2)
PLACES = tb.asarray(RANDOM.integers(0, 3, size=(5, 6)))
IMAGES, KERNELS = _tensor(5, 2, 3, 8, 8), _tensor(5, 4, 3, 3, 3)


def _assign(a: tb.Tensor) -> tb.Tensor:
    b = a.clone()
    b[1] = a[0]
    return b


def _gradient(a: tb.Tensor) -> tb.Tensor:
    a = a.detach().requires_grad_()
    (grads,) = tb.grad((tb.sin(a) * OTHER[:, 0]).sum(), a)
    assert grads is not None
    return grads


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "matmul": (lambda a: a @ OTHER, (ROWS,), 0),
    "matmul of both": (lambda a, b: a @ b, (ROWS, _tensor(5, 4, 2)), 0),
    "broadcasting": (lambda a, b: a + b[0], (ROWS, OTHER.T), (0, None)),
    "another axis": (lambda a: a * 2 - 1, (ROWS,), 1),
    "last axis": (lambda a: a.sum(axis=0), (ROWS,), -1),
    "reduction": (lambda a: a.max(axis=1, keepdims=True), (ROWS,), 0),
    "softmax": (lambda a: tb.softmax(a, axis=0), (ROWS,), 0),
    "slices": (lambda a: a[1:, ::-2], (ROWS,), 0),
    "argmax": (lambda a: a.argmax(), (ROWS,), 0),
    "concat": (lambda a: tb.concat([a, a * 2, tb.ones((3, 1))], axis=1), (ROWS,), 0),
    "reshape": (lambda a: a.permute_dims((1, 0)).reshape((2, 6)), (ROWS,), 0),
    "where": (lambda a: tb.where(a > 0, a, tb.zeros(4)), (ROWS,), 0),
    "gather": (lambda a: a[:, tb.asarray([0, 2])], (ROWS,), 0),
    "gather own": (lambda a, k: a[k], (ROWS, PLACES), 0),
    "gather from one": (lambda k: OTHER[k], (PLACES,), 0),
    "gather one place": (lambda a: a[tb.asarray(1)], (ROWS,), 0),
    "assignment": (_assign, (ROWS,), 0),
    "creation": (lambda a: a[0] + tb.zeros_like(a[0]) + tb.ones(4, device=a.device), (ROWS,), 0),
    "pad": (lambda a: F.pad(a, (1, 2)) if hasattr(F, "pad") else a, (ROWS,), 0),
    "cast": (lambda a: a.to(tb.int32), (ROWS,), 0),
    "cumulative_sum": (lambda a: tb.cumulative_sum(a, axis=0), (ROWS,), 0),
    "convolution of images": (lambda a: F.conv2d(a, KERNELS[0]), (IMAGES,), 0),
    "convolution with kernels": (lambda k: F.conv2d(IMAGES[0], k), (KERNELS,), 0),
    "convolution of both": (lambda a, k: F.conv2d(a, k, padding=1), (IMAGES, KERNELS), 0),
    "pooling": (lambda a: F.max_pool2d(a, 2), (IMAGES,), 0),
    "layer norm": (lambda a: F.layer_norm(a, (8,)), (IMAGES,), 0),
    "gradient inside": (_gradient, (ROWS,), 0),
    "nested": (lambda a: tb.vmap(lambda row: row / row.sum())(a), (ROWS,), 0),
    "nested with an outer value": (
        lambda a: tb.vmap(lambda x, y: x * y + a.sum(), (0, None))(a, a[0]), (ROWS,), 0
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_vmap_equals_a_loop(name: str) -> None:
    function, args, dims = CASES[name]
    each = dims if isinstance(dims, tuple) else (dims,) * len(args)
    count = next(a.shape[d] for a, d in zip(args, each, strict=True) if d is not None)

    def example(a: tb.Tensor, d: int | None, k: int) -> tb.Tensor:
        return a if d is None else tb.asarray(np.take(a.numpy(), k, axis=d))

    want = [
        function(*[example(a, d, k) for a, d in zip(args, each, strict=True)]).numpy() for k in range(count)
    ]
    got = tb.vmap(function, dims)(*args).numpy()
    assert_alike(got, np.stack(want), ROUNDINGS)


def test_gradients_flow_out_to_shared_parameters() -> None:
    weight = _tensor(4).requires_grad_()
    tb.vmap(lambda a: (a @ weight).sum())(ROWS).sum().backward()
    assert weight.grad is not None
    rows = ROWS.numpy()
    assert_within(weight.grad.numpy(), rows.sum((0, 1), "f8"), of_sum(rows, (0, 1), "float32"))


def test_trees_out_dims_and_chunks() -> None:
    result = tb.vmap(lambda d: {"x": d["a"] + 1, "n": (d["a"],)}, in_dims=({"a": 1},), out_dims=-1)(
        {"a": ROWS}
    )
    assert (result["x"].shape, result["n"][0].shape) == ((5, 4, 3), (5, 4, 3))
    in_chunks = tb.vmap(lambda a: a * 2, chunk_size=2)(ROWS)
    assert (in_chunks == ROWS * 2).all()
    for size in (None, 2):
        same, each = tb.vmap(lambda a: (OTHER * 2, {"x": a}), out_dims=(None, 1), chunk_size=size)(ROWS)
        assert same.shape == OTHER.shape
        assert each["x"].shape == (3, 5, 4)


def test_a_result_that_does_not_vary_is_repeated() -> None:
    assert tb.vmap(lambda a: tb.ones(2))(ROWS).shape == (5, 2)


@pytest.mark.parametrize("device", ["opencl", "refdev"])
def test_vmap_on_other_devices(device: str) -> None:
    rows = ROWS.to(device)
    got = tb.vmap(lambda a: tb.softmax(a @ OTHER.to(device), axis=-1))(rows)
    want = tb.softmax(ROWS @ OTHER, axis=-1)
    assert str(got.device) == f"{device}:0"
    assert_alike(got.numpy(), want.numpy(), ROUNDINGS)


def test_values_inside_cannot_be_read() -> None:
    with pytest.raises(tb.DeviceError, match="cannot be read"):
        tb.vmap(lambda a: a if a.sum() > 0 else -a)(ROWS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tb.vmap(lambda a, b: a, (0,))(ROWS, OTHER), "1 entries for 2 arguments"),
        (lambda: tb.vmap(lambda a, b: a)(ROWS, OTHER), r"\[4, 5\] examples"),
        (lambda: tb.vmap(lambda a: a, None)(ROWS), "no argument has an axis of examples"),
        (lambda: tb.vmap(lambda a: a)(tb.asarray(1.0)), "0-dimensional"),
        (lambda: tb.vmap(lambda a: a, 3)(ROWS), "axis 3 is out of range"),
        (lambda: tb.vmap(lambda a: a, chunk_size=0), "at least 1"),
        (lambda: tb.vmap(lambda a: a, out_dims=None)(ROWS), "differs between examples"),
        (lambda: tb.vmap(lambda a: (a, a), out_dims=(0,))(ROWS), "axes of 1 values, and there is 2 of them"),
        (lambda: tb.vmap(lambda a: a, out_dims=(0, 1))(ROWS), "2 values, and there is one"),
        (lambda: tb.vmap(lambda a: {"k": a}, out_dims={"q": 0})(ROWS), r"dict of .*q.* a dict of .*k"),
        (lambda: tb.vmap(lambda d: d, ({"b": 0},))({"a": ROWS}), r"in_dims .*dict of .*b.* a dict of .*a"),
        (lambda: tb.vmap(lambda d: d, ((0,),))((ROWS, ROWS)), "1 values, and there is 2 of them"),
        (lambda: tb.vmap(lambda d: d, {"a": 0})(ROWS), "dict of .*a.* none"),
    ],
)
def test_bad_calls(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(tb.ShapeError, match=message):
        call()

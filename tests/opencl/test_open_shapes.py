"""Eager ops whose operands have another length at each call: lowered once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.eager_fusion import fused_function
from tensorbus.kernels import generated_program, open_shapes

OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[Any, ...], ...]]] = {
    "concat": (lambda x, y: tb.concat([x, y], axis=1), lambda x, y: np.concatenate([x, y], 1),
               ((2, "n"), (2, 1))),
    "concat of two": (lambda x, y: tb.concat([x, y], axis=0), lambda x, y: np.concatenate([x, y], 0),
                      (("n", 3), ("m", 3))),
    "add": (lambda x, y: x + y, lambda x, y: x + y, (("n", 6), ("n", 6))),
    "add a row": (lambda x, y: x + y, lambda x, y: x + y, (("n", "m"), ("m",))),
    "times a number": (lambda x: x * 2.5, lambda x: x * np.float32(2.5), (("n", 6),)),
    "where": (lambda x, y: tb.where(x > y, x, y), np.maximum, (("n", 2, "n"), ("n", 2, "n"))),
    "sum of rows": (lambda x: tb.sum(x, axis=1), lambda x: x.sum(1), ((6, "n"),)),
    "sum of columns": (lambda x: tb.sum(x, axis=0), lambda x: x.sum(0), (("n", 6),)),
    "sum of all": (tb.sum, np.sum, (("n", 6),)),
    "argmax": (lambda x: tb.argmax(x, axis=-1), lambda x: x.argmax(-1), ((4, "n"),)),
    "softmax": (lambda x: tb.softmax(x, axis=-1), lambda x: _softmax(x), ((4, "n"),)),
    "product": (lambda x, y: x @ y, lambda x, y: x @ y, (("n", "m"), ("m", 5))),
    "sort": (lambda x: tb.sort(x, axis=-1), lambda x: np.sort(x, -1), ((3, "n"),)),
    "scan": (lambda x: tb.cumulative_sum(x, axis=0), lambda x: x.cumsum(0), (("n", 3),)),
    "take": (lambda x: tb.take(x, tb.asarray([1, 0], device="opencl"), axis=0), lambda x: x[[1, 0]],
             (("n", "m"),)),
    "padded": (lambda x: tb.nn.functional.pad(x, (1, 2)), lambda x: np.pad(x, ((0, 0), (1, 2))), ((2, "n"),)),
    "causal attention": (
        lambda q, v: tb.nn.functional.scaled_dot_product_attention(q, q, v, is_causal=True),
        lambda q, v: _attention(q, v), ((2, "n", 4), (2, "n", 3)),
    ),
    "variance": (lambda x: tb.var(x, axis=-1), lambda x: x.astype("f8").var(-1).astype("f4"), ((4, "n"),)),
}  # fmt: skip
LENGTHS = (
    (5, 9),
    (9, 2),
    (33, 3),
    (40, 4),
    (41, 5),
    (2, 6),
    (64, 7),
    (65, 31),
    (1, 8),
    (7, 1),
    (0, 5),
    (700, 3),
)


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _attention(q: Any, v: Any) -> Any:
    scores = q @ q.swapaxes(-1, -2) / 2
    earlier = np.tril(np.ones(scores.shape[-2:], dtype=bool))
    return _softmax(np.where(earlier, scores, -np.inf)) @ v if len(q[0]) else v


def _operands(shapes: Any, n: int, m: int) -> list[Any]:
    rng, lengths = np.random.default_rng(n), {"n": n, "m": m}
    whole = [tuple(lengths.get(k, k) for k in shape) for shape in shapes]
    return [rng.integers(-9, 9, shape).astype("f4") for shape in whole]


@pytest.mark.parametrize("name", OPS)
def test_ops_are_the_same_for_any_length(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty ones and those of one element too, in any order, and of lengths that no plan was made for."""
    function, expected, shapes = OPS[name]
    monkeypatch.setattr(open_shapes, "SHAPES_BEFORE_PLAN", 2)
    for n, m in (*LENGTHS, *LENGTHS[::-1]):
        if n < {"take": 2, "argmax": 1, "softmax": 1, "variance": 1}.get(name, 0):
            continue
        operands = _operands(shapes, n, m)
        ours = function(*[tb.asarray(x, device="opencl") for x in operands])
        np.testing.assert_allclose(ours.numpy(), expected(*operands), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["concat", "causal attention", "add a row", "softmax", "sum of columns", "times a number", "padded"],
)
def test_a_new_length_is_not_lowered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, _, shapes = OPS[name]

    def run(n: int) -> None:
        function(*[tb.asarray(x, device="opencl") for x in _operands(shapes, n, n + 3)])

    lowered: list[str] = []
    for module in (generated_program, open_shapes):
        lower = module.lower
        monkeypatch.setattr(
            module, "lower", lambda *a, _lower=lower, **k: lowered.append(str(a[0])) or _lower(*a, **k)
        )
    for n in range(211, 217):
        run(n)
    before = len(lowered)
    for n in range(217, 235):
        run(n)
    assert len(lowered) == before


def test_attributes_tell_patterns_apart() -> None:
    """Numbers that are equal and of other types, and axes: each has what was made for it."""
    for n in range(3, 12):
        x = np.arange(3 * n, dtype="f4").reshape(3, n)
        ours = tb.asarray(x, device="opencl")
        for axis in (0, 1):
            for keeps in (False, True):
                np.testing.assert_array_equal(
                    tb.sum(ours, axis=axis, keepdims=keeps).numpy(), x.sum(axis, keepdims=keeps)
                )
        whole = tb.full((n,), 1, device="opencl"), tb.full((n,), 1.0, device="opencl"), tb.full((n,), True)
        assert [v.dtype for v in whole] == [tb.int64, tb.float32, tb.bool]


LAID: dict[str, tuple[Callable[[Any, int], Any], tuple[str | int, ...]]] = {
    "turned": (lambda x, n: x.T, ("m", "n")),
    "turned, of more axes": (lambda x, n: x.swapaxes(1, 2), (2, "m", "n")),
    "rows of a wider matrix": (lambda x, n: x[:, 1:], (3, "n")),
    "every second row": (lambda x, n: x[1::2], ("n", 5)),
    "one of three parts": (lambda x, n: x[:, 1], ("n", 3, 4)),
    "rows that begin together": (lambda x, n: x[:, : n // 2], (3, "n")),
    "backwards": (lambda x, n: x[::-1], ("n", 4)),
    "the same row again": (lambda x, n: x[:1].repeat(n, 0) if type(x) is np.ndarray
                           else x[:1].broadcast_to((n, 4)), (2, 4)),
}  # fmt: skip
LAID_OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "map": (lambda x: x * 2 + x, lambda x: x * 2 + x),
    "copy": (lambda x: x.reshape((-1,)), lambda x: x.reshape(-1)),
    "sum": (lambda x: tb.sum(x, axis=-1), lambda x: x.sum(-1)),
    "sum of columns": (lambda x: tb.sum(x, axis=0), lambda x: x.sum(0)),
    "product": (lambda x: x @ x.swapaxes(-1, -2), lambda x: x @ np.swapaxes(x, -1, -2)),
    "concat": (lambda x: tb.concat([x, x], axis=0), lambda x: np.concatenate([x, x], 0)),
    "gelu": (lambda x: tb.nn.functional.relu(tb.nn.functional.softplus(x * 64)),
             lambda x: np.logaddexp(x * 64, 0)),
}  # fmt: skip


@pytest.mark.parametrize("lie", LAID)
def test_values_that_are_not_packed_have_open_strides(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are those of NumPy for any length, and lengths that come last are not lowered."""
    view, shape = LAID[lie]
    monkeypatch.setattr(open_shapes, "SHAPES_BEFORE_PLAN", 2)
    lowered: list[str] = []
    for module in (generated_program, open_shapes):
        lower = module.lower
        monkeypatch.setattr(
            module, "lower", lambda *a, _lower=lower, **k: lowered.append(str(a[0])) or _lower(*a, **k)
        )
    before = 0
    sizes = ((9, 7), (10, 8), (2, 3), (1, 4), (24, 6), (25, 9), (7, 1), (33, 33), (64, 31), (65, 5), (300, 3))
    for n, m in (*sizes, *[(k, k + 9) for k in (101, 103, 110, 115, 117, 121, 122, 123)]):
        before = len(lowered) if n < 122 else before
        whole = tuple([{"n": n, "m": m}.get(k, k) for k in shape])
        x = np.random.default_rng(n).integers(-9, 9, whole).astype("f4")
        ours = view(tb.asarray(x, device="opencl"), n)
        for name, (function, expected) in LAID_OPS.items():
            if min(ours.shape) and len(ours.shape) > 1:
                np.testing.assert_allclose(
                    function(ours).numpy(), expected(view(x, n)), rtol=1e-5, atol=1e-5, err_msg=name
                )
    assert len(lowered) == before


def test_lengths_that_are_attributes_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[str] = []
    for module in (generated_program, open_shapes):
        lower = module.lower
        monkeypatch.setattr(
            module, "lower", lambda *a, _lower=lower, **k: lowered.append(str(a[0])) or _lower(*a, **k)
        )
    for n in (0, 1, 2, 5, 7, 700, 701, 702, 703):
        before = len(lowered)
        np.testing.assert_array_equal(tb.arange(n, device="opencl").numpy(), np.arange(n))
        np.testing.assert_array_equal(
            tb.full((n, 3), 2.5, device="opencl").numpy(), np.full((n, 3), 2.5, dtype="f4")
        )
    assert len(lowered) == before


def test_a_fused_function_is_traced_for_few_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program for other lengths has their derivative, and wrong operands still raise."""
    traced: list[Any] = []
    trace = fused_function._traced
    monkeypatch.setattr(fused_function, "_traced", lambda *args: traced.append(args[1]) or trace(*args))
    rng = np.random.default_rng(3)
    weight = tb.asarray(rng.standard_normal(12).astype("f4"), device="opencl").requires_grad_()
    expected_weight = tb.asarray(weight.detach().numpy()).requires_grad_()
    for n in (*range(401, 412), 1, 0, 2, 412):
        before = len(traced)
        values = rng.standard_normal((n, 12)).astype("f4")
        results = []
        for device, w in (("opencl", weight), ("cpu", expected_weight)):
            x = tb.asarray(values, device=device).requires_grad_()
            out = tb.nn.functional.layer_norm(x, (12,), w)
            w.grad = None
            tb.sum(out * out * 0.5 + out).backward()
            results.append([out.detach().numpy(), x.grad.numpy(), w.grad.numpy()])
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
    assert len(traced) == before
    with pytest.raises(tb.errors.TensorbusError, match="layer_norm"):
        tb.nn.functional.layer_norm(tb.ones((402, 11), device="opencl"), (11,), weight)

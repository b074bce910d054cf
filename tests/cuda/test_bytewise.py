"""Products of bytes on a GPU: integers exactly, modulo what the dtype holds, floats to their few digits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cuda import device as cuda
from tensorbus_cuda.gemm import kernels_matmul_8bit as bytewise

on_card = pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}")


def test_products_are_seen_as_those_of_one_matrix_on_the_right_or_one_for_each() -> None:
    assert bytewise.sizes([(4, 32, 256), (256, 512)]) == bytewise.Sizes(1, 128, 256, 512)
    assert bytewise.sizes([(4, 64, 256), (4, 256, 512)]) == bytewise.Sizes(4, 64, 256, 512)
    assert bytewise.sizes([(1, 64, 256), (4, 256, 512)]) is None
    assert bytewise.sizes([(64, 256), (4, 256, 512)]) is None


SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "even": ((256, 512), (512, 384)),
    "odd": ((131, 257), (257, 129)),
    "row": ((1, 4096), (4096, 1000)),
    "column": ((3000, 1001), (1001, 1)),
    "stack": ((3, 100, 200), (3, 200, 99)),
    "one right": ((2, 5, 70, 130), (130, 77)),
    "deep": ((64, 1 << 16), (1 << 16, 48)),
    "too deep": ((64, (1 << 16) + 7), ((1 << 16) + 7, 48)),
    "small": ((7, 9), (9, 5)),
    "broadcast": ((1, 128, 256), (3, 256, 64)),
}


@pytest.mark.cuda
@on_card
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("name", SHAPES)
def test_products_are_exact(name: str, dtype: str, compiled: bool) -> None:
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max, shape, dtype, endpoint=True) for shape in SHAPES[name])
    expected = np.matmul(a.astype("i8"), b.astype("i8")).astype(dtype)
    run: Callable[..., Any] = tb.compile(lambda x, y: x @ y) if compiled else lambda x, y: x @ y
    for _ in range(2 if compiled else 1):
        actual = run(tb.asarray(a, device="cuda"), tb.asarray(b, device="cuda"))
        assert actual.dtype == getattr(tb, dtype)
        np.testing.assert_array_equal(actual.numpy(), expected)


@pytest.mark.cuda
@on_card
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_are_taken_in_any_layout(dtype: str) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 127, (301, 600)).astype(dtype), rng.integers(0, 127, (600, 400)).astype(dtype)
    x, y = tb.asarray(a, device="cuda"), tb.asarray(b, device="cuda")
    pairs = [
        (x[:, 1:].T, x[:, :512], a[:, 1:].T, a[:, :512]),
        (x[3:, 16:528], y[7:519, ::2], a[3:, 16:528], b[7:519, ::2]),
        (tb.flip(x, axis=1), y, a[:, ::-1], b),
        (y.T, x.T, b.T, a.T),
        (x[:, 5:517], y[5:517].T.T, a[:, 5:517], b[5:517]),
    ]
    for left, right, c, d in pairs:
        expected = (c.astype("i8") @ d.astype("i8")).astype(dtype)
        np.testing.assert_array_equal((left @ right).numpy(), expected)


@pytest.mark.cuda
@on_card
def test_the_largest_sums_do_not_saturate() -> None:
    x = tb.full((64, 1 << 16), -128, dtype=tb.int8, device="cuda")
    y = tb.full((1 << 16, 64), 127, dtype=tb.int8, device="cuda")
    expected = np.int64(-128 * 127 * (1 << 16)).astype("i1")
    assert (x @ y).numpy().tolist() == [[int(expected)] * 64] * 64
    odd = tb.concat([y[:-1], tb.full((1, 64), 126, dtype=tb.int8, device="cuda")], axis=0)
    last = int(np.int64(-128 * 127 * (1 << 16) + 128).astype("i1"))
    assert (x @ odd).numpy().tolist() == [[last] * 64] * 64


FLOATS: dict[str, Any] = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


def drawn(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, size: float = 1.0
) -> tuple[Any, np.ndarray]:
    x = (size * rng.standard_normal(shape)).astype("f4").astype(FLOATS[dtype])
    return tb.asarray(x, device="cuda"), x.astype("f8")


def share(actual: Any, expected: np.ndarray) -> float:
    got = actual.to(tb.float32).numpy().astype("f8")
    return float(np.linalg.norm(got - expected) / max(np.linalg.norm(expected), 1e-30))


@pytest.mark.cuda
@on_card
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SHAPES)
def test_products_of_floats_of_8_bits_round_once(
    name: str, dtype: str, compiled: bool, rng: np.random.Generator
) -> None:
    size = 0.25 if "deep" in name else 1.0  # the largest number is 448
    (x, a), (y, b) = (drawn(rng, shape, dtype, size) for shape in SHAPES[name])
    run: Callable[..., Any] = tb.compile(lambda x, y: x @ y) if compiled else lambda x, y: x @ y
    result = run(x, y)
    assert str(result.dtype) == dtype
    limit = 0.035 if dtype == "float8_e4m3fn" else 0.07  # a third of a unit in the last place
    assert share(result, a @ b) < limit


@pytest.mark.cuda
@on_card
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("pair", ["e4m3fn e4m3fn", "e4m3fn e5m2", "e5m2 e4m3fn", "e5m2 e5m2"])
@pytest.mark.parametrize("result", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", [name for name in SHAPES if "deep" not in name])
def test_scaled_products(name: str, result: str, pair: str, compiled: bool, rng: np.random.Generator) -> None:
    kinds = [f"float8_{kind}" for kind in pair.split()]
    (x, a), (y, b) = (drawn(rng, shape, kind) for shape, kind in zip(SHAPES[name], kinds, strict=True))
    scales = tb.asarray([0.25], device="cuda"), tb.asarray(3.0, device="cuda")
    row = rng.standard_normal(b.shape[-1]).astype("f4")
    bias = tb.asarray(row, device="cuda").to(result)
    plus = bias.to(tb.float32).numpy()
    call: Callable[..., Any] = tb.compile(tb.scaled_matmul) if compiled else tb.scaled_matmul
    limit = {"float32": 2e-4, "float16": 4e-4, "bfloat16": 3e-3}[result]
    for _ in range(2):
        for factors in (scales, (tb.full((x.shape[-2], 1), 0.25, device="cuda"), scales[1])):
            output = call(x, y, *factors, dtype=result)
            assert str(output.dtype) == result
            assert share(output, (a @ b) * 0.75) < limit
            assert share(call(x, y, *factors, bias, dtype=result), (a @ b) * 0.75 + plus) < limit


@pytest.mark.cuda
@on_card
def test_scales_are_read_when_it_runs_and_nan_stays(rng: np.random.Generator) -> None:
    (x, a), (y, b) = drawn(rng, (64, 128), "float8_e4m3fn"), drawn(rng, (128, 96), "float8_e4m3fn")
    one, call = tb.asarray(1.0, device="cuda"), tb.compile(tb.scaled_matmul)
    for factor in (1.0, 2.0, 0.5):
        scale = tb.asarray(factor, device="cuda")
        assert share(call(x, y, scale, one), a @ b * factor) < 2e-4
        assert share(tb.scaled_matmul(x, y, one, scale), a @ b * factor) < 2e-4
    x[3, 5] = float("nan")
    result = tb.scaled_matmul(x, y, one, one)
    assert tb.isnan(result).sum(axis=1).tolist() == [96 if row == 3 else 0 for row in range(64)]


@pytest.mark.cuda
@on_card
@pytest.mark.parametrize("ends", ["relu", "gelu_tanh"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_go_on_before_they_round(ends: str, dtype: str, rng: np.random.Generator) -> None:
    x, w, bias = (tb.asarray(rng.standard_normal(s).astype("f4"), device="cuda").to(dtype)
                  for s in ((4, 50, 128), (192, 128), (192,)))  # fmt: skip
    end = tb.relu if ends == "relu" else lambda x: tb.nn.functional.gelu(x, approximate="tanh")
    wide = [v.to(tb.float64) for v in (x, w, bias)]
    for actual, plain in (((x, w, bias), wide), ((x, w), wide[:2])):
        call = tb.compile(lambda *v: end(tb.nn.functional.linear(*v)))
        expected = end(tb.nn.functional.linear(*plain)).numpy()
        for _ in range(3):
            assert share(call(*actual), expected) < (3e-3 if dtype == "bfloat16" else 4e-4)
    x[1, 2, 3] = float("nan")
    assert tb.isnan(call(x, w)).sum(axis=-1)[1].tolist() == [192 if k == 2 else 0 for k in range(50)]


@pytest.mark.cuda
@on_card
def test_autotune_chooses_among_the_ways_to_a_product(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tensorbus_cuda.gemm.cublaslt import Library

    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))  # nothing is known of earlier searches

    ranks: list[int] = []
    product = Library.product

    def seen(*args: Any, **kwargs: Any) -> Any:
        ranks.append(kwargs.get("rank", 0))
        return product(*args, **kwargs)

    monkeypatch.setattr(Library, "product", seen)
    x, w = (tb.asarray(rng.standard_normal(s).astype("f4"), device="cuda").to("bfloat16")
            for s in ((512, 1024), (1024, 768)))  # fmt: skip
    tuned = tb.compile(lambda x, w: tb.relu(x @ w) * 2, mode="max-autotune")
    expected = np.maximum(x.to(tb.float32).numpy() @ w.to(tb.float32).numpy(), 0) * 2
    assert share(tuned(x, w), expected) < 4e-3
    assert {*ranks} == {0, 1, 2, 3, 4}
    assert "way, cuBLASLt's ways to a product" in str(tb.compile.explain(tuned)(x, w))

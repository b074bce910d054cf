"""Kernels that users write in C: the calling convention, errors, the cache, compiled programs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cpu.compiler import NATIVE

from error_bounds import gamma

pytestmark = pytest.mark.skipif(NATIVE.compiler() is None, reason="kernels in C need a C compiler")

SCALE = """
void scale(const TB_x *x, TB_out *out, float k, int64_t n, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) out[i] = k * x[i];
}"""
ROWS = """
void rows(const float *x, const int32_t *shift, float *total, int64_t *place,
          int64_t count, int64_t n, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    float sum = 0;
    int64_t best = 0;
    for (int64_t j = 0; j < n; ++j) {
      sum += x[i * n + j];
      if (x[i * n + j] > x[i * n + best]) best = j;
    }
    total[i] = sum + (float)(shift[0] * count);
    place[i] = best;
  }
}"""


@pytest.fixture(autouse=True)
def _on_cpu() -> Any:
    with tb.device("cpu"):
        yield


def scaled(code: str = SCALE, **changes: Any) -> Any:
    """Return a kernel that multiplies by a number."""
    named: dict[str, Any] = {
        "name": "scale", "tensors": {"x": (tb.float32, tb.float64)}, "scalars": {"k": tb.float32},
        "out": lambda x, k: x,
    }  # fmt: skip
    return tb.kernel({"cpu": code}, **{**named, **changes})


def rows() -> Any:
    """Return a kernel of two operands and two results, an item a row."""
    return tb.kernel(
        {"cpu": ROWS}, name="rows", tensors={"x": tb.float32, "shift": tb.int32}, results=("total", "place"),
        out=lambda x, shift: (((x.shape[0],), tb.float32), ((x.shape[0],), tb.int64)),
        sizes=lambda x, shift: x.shape,
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (7,), (30, 41), (3, 200_000)])
@pytest.mark.parametrize("dtype", [tb.float32, tb.float64])
def test_each_item_is_done_once(shape: tuple[int, ...], dtype: tb.DType) -> None:
    x = tb.arange(prod(shape), dtype=dtype).reshape(shape)
    np.testing.assert_array_equal(scaled()(x, 2.0).numpy(), x.numpy() * 2)


def test_operands_are_packed_whatever_they_were() -> None:
    x = np.arange(24.0, dtype=np.float32).reshape(4, 6)
    scale = scaled()
    for view in (x.T, x[::2, 1:], x[::-1], np.broadcast_to(x[0], (3, 6))):
        result = scale(tb.asarray(view, copy=False), 3.0)
        np.testing.assert_array_equal(result.numpy(), view * 3)
    np.testing.assert_array_equal(x, np.arange(24.0, dtype=np.float32).reshape(4, 6))
    odd = np.zeros(41, np.uint8)[1:].view(np.float32)
    odd[:] = range(10)
    np.testing.assert_array_equal(scale(tb.asarray(odd, copy=False), 2.0).numpy(), 2.0 * np.arange(10))


def test_several_operands_results_and_sizes() -> None:
    x = tb.asarray(np.random.default_rng(0).random((500, 33), np.float32))
    total, place = rows()(x, tb.asarray([2], dtype=tb.int32))
    np.testing.assert_allclose(total.numpy(), x.numpy().sum(1) + 1000, rtol=gamma(34, "float32"))
    np.testing.assert_array_equal(place.numpy(), x.numpy().argmax(1))


def test_every_dtype_has_a_type_in_c() -> None:
    code = "void same(const TB_x *x, TB_out *out, int64_t n, int64_t begin, int64_t end)"
    code += "{ for (int64_t i = begin; i < end; ++i) out[i] = x[i]; }"
    dtypes = [d for d in tb.dtypes.ALL if not d.name.startswith("float8")]
    same = tb.kernel({"cpu": code}, name="same", tensors={"x": dtypes}, out=lambda x: x)
    for dtype in dtypes:
        x = tb.asarray([0, 1, 1, 0]).to(dtype)
        assert same(x).dtype is dtype
        assert same(x).tolist() == x.tolist(), dtype
    z = tb.asarray([1 + 2j, 3 - 4j])
    assert same(z).tolist() == z.tolist()
    assert same(tb.asarray([1.5], dtype=tb.bfloat16)).numpy().view(ml_dtypes.bfloat16)[0] == 1.5


def test_scalars_arrive_in_their_own_types() -> None:
    code = """
void put(const float *x, double *out, bool a, int8_t b, uint64_t c, float d, double e, int64_t n,
         int64_t begin, int64_t end) {
  const double all[] = {a, b, (double)(c >> 32), d, e, n};
  for (int64_t i = begin; i < end; ++i) out[i] = all[i];
}"""
    kinds = {"a": tb.bool, "b": tb.int8, "c": tb.uint64, "d": tb.float32, "e": tb.float64}
    put = tb.kernel(
        {"cpu": code}, name="put", tensors={"x": tb.float32}, scalars=kinds,
        out=lambda x, *args: ((6,), tb.float64), sizes=lambda x, *args: (1 << 40,),
    )  # fmt: skip
    before = put(tb.ones(1), True, -5, (1 << 63) + (1 << 32), 0.1, 0.1).tolist()
    assert before == [1.0, -5.0, (1 << 31) + 1.0, float(np.float32(0.1)), 0.1, float(1 << 40)]


def test_a_grid_and_constants_of_its_own() -> None:
    code = """
void blocks(const float *x, float *out, int64_t n, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b)
    for (int64_t i = b * BLOCK; i < n && i < (b + 1) * BLOCK; ++i) out[i] = x[i] + HALF * DEEP;
}"""
    source = tb.KernelSource(
        code=code, grid=lambda x: -(-x.shape[0] // 16), constants={"BLOCK": 16, "HALF": 0.5, "DEEP": True}
    )
    blocks = tb.kernel({"cpu": source}, name="blocks", tensors={"x": tb.float32}, out=lambda x: x)
    x = tb.arange(1001, dtype=tb.float32)
    np.testing.assert_array_equal(blocks(x).numpy(), x.numpy() + 0.5)


def test_gradients() -> None:
    scale = scaled(vjp=lambda g, k: (scale(g, k),))
    x = tb.asarray([1.0, 2.0]).requires_grad_()
    (slope,) = tb.grad((scale(x, 3.0) ** 2).sum(), x, create_graph=True)
    assert slope.tolist() == [18.0, 36.0]
    assert tb.grad(slope.sum(), x)[0].tolist() == [18.0, 18.0]
    with pytest.raises(tb.AutogradError, match="has no derivative"):
        scaled()(x, 3.0).sum().backward()


def test_the_source_comes_before_the_default() -> None:
    scale = scaled(default=lambda x, k: x * k + 100.0)
    x = tb.asarray([1.0]).requires_grad_()
    assert scale(x, 2.0).tolist() == [2.0]
    assert tb.compile(lambda x: scale(x, 2.0) + 1, fullgraph=True)(x.detach()).tolist() == [3.0]
    assert tb.grad(scale(x, 2.0).sum(), x)[0].tolist() == [2.0]


def test_compiled_programs_call_it() -> None:
    scale, both = scaled(vjp=lambda g, k: (scale(g, k),)), rows()
    shift = tb.asarray([1], dtype=tb.int32)

    def program(x: tb.Tensor) -> tb.Tensor:
        total, place = both(scale(x.mT * 2, 0.5) + 1, shift)
        return scale(total, 2.0) + place

    x = tb.asarray(np.random.default_rng(1).random((40, 30), np.float32))
    rounded = gamma(40 + 4, "float32")  # of sums of positive numbers
    fast = tb.compile(program, fullgraph=True)
    for operand in (x, x.mT, x[3:20]):
        np.testing.assert_allclose(fast(operand).numpy(), program(operand).numpy(), rtol=rounded)
    open_ = tb.compile(program, fullgraph=True, dynamic=True)
    for operand in (x, x[3:20], x[:9]):
        np.testing.assert_allclose(open_(operand).numpy(), program(operand).numpy(), rtol=rounded)

    weight = tb.ones(5).requires_grad_()
    step = tb.compile(lambda w: tb.grad(scale(w * w, 0.5).sum(), w)[0], fullgraph=True)
    assert step(weight).tolist() == [1.0] * 5


def test_a_length_may_be_a_scalar_of_an_open_program() -> None:
    scale = scaled()
    fast = tb.compile(lambda x: scale(x, x.shape[0]), dynamic=True, fullgraph=True)
    assert [fast(tb.ones(n)).tolist() for n in (2, 3)] == [[2.0] * 2, [3.0] * 3]


def test_vmap_runs_one_example_after_another() -> None:
    x = tb.arange(12, dtype=tb.float32).reshape(3, 4)
    with pytest.warns(tb.func.LoopWarning, match="has no batching rule, so it runs once for each example"):
        result = tb.vmap(lambda row, y: scaled()(row, 2.0) + y, in_dims=(0, None))(x, tb.ones(4))
    np.testing.assert_array_equal(result.numpy(), x.numpy() * 2 + 1)


def test_source_that_does_not_compile_is_shown_with_numbers() -> None:
    scale = scaled(SCALE.replace("k *", "kk *"))
    with pytest.raises(tb.DeviceError, match=r"(?s)does not compile.*kk.*\n +\d+ +for .* out\[i\] = kk"):
        scale(tb.ones(3), 1.0)
    with pytest.raises(tb.DeviceError, match="does not compile"):
        tb.compile(lambda x: scale(x, 1.0))(tb.ones(3))


@pytest.mark.parametrize(
    "code",
    [
        SCALE.replace("float k, ", ""),
        SCALE.replace("const TB_x", "const int16_t"),
        SCALE.replace("void scale", "void other"),
    ],
    ids=["arguments", "types", "name"],
)
def test_a_function_that_takes_something_else_does_not_compile(code: str) -> None:
    with pytest.raises(tb.DeviceError, match="does not compile"):
        scaled(code)(tb.ones(3), 1.0)


def test_code_that_is_no_text_is_refused() -> None:
    with pytest.raises(tb.DeviceError, match="text in C, got function"):
        scaled(lambda x: x)(tb.ones(3), 1.0)


def test_what_was_compiled_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))
    compiler = NATIVE.compiler()
    assert compiler is not None
    code, build, built = SCALE.replace("k *", "2 * k *"), compiler.build, []

    def watched(source: str, options: Sequence[str]) -> bytes:
        built.append("2 * k *" in source)
        return build(source, options)

    monkeypatch.setattr(compiler, "build", watched)
    scaled(code)(tb.ones(3), 1.0)
    scaled(code)(tb.ones((4, 5)), 3.0)  # other sizes and scalars
    assert sum(built) == 1
    monkeypatch.setattr(compiler, "_libraries", {})
    assert scaled(code)(tb.ones(3), 1.0).tolist() == [2.0] * 3
    assert sum(built) == 1
    assert list(tmp_path.rglob("*.so"))


def test_many_threads_may_call_it() -> None:
    scale, wrong = scaled(), []
    x = tb.arange(100_000, dtype=tb.float32)

    def work(k: float) -> None:
        for _ in range(20):
            if not np.array_equal(scale(x, k).numpy(), x.numpy() * np.float32(k)):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(float(k),)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong

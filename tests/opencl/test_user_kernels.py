"""Kernels that users write in OpenCL C."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_within, gamma

pytest.importorskip("pyopencl", reason="the opencl device needs PyOpenCL")
pytestmark = pytest.mark.opencl

SCALE = """
__kernel void scale(__global const TB_x *x, __global TB_out *out, float k, long n) {
  const long i = get_global_id(0);
  if (i < n) out[i] = k * x[i];
}
__kernel void twice(__global const TB_x *x, __global TB_out *out, float k, long n) {
  const long i = get_global_id(0);
  if (i < n) out[i] = 2 * k * x[i];
}"""
TOTALS = """
__kernel void totals(__global const float *x, __global float *out, long rows, long n) {
  __local float part[GROUP];
  const long row = get_group_id(0), me = get_local_id(0);
  float sum = 0;
  for (long j = me; j < n; j += GROUP) sum += x[row * n + j];
  part[me] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (me == 0) {
    for (long j = 1; j < GROUP; ++j) sum += part[j];
    out[row] = sum;
  }
}"""


@pytest.fixture(autouse=True)
def _on_opencl() -> Any:
    with tb.device("opencl"):
        yield


def scaled(code: str = SCALE, **changes: Any) -> Any:
    """Return a kernel that multiplies by a number."""
    named: dict[str, Any] = {
        "name": "scale", "tensors": {"x": (tb.float32, tb.int32)}, "scalars": {"k": tb.float32},
        "out": lambda x, k: x,
    }  # fmt: skip
    return tb.kernel({"opencl": code}, **{**named, **changes})


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (7,), (30, 41), (3, 100_000)])
@pytest.mark.parametrize("dtype", [tb.float32, tb.int32])
def test_each_item_is_done(shape: tuple[int, ...], dtype: tb.DType) -> None:
    x = tb.arange(prod(shape), dtype=dtype).reshape(shape)
    np.testing.assert_array_equal(scaled()(x, 2.0).numpy(), x.numpy() * 2)


def test_operands_are_packed_whatever_they_were() -> None:
    x = tb.arange(24, dtype=tb.float32).reshape(4, 6)
    for view in (x.mT, x[::2, 1:], tb.flip(x), tb.broadcast_to(x[0], (3, 6))):
        np.testing.assert_array_equal(scaled()(view, 3.0).numpy(), view.numpy() * 3)


def test_one_text_may_hold_several_kernels() -> None:
    x = tb.asarray([1.0, 2.0])
    assert scaled()(x, 2.0).tolist() == [2.0, 4.0]
    assert scaled(name="twice")(x, 2.0).tolist() == [4.0, 8.0]


def test_items_of_a_group_share_memory() -> None:
    source = tb.KernelSource(code=TOTALS, group=16, grid=lambda x: 16 * x.shape[0], constants={"GROUP": 16})
    totals = tb.kernel(
        {"opencl": source}, name="totals", tensors={"x": tb.float32}, sizes=lambda x: x.shape,
        out=lambda x: (x.shape[:1], x.dtype),
    )  # fmt: skip
    x = tb.arange(37 * 100, dtype=tb.float32).reshape(37, 100)
    np.testing.assert_array_equal(totals(x).numpy(), x.numpy().sum(1))  # sums of whole numbers


def test_compiled_programs_and_gradients() -> None:
    scale = scaled(vjp=lambda g, k: (scale(g, k),))
    x = tb.asarray([[1.0, 2.0], [3.0, 4.0]]).requires_grad_()

    def slope(x: tb.Tensor) -> Any:
        return tb.grad(scale(x.mT * x, 0.5).sum(), x)[0]

    assert tb.compile(slope, fullgraph=True)(x).tolist() == slope(x).tolist() == x.mT.tolist()
    total = tb.compile(lambda x: (scale(x * 2, 3.0) + 1).sum(axis=0), fullgraph=True)
    assert total(x.detach()).tolist() == [26.0, 38.0]


def test_source_that_does_not_compile_is_shown_with_numbers() -> None:
    with pytest.raises(
        tb.DeviceError, match=r"(?s)does not compile.*kk.*\n +\d+ +if \(i < n\) out\[i\] = kk"
    ):
        scaled(SCALE.replace("= k *", "= kk *"))(tb.ones(3), 1.0)


def test_source_without_the_function_says_so() -> None:
    with pytest.raises(tb.DeviceError, match=r"no function `__kernel void scale\(\.\.\.\)`"):
        scaled(SCALE.replace("scale", "other"))(tb.ones(3), 1.0)
    with pytest.raises(tb.DeviceError, match=r"no function `__kernel void scale\(\.\.\.\)`"):
        scaled(SCALE.replace("__kernel ", ""))(tb.ones(3), 1.0)


def test_sines_of_sines_are_survived() -> None:
    """Intel's compiler for processors ends the process where it joins the sine and cosine of a joined one."""
    code = """
inline float first(float x) { return sin(x); }
__kernel void chain(__global const TB_x *x, __global TB_out *out, long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  const TB_x a = x[i], s = sin(a);
  TB_x recurrence = cos(cos(a)) * sin(cos(a));
  for (int k = 0; k < 3; ++k) { out[i] = cos(recurrence); recurrence = sin(recurrence); }
  out[i] += sin(s) * cos(s) * cos(a) + recurrence;
}"""
    chain = tb.kernel(
        {"opencl": code}, name="chain", tensors={"x": (tb.float32, tb.float64)}, out=lambda x: x
    )  # fmt: skip

    def generated(x: tb.Tensor) -> tb.Tensor:
        s, c = tb.sin(x), tb.cos(x)
        return tb.sin(s) * tb.cos(s) * c + tb.cos(c) / tb.sin(c)

    for dtype in (np.float32, np.float64):
        a = np.linspace(-2, 2, 100, dtype=dtype)
        x, rounded = tb.asarray(a), 2 * gamma(16, np.dtype(dtype))  # of functions of functions of about 1
        s, r = np.sin(a), np.cos(np.cos(a)) * np.sin(np.cos(a))
        wanted = np.sin(s) * np.cos(s) * np.cos(a) + np.sin(np.sin(np.sin(r))) + np.cos(np.sin(np.sin(r)))
        assert_within(chain(x).numpy(), wanted, rounded * (1 + abs(wanted)))
        wanted = np.sin(s) * np.cos(s) * np.cos(a) + np.cos(np.cos(a)) / np.sin(np.cos(a))
        for run in (generated, tb.compile(generated)):
            assert_within(run(x).numpy(), wanted, rounded * (1 + abs(wanted)))

"""Kernels that users write in CUDA C++ and in Triton, on a GPU."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cuda import device as cuda

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}"),
]
SCALE = """
extern "C" __global__ void scale(const TB_x *x, TB_out *out, float k, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = k * x[i];
}"""


if importlib.util.find_spec("triton") is not None:
    import triton
    import triton.language as tl

    @triton.jit
    def scale_blocks(x, out, k, n, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        inside = at < n
        tl.store(out + at, k * tl.load(x + at, mask=inside), mask=inside)


def in_triton() -> tb.KernelSource:
    """Return the same in Triton."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    return tb.KernelSource(
        code=scale_blocks, grid=lambda x, k: -(-x.shape[0] // 256), constants={"block": 256, "num_warps": 4}
    )


@pytest.fixture(params=["cuda c++", "triton"])
def scale(request: pytest.FixtureRequest) -> Any:
    """A kernel that multiplies a vector by a number."""
    code = SCALE if request.param == "cuda c++" else in_triton()
    with tb.device("cuda"):
        result = tb.kernel(
            {"cuda": code}, name="scale", tensors={"x": (tb.float32, tb.float64)}, scalars={"k": tb.float32},
            out=lambda x, k: x, vjp=lambda g, k: (result(g, k),),
        )  # fmt: skip
        yield result


def test_each_item_is_done(scale: Any) -> None:
    for n in (0, 1, 7, 256, 100_000):
        for dtype in (tb.float32, tb.float64):
            x = tb.arange(n, dtype=dtype)
            np.testing.assert_array_equal(scale(x, 2.0).numpy(), x.numpy() * 2)


def test_memory_of_others_may_lie_anywhere(scale: Any) -> None:
    import cupy

    x = tb.from_dlpack(cupy.arange(1001, dtype=cupy.float32)[1:])
    np.testing.assert_array_equal(scale(x, 2.0).numpy(), 2.0 * np.arange(1, 1001))


def test_compiled_programs_and_gradients(scale: Any) -> None:
    x = tb.asarray([1.0, 2.0, 3.0]).requires_grad_()
    slope = tb.compile(lambda x: tb.grad(scale(x * x, 0.5).sum(), x)[0], fullgraph=True)
    assert slope(x).tolist() == [1.0, 2.0, 3.0]
    more = tb.compile(lambda x: scale(x + 1, 3.0) + 1, fullgraph=True)
    assert more(x.detach()).tolist() == [7.0, 10.0, 13.0]


def test_source_that_does_not_compile_is_shown_with_numbers() -> None:
    wrong = tb.kernel(
        {"cuda": SCALE.replace("k *", "kk *")}, name="scale", tensors={"x": tb.float32},
        scalars={"k": tb.float32}, out=lambda x, k: x,
    )  # fmt: skip
    with pytest.raises(
        tb.DeviceError, match=r"(?s)does not compile.*kk.*\n +\d+ +if \(i < n\) out\[i\] = kk"
    ):
        wrong(tb.ones(3, device="cuda"), 1.0)

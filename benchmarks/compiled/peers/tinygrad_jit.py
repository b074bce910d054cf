"""tinygrad, with its own ``TinyJit``: by clang, or without one by Intel's OpenCL runtime."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

from tensorbus_opencl import icd_loader as drivers

from benchmarks.compiled import data

Call = Callable[[], object]


def _without_clang() -> None:
    """Name the OpenCL loader and the driver to tinygrad, which reads both when it is imported."""
    library = drivers.intel_library()
    if library is not None:
        drivers.set_up()
        os.environ["OPENCL_PATH"] = str(library.parent / "libOpenCL.so.1")
        os.environ["DEV"] = "CL"


if shutil.which("clang") is None:
    _without_clang()

from tinygrad import Device, Tensor, TinyJit  # noqa: E402


class Peer:
    """tinygrad on the processor. Raises what tinygrad raises where it finds neither."""

    def __init__(self, variant: str) -> None:
        (Tensor([1.0]) + 1.0).numpy()

    def chain(self) -> Call:
        x, c = (data.floats(data.CHAIN, seed=k) for k in range(2))

        def run(x: Any, c: Any) -> Any:
            z = x * data.A + data.B
            return z * 0.5 * (1 + (z * 0.5**0.5).erf()) * c.tanh() - x

        return _call(run, x, c)

    def softmax(self) -> Call:
        return _call(lambda x: x.softmax(1), data.floats(8192, 4096))

    def layer_norm(self) -> Call:
        return _call(lambda x: x.layernorm(eps=1e-5), data.floats(8192, 1024))

    def cumsum(self) -> Call:
        return _call(lambda x: x.cumsum(1), data.floats(8192, 4096))

    def matmul(self, dtype: str) -> Call | None:
        return _call(lambda x, y: x @ y, *data.square(dtype)) if dtype == "float32" else None

    def add(self) -> Call:
        return _call(lambda x, y: x + y, *(data.floats(8, seed=k) for k in range(2)))


def _call(function: Callable[..., Any], *arrays: Any) -> Call:
    operands = [Tensor(a).realize() for a in arrays]
    run = TinyJit(lambda *xs: function(*xs).realize())
    device = Device[Device.DEFAULT]

    def call() -> Any:
        out = run(*operands)
        device.synchronize()
        return out

    for _ in range(3):  # it captures at the second call
        call()
    return call

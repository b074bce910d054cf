"""Kernels that are queued as on a Mac compute what they should; MLX's part of it is stood in for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tensorbus.errors import DeviceError

from metal_host import needs_host, printed

pytestmark = [needs_host, pytest.mark.full]
HERE = str(Path(__file__).parent)
QUEUED = f"import sys\nsys.path.insert(0, {HERE!r})\nimport metal_queue\nmetal_queue.stand_in()\n"
SHORT_QUEUES = "from tensorbus_metal import memory\nmemory.LONGEST, memory.ROW = 40, 8\n"
"""Axes that are too long for MLX come after few bytes."""
PROGRAM = """
from error_bounds import assert_alike

x = tb.randn(5, 7)
w = tb.randn(7, 9)
image, kernel = tb.randn(1, 3, 6, 5), tb.randn(2, 3, 3, 3)

def written(x):
    y = x.clone()
    y[1:3] = 0
    y[:, 1] += 1
    return y

def gradient(x, w):
    x = x.detach().requires_grad_()
    tb.nn.functional.cross_entropy(x @ w, tb.arange(5, device=x.device)).backward()
    return x.grad

for function, *given in (
    (lambda x: x + 1, x), (lambda x: x[2:, ::2], x), (tb.matmul, x, w), (lambda x, w: (x @ w).T @ x, x, w),
    (lambda x: tb.sort(x, axis=0), x), (lambda x: tb.cumsum(x, axis=1), x), (lambda x: tb.concat([x, x]), x),
    (lambda x, w: tb.flip(x, axis=0) @ w, x, w), (lambda x, w: tb.softmax(x @ w, axis=1), x, w),
    (tb.nn.functional.conv2d, image, kernel), (written, x), (gradient, x, w),
    (lambda x: tb.nn.functional.layer_norm(x, (7,)), x),
):
    wanted = function(*(v.to("cpu") for v in given))
    for called in (function, tb.compile(function)):
        found = called(*given)
        assert found.device == x.device
        assert_alike(found.to("cpu"), wanted, 64)
print("right")
"""


@pytest.mark.parametrize("before", [SHORT_QUEUES, QUEUED + SHORT_QUEUES], ids=["at once", "queued"])
def test_values_are_right(before: str) -> None:
    assert printed(before + PROGRAM) == ["right"]


def test_nothing_still_reads_what_is_written_over() -> None:
    """MLX does not know of memory that a kernel writes to in place: it orders by what a kernel makes."""
    program = """
import mlx.core as mx
from tensorbus_metal.device import runtime
x = tb.zeros(40)
side = tb.Stream()
with tb.stream(side):
    y = x + 1
waited = []
wait = mx.eval
mx.eval = lambda *given: waited.extend(map(id, given)) or wait(*given)
reads = y._value.buffer.array
tb.scatter_add(x, 0, tb.asarray([1]), tb.ones(1))
print(id(reads) in waited)
"""
    assert printed(QUEUED + program) == ["True"]


def test_a_bad_index_is_told() -> None:
    program = """
try:
    tb.arange(3)[tb.asarray([5])].numpy()
except tb.IndexingError as error:
    print("index 5 is out of range" in str(error))
"""
    assert printed(QUEUED + program) == ["True"]


def test_axes_that_mlx_does_not_have_are_refused() -> None:
    from tensorbus_metal.compiler import MetalCompiler

    kernel = SimpleNamespace(name="wide", params=(), buffers=(), body=("",))
    launch = SimpleNamespace(kernel=kernel, values=(), grid=(2**31,), group=None, tiled=False)
    queue = MetalCompiler(SimpleNamespace(host=False)).prepare("", launch, 0)
    with pytest.raises(DeviceError, match="2,147,483,648 threads on one axis; MLX has 2,147,483,647"):
        queue((), ())

"""Arrays of CuPy, PyTorch and JAX on a GPU are taken and given where they lie, in the order of their work."""

from __future__ import annotations

import os
from typing import Any

import pytest
import tensorbus as tb
from tensorbus_cuda import device as cuda

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}"),
]


class Library:
    """An array library: how it makes an array of a list, where that lies, and how it reads a tensor."""

    def __init__(self, name: str) -> None:
        needed = f"{name} is not installed"
        self.name = name
        if name == "cupy":
            self.xp: Any = pytest.importorskip("cupy", reason=needed)
        elif name == "torch":
            self.xp = pytest.importorskip("torch", reason=needed)
        else:
            pytest.importorskip("jax", reason=needed)
            import jax.numpy

            self.xp = jax.numpy

    def array_of(self, numbers: list[float]) -> Any:
        """Return an array of float32 on the GPU."""
        if self.name == "torch":
            return self.xp.tensor(numbers, dtype=self.xp.float32, device="cuda")
        return self.xp.asarray(numbers, dtype=self.xp.float32)

    def place(self, array: Any) -> int:
        """Return the address of the first element."""
        if self.name == "cupy":
            return int(array.data.ptr)
        return int(array.data_ptr() if self.name == "torch" else array.unsafe_buffer_pointer())

    def read(self, x: tb.Tensor, **options: Any) -> Any:
        """Return the library's array of a tensor."""
        return self.xp.from_dlpack(x, **options)


@pytest.fixture(params=["cupy", "torch", "jax"])
def library(request: pytest.FixtureRequest) -> Library:
    """One library after the other."""
    return Library(request.param)


def place(x: tb.Tensor) -> int:
    """Return the address of a tensor's first element."""
    value = x._value
    return int(value.buffer.ptr + value.offset * value.dtype.itemsize)


def test_arrays_are_taken_where_they_lie(library: Library) -> None:
    array = library.array_of([float(k) for k in range(1000)])
    x = tb.from_dlpack(array)
    assert (x.device, x.dtype, x.shape) == (tb.Device("cuda"), tb.float32, (1000,))
    assert place(x) == library.place(array)
    assert (x * 2).tolist() == [2.0 * k for k in range(1000)]
    assert place(tb.from_dlpack(array, copy=True)) != library.place(array)


def test_tensors_are_given_where_they_lie(library: Library) -> None:
    x = tb.arange(1000.0, device="cuda") * 2
    for shared in (library.read(x), library.read(x[10:], copy=False)):
        assert library.place(shared) - place(x) == 4 * (1000 - len(shared))
        assert shared.tolist() == x.tolist()[1000 - len(shared) :]
    turned = library.read(tb.reshape(x, (4, 250)).mT)
    assert library.place(turned) == place(x)
    assert turned.tolist() == tb.reshape(x, (4, 250)).mT.tolist()


@pytest.mark.parametrize("library", ["cupy", "torch"], indirect=True)  # JAX copies by the host alone
def test_a_copy_is_made_where_somebody_asks_for_it(library: Library) -> None:
    x = tb.arange(1000.0, device="cuda") * 2
    for operand in (x, x[10:]):
        copied = library.read(operand, copy=True)
        assert library.place(copied) != place(operand)
        assert copied.tolist() == operand.tolist()


def test_memory_lives_as_long_as_anybody_has_it(library: Library) -> None:
    x = tb.arange(1 << 18, device="cuda", dtype=tb.float32) + 1
    shared = library.read(x)
    del x
    spoiled = [tb.zeros((1 << 18,), device="cuda") for _ in range(4)]
    assert shared.tolist() == list(range(1, (1 << 18) + 1))
    array = library.array_of([3.0] * 5000)
    y = tb.from_dlpack(array)
    del array
    more = [library.array_of([-1.0] * 5000) for _ in range(4)]
    assert float((y * 1).sum().item()) == 15000.0
    del spoiled, more


def test_what_is_queued_is_done_before_it_is_read(library: Library) -> None:
    x = tb.full((4096, 4096), 1.0 / 4096, device="cuda", dtype=tb.float32)
    for _ in range(3):
        y = x
        for _ in range(8):
            y = y @ x
        assert float(library.read(y).sum()) == 4096.0  # powers of two, of which 2 ** 24 are added up


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int32", "float16", "bfloat16", "float32", "complex64", "float8_e4m3fn"]
)
def test_dtypes_are_kept(library: Library, dtype: str) -> None:
    x = (tb.arange(6, device="cuda") % 2).to(getattr(tb, dtype))
    if library.name == "cupy" and dtype.startswith("float8"):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            library.read(x)
        return
    shared = library.read(x)
    assert str(shared.dtype).removeprefix("torch.") == dtype
    assert library.place(shared) == place(x)
    back = tb.from_dlpack(shared)
    assert (str(back.dtype), back.tolist()) == (dtype, x.tolist())


def test_reversed_and_strided_arrays_are_taken_where_they_lie() -> None:
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    array = cupy.arange(60, dtype="f4").reshape(6, 10)
    for view in (array[::-1, ::2], array.T[3:, ::-1], array[1:, 3], array[2:2]):
        assert tb.from_dlpack(view).tolist() == view.tolist()
        assert tb.from_dlpack(view, copy=True).tolist() == view.tolist()
    x = tb.from_dlpack(array[::-1, ::2])
    array *= 2
    assert x.tolist() == array[::-1, ::2].tolist()


def test_a_reader_on_another_stream_waits() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    side, x = torch.cuda.Stream(), tb.full((4096, 4096), 1.0 / 4096, device="cuda", dtype=tb.float32)
    for _ in range(12):
        x = x @ x
    with torch.cuda.stream(side):
        assert float(torch.from_dlpack(x).sum()) == 4096.0  # powers of two, of which 2 ** 24 are added up

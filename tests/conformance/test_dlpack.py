"""DLPack: what every device exports, to itself and to the host, and what it may refuse."""

from __future__ import annotations

import ctypes
import gc
from itertools import product
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.backend_api import SupportsDLPack, SupportsHostArrays, SupportsHostViews, SupportsLending
from tensorbus.dtypes import definition as dt
from tensorbus.plugins import backend

from installed import lacks

HOST = (1, 0)
SMALL_FLOATS = {dt.bfloat16: (4, 16), dt.float8_e4m3fn: (10, 8), dt.float8_e5m2: (12, 8)}
"""``DLDataTypeCode`` and bits of those that NumPy reads by no name."""
EXPORTED = [d for d in dt.ALL if d not in SMALL_FLOATS]


class Producer:
    """An array of some other library, over a tensor's memory."""

    def __init__(self, x: tb.Tensor, **fixed: Any) -> None:
        self.x, self.fixed = x, fixed

    def __dlpack__(self, **options: Any) -> Any:
        return self.x.__dlpack__(**{**options, **self.fixed})

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.fixed.get("dl_device") or self.x.__dlpack_device__()
        return device


def shares(device: str) -> bool:
    """Return whether the host can read the device's memory in its place."""
    runtime: Any = backend(device).runtime
    if isinstance(runtime, SupportsHostArrays):
        return True
    if not isinstance(runtime, SupportsHostViews):
        return False
    try:
        runtime.host_view(tb.zeros((1,), device=device)._value, 0)
    except BufferError:
        return False
    return True


@pytest.mark.parametrize("dtype", EXPORTED, ids=str)
def test_the_host_reads_every_dtype(device: str, dtype: tb.DType) -> None:
    if lacks(device, dtype):
        return
    for shape in ((3, 4), (), (2, 0)):
        x = tb.arange(12, device=device)[: int(np.prod(shape))].reshape(shape).to(dtype)
        for t in (x, x.flip(), x[..., ::2] if shape else x):
            for copy in (None, True):
                exported = np.from_dlpack(t, device="cpu", copy=copy)
                assert (exported.dtype.name, exported.shape) == (dtype.name, t.shape)
                assert np.array_equal(exported, t.numpy())


def test_every_version_of_the_protocol(device: str) -> None:
    x = tb.asarray([[1.0, 2.0], [3.0, 4.0]], device=device).T
    runtime: Any = backend(device).runtime
    homes = [HOST, *([x.__dlpack_device__()] if isinstance(runtime, SupportsDLPack) else [])]
    for home, version, copy in product(homes, (None, (0, 8), (1, 0), (2, 0)), (None, True, False)):
        if home == HOST and copy is False and not shares(device):
            with pytest.raises(BufferError, match="drop copy=False"):
                x.__dlpack__(dl_device=home, max_version=version, copy=copy)
        else:
            x.__dlpack__(dl_device=home, max_version=version, copy=copy)
    with pytest.raises(BufferError, match=r"was asked for on \(99, 0\); move it"):
        x.__dlpack__(dl_device=(99, 0))
    with pytest.raises(BufferError, match="detach"):
        x.requires_grad_().__dlpack__(dl_device=HOST)


def test_an_export_outlives_its_tensor(device: str) -> None:
    """Where a device does not lend its memory, the export sees no change either."""
    x = tb.asarray([1.0, 2.0, 3.0], device=device)
    y = x * 2
    exported = np.from_dlpack(y, device="cpu")
    lends = isinstance(backend(device).runtime, SupportsLending)
    assert exported.flags.writeable or not lends
    y += 1
    y -= lends
    del y
    gc.collect()
    others = [tb.full((3,), 9.0, device=device) for _ in range(20)]
    assert exported.tolist() == [2.0, 4.0, 6.0]
    assert len(others) == 20


def test_capsules_are_read_back(device: str) -> None:
    if not isinstance(backend(device).runtime, SupportsDLPack):
        return
    lends = isinstance(backend(device).runtime, SupportsLending)
    x = tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)[:, ::-1]
    for copy in (None, True):
        y = tb.from_dlpack(Producer(x), copy=copy)
        assert (y.device, y.dtype, y.tolist()) == (x.device, x.dtype, x.tolist())
        shared = lends and not copy
        y += 1
        assert x.tolist() == ([[4, 3, 2], [7, 6, 5]] if shared else [[3, 2, 1], [6, 5, 4]])
        x[...] = [[3, 2, 1], [6, 5, 4]]
        assert y.tolist() == (x if shared else x + 1).tolist()


def test_sharing_takes_no_copy(device: str) -> None:
    x = tb.ones((1000,), device=device)
    if shares(device):
        first = np.from_dlpack(x, device="cpu", copy=False)
        second = np.from_dlpack(x, device="cpu", copy=False)
        assert np.shares_memory(first, second)
        assert not np.shares_memory(first, np.from_dlpack(x, device="cpu", copy=True))


class _Capsule(ctypes.Structure):
    """``DLManagedTensorVersioned`` of ``dlpack.h``, with its tensor's fields."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


def fields(capsule: Any) -> _Capsule:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return _Capsule.from_address(pointer(capsule, b"dltensor_versioned"))


def test_a_version_may_be_a_list(device: str) -> None:
    x = tb.arange(3, device=device)
    assert fields(x.__dlpack__(dl_device=HOST, max_version=[1, 0])).ndim == 1


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=str)
def test_small_floats_cross_to_the_host_and_back(device: str, dtype: tb.DType) -> None:
    if lacks(device, dtype):
        return
    numbers = (tb.arange(12, device=device) % 7).reshape(3, 4)
    whole = numbers.to(dtype)
    for x in (whole, whole.flip(), whole[1:, ::2], whole[0, 0], whole[:, :0]):
        for copy in (None, True):
            capsule = x.__dlpack__(dl_device=HOST, max_version=(1, 0), copy=copy)
            c = fields(capsule)
            assert ((c.device_type, c.device_id), (c.code, c.bits), c.lanes) == (HOST, SMALL_FLOATS[dtype], 1)
            assert tuple(c.shape[: c.ndim]) == x.shape
            y = tb.from_dlpack(Producer(x, dl_device=HOST), device="cpu", copy=copy)
            assert (y.device.type, y.dtype, y.tolist()) == ("cpu", dtype, x.tolist())
    y = tb.from_dlpack(Producer(whole, max_version=None, dl_device=HOST), device="cpu")
    y += 1
    assert whole.tolist() == numbers.tolist()


@pytest.mark.parametrize("dtype", [*SMALL_FLOATS, dt.float32], ids=str)
def test_what_is_lent_is_written_by_either(dtype: tb.DType) -> None:
    x = tb.arange(6, device="cpu").to(dtype).reshape(2, 3)
    row, copy = x[1], x.clone()
    y = tb.from_dlpack(Producer(row))
    y += 1
    y[1:][0] = 10
    assert (x.tolist(), row.tolist()) == ([[0, 1, 2], [4, 10, 6]], [4, 10, 6])
    x[1, 2] = 0
    assert (y.tolist(), copy.tolist()) == ([4, 10, 0], [[0, 1, 2], [3, 4, 5]])
    tail = tb.from_dlpack(Producer(y[1:]))
    tail.fill_(2)
    assert (x.tolist(), y.tolist()) == ([[0, 1, 2], [4, 2, 2]], [4, 2, 2])
    copied = tb.from_dlpack(Producer(x), copy=True)
    older = tb.from_dlpack(Producer(x, max_version=None))
    copied.zero_()
    older.zero_()
    del x, row, y, copied, older
    gc.collect()
    assert tail.tolist() == [2, 2]
    leaf = copy.detach().requires_grad_()
    with pytest.raises(BufferError, match="detach"):
        leaf.__dlpack__()
    with tb.no_grad():
        shown = tb.from_dlpack(Producer(tb.broadcast_to(copy[:1], (2, 3))))
        shown += 1  # nothing is written through what shows an element twice
    assert copy.tolist() == [[0, 1, 2], [3, 4, 5]]

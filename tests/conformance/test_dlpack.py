"""DLPack: what every device exports, to itself and to the host, and what it may refuse."""

from __future__ import annotations

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
EXPORTED = [d for d in dt.ALL if d.name not in ("bfloat16", "float8_e4m3fn", "float8_e5m2")]
"""NumPy reads the others by no name."""


class Producer:
    """An array of some other library, over a tensor's memory."""

    def __init__(self, x: tb.Tensor) -> None:
        self.x = x

    def __dlpack__(self, **options: Any) -> Any:
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


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
                exported = np.from_dlpack(t, device="cpu", copy=copy)  # type: ignore[call-arg]
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
    exported = np.from_dlpack(y, device="cpu")  # type: ignore[call-arg]
    lends = isinstance(backend(device).runtime, SupportsLending)
    assert exported.flags.writeable is lends
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
    x = tb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)[:, ::-1]
    for copy in (None, True):
        y = tb.from_dlpack(Producer(x), copy=copy)
        assert (y.device, y.dtype, y.tolist()) == (x.device, x.dtype, x.tolist())
        y += 1
        assert x.tolist() == [[3.0, 2.0, 1.0], [6.0, 5.0, 4.0]]
        x[0, 0] = 3.0
        assert y.tolist() == [[4.0, 3.0, 2.0], [7.0, 6.0, 5.0]]


def test_sharing_takes_no_copy(device: str) -> None:
    x = tb.ones((1000,), device=device)
    if shares(device):
        first = np.from_dlpack(x, device="cpu", copy=False)  # type: ignore[call-arg]
        second = np.from_dlpack(x, device="cpu", copy=False)  # type: ignore[call-arg]
        assert np.shares_memory(first, second)
        assert not np.shares_memory(first, np.from_dlpack(x, device="cpu", copy=True))  # type: ignore[call-arg]

"""What libraries get of a GPU: addresses in its memory, memory of their own, and errors that come late."""

from __future__ import annotations

import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.backend_api import (
    SupportsAddresses,
    SupportsLateErrors,
    device_address,
    device_contiguous,
    device_empty,
)
from tensorbus_cuda import device as cuda

cupy = pytest.importorskip("cupy")
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}"),
]


def test_addresses_are_those_of_the_elements() -> None:
    x = tb.arange(12, dtype="float32", device="cuda").reshape((3, 4))
    assert isinstance(x.device.runtime, SupportsAddresses)
    assert device_address(x) == cupy.from_dlpack(x).data.ptr
    assert device_address(x[:0]) == 0
    new = device_empty((3, 4), tb.float32, x.device)
    assert new.shape == (3, 4)
    assert device_address(new) not in (0, None, device_address(x))
    strided = x.mT
    packed = device_contiguous(strided)
    assert device_address(strided) is None
    assert device_address(packed) == cupy.from_dlpack(packed).data.ptr
    assert cupy.from_dlpack(packed).flags.c_contiguous
    assert packed.tolist() == strided.tolist()
    assert device_contiguous(x) is x


def test_an_error_comes_where_a_value_is_read_once() -> None:
    runtime = plugins.backend("cuda").runtime
    assert isinstance(runtime, SupportsLateErrors)
    x = tb.ones((3,), device="cuda")
    first, second = tb.DeviceError("the first"), tb.DeviceError("the second")
    runtime.raise_later(first, 0)
    runtime.raise_later(second, 0)
    runtime.not_later(second, 0)
    with pytest.raises(tb.DeviceError, match="the first"):
        (x + 1).tolist()
    assert (x + 1).tolist() == [2.0] * 3

"""A runtime over NumPy's arrays, right in all that it does: tests replace some of it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from tensorbus.backend_api import DeviceProperties, DType, MemoryStats, dtypes


class NumpyRuntime:
    """One unit that has ``dtypes``."""

    dtypes: ClassVar[tuple[DType, ...]] = (
        dtypes.bool_, dtypes.int64, dtypes.uint32, dtypes.uint64, dtypes.float32,
    )  # fmt: skip

    def device_count(self) -> int:
        return 1

    def properties(self, index: int) -> DeviceProperties:
        return DeviceProperties(name="a unit", dtypes=frozenset(self.dtypes))

    def from_host(self, data: memoryview, shape: tuple[int, ...], dtype: DType, index: int) -> Any:
        return np.frombuffer(bytearray(data), dtype.name).reshape(shape)

    def to_host(self, value: Any, dtype: DType, index: int) -> memoryview:
        return memoryview(np.array(value, order="C").tobytes())

    def synchronize(self, index: int) -> None:
        pass

    def memory_stats(self, index: int) -> MemoryStats:
        return MemoryStats(allocated=0, peak=0)

    def reset_peak_memory_stats(self, index: int) -> None:
        pass


NATIVE = {dtype: np.dtype(dtype.name) for dtype in NumpyRuntime.dtypes}
"""NumPy's dtype for each."""

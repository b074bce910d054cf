"""Running one kernel of the opencl device directly, beside NumPy."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import ml_dtypes
import numpy as np
from tensorbus.backend_interface.protocols import Call
from tensorbus.backend_interface.strided_array import StridedArray
from tensorbus.dtypes import definition as dt
from tensorbus.ops.definition import Spec
from tensorbus.ops.definition import table as ops

os.environ.setdefault("TENSORBUS_CACHE_DIR", tempfile.mkdtemp(prefix="tensorbus-test-"))


def numpy_dtype(d: dt.DType) -> np.dtype[Any]:
    """Return NumPy's dtype for ours."""
    return np.dtype(getattr(ml_dtypes, d.name, d.name))


class Bench:
    """A unit of the device: values in, kernels run, values out."""

    def __init__(self, index: int = 0) -> None:
        from tensorbus_opencl.device import runtime
        from tensorbus_opencl.kernels import table

        self.runtime = runtime()
        self.kernels = table()
        self.index = index

    def put(self, array: Any, dtype: dt.DType | None = None) -> StridedArray:
        """Copy an array to the device."""
        array = np.asarray(array)
        shape = array.shape
        data: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return self.runtime.from_host(
            memoryview(data), shape, dtype or dt.dtype(str(array.dtype)), self.index
        )

    def get(self, value: StridedArray) -> Any:
        """Copy a value back."""
        data = np.frombuffer(self.runtime.to_host(value, value.dtype, self.index), np.uint8)
        return data.view(numpy_dtype(value.dtype)).reshape(value.shape)

    def prepare(
        self, op: str, values: tuple[Any, ...], dtypes: tuple[dt.DType, ...] | None = None, **attrs: Any
    ) -> Any:
        """Return the prepared kernel for these values."""
        common = next((v.dtype for v in values if isinstance(v, StridedArray)), dt.float32)
        dtypes = dtypes or tuple(v.dtype if isinstance(v, StridedArray) else common for v in values)
        shapes = tuple(v.shape if isinstance(v, StridedArray) else () for v in values)
        result = ops[op]
        specs = tuple(Spec(s, d) for s, d in zip(shapes, dtypes, strict=True))
        operand = result.normalize(specs, **attrs) if result.normalize else attrs
        out = result.infer(specs, **operand)
        free = result.family in ("elementwise", "cast")
        call = Call(
            op=op, dtypes=dtypes, shapes=None if free else shapes, attrs=operand, out_dtype=out.dtype,
            out_shape=None if free else out.shape, index=self.index,
        )  # fmt: skip
        kernel: Any = self.kernels[op]
        if callable(kernel):
            return lambda *v: kernel(*v, **operand)
        if kernel.prepare is None:
            return lambda *v: kernel.function(*v, **operand)
        return kernel.prepare(call)

    def run(self, op: str, *values: Any, dtypes: tuple[dt.DType, ...] | None = None, **attrs: Any) -> Any:
        """Run an op on arrays or values; return a NumPy array."""
        operand = tuple(self.put(v) if isinstance(v, np.ndarray | np.generic) else v for v in values)
        return self.get(self.prepare(op, operand, dtypes, **attrs)(*operand))

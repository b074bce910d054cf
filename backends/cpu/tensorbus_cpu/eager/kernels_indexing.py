"""Reads and writes at places, counting, and reshapes: by ``csource/library.c`` where they are large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tensorbus.backend_api import DeviceError, Kernel

from ..gemm.kernels_matmul import reshape
from . import inplace_kernels
from .candidates import costly_size, native_first, result_size, scattered_size
from .kernels_native import GeneratedKernel, gather, scatter, takes_places


def indexing_kernels(numpy: Mapping[str, Kernel]) -> dict[str, Sequence[Kernel]]:
    """Return the candidates of gathers, scatters, updates, counts and reshapes."""
    scatters = native_first(numpy["scatter"], scatter, scattered_size)
    return {
        **{
            op: native_first(numpy[op], gather, result_size, lambda call: True)
            for op in ("gather", "take_along_axis")
        },
        "scatter": [replace(kernel, inplace=inplace_kernels.scatter) for kernel in scatters],
        "scatter_along_axis": (
            Kernel(name="native", prepare=lambda call: scatter(call, _refuse), supports=takes_places),
        ),
        "slice_update": (replace(numpy["slice_update"], name="numpy", inplace=inplace_kernels.slice_update),),
        "iota": native_first(numpy["iota"], GeneratedKernel, result_size),
        "reshape": native_first(numpy["reshape"], reshape, costly_size, lambda call: True),
    }


def _refuse(*values: Any) -> Any:
    raise DeviceError("cpu: the compiler that this call was planned for is gone")

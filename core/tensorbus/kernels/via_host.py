"""Kernels of a device that has no library for an op: the host's kernel, with copies there and back.

A backend puts them into its table by name and lists them in its manifest (``[ops] host``), so that nobody
takes them for its own; ``tensorbus.fallback_counts()`` tells how often they ran and what was copied. An op
that is in neither is not run on the host unless the user allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ..backend_interface.protocols import Call, Kernel
from ..devices.device import Device
from ..dispatch.candidates import judge
from ..dispatch.host_fallback import on_host
from ..errors import UnsupportedOpError
from ..ops.definition import Spec, table
from ..plugins import host_backend

LINALG: Final = (
    "cholesky", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lu_factor", "matrix_exp", "qr",
    "slogdet", "solve", "solve_triangular", "svd", "svdvals",
)  # fmt: skip
FFT: Final = ("fft", "irfft", "rfft")
HOST_KERNEL: Final = "host"
"""The name of these kernels, which distinguishes them from a device's own."""


def host_kernels(device_type: str, *ops: str) -> dict[str, Kernel]:
    """Return a kernel called ``host`` for each of ``ops``, for the table of ``device_type``.

    Without names they are those of linear algebra and Fourier transforms.
    Calls wait for their operands, so data that a factorization cannot take raises at the call. dtypes that
    the device lacks are refused as everywhere: the result comes back to it.
    """
    names = ops or (*LINALG, *FFT)
    return {op: Kernel(name=HOST_KERNEL, prepare=partial(_prepare, device_type)) for op in names}


def _prepare(device_type: str, call: Call) -> Callable[..., Any]:
    op, device, host = table[call.op], Device(device_type, call.index), Device(host_backend().type, 0)
    shapes = call.shapes if call.shapes is not None else ((),) * len(call.dtypes)
    specs = op.specs(tuple(Spec(s, d) for s, d in zip(shapes, call.dtypes, strict=True)), call.attrs)
    outs = [spec.dtype for spec in specs]
    compute = _kernel_of(host, replace(call, index=host.index))

    def run(*values: Any) -> Any:
        return on_host(call.op, device, host, compute, values, call.dtypes, outs, bool(op.results))

    return run


def _kernel_of(host: Device, call: Call) -> Callable[..., Any]:
    own = [v.kernel for v in judge(call.op, call, host) if v.kernel.name != HOST_KERNEL and v.reason is None]
    kernel = next(iter(own), None)
    if kernel is None:
        raise UnsupportedOpError(f"{call.op}: {host} has no kernel that could stand in for another device's.")
    if kernel.prepare is not None:
        return kernel.prepare(call)
    assert kernel.function is not None
    return partial(kernel.function, **call.attrs)

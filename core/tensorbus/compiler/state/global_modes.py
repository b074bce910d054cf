"""Modes and defaults of the process and the thread: grad mode, default device and dtype, autocast, ..."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...amp.matmul_precision import get_matmul_precision
from ...devices.device import default_state
from ...dispatch import kernel_preference
from ...dtypes import definition as dt
from ...tensor.grad_mode import is_grad_enabled
from ...tracing import mesh_policy
from ...tracing.autocast_state import autocast_dtype


class GlobalModes(NamedTuple):
    """A snapshot of all modes."""

    grad_mode: bool
    default_device: Any
    default_dtype: dt.DType
    autocast: Any
    preferred_kernels: Any
    matmul_precision: str
    mesh_policy: mesh_policy.NotedPolicy

    @staticmethod
    def current() -> GlobalModes:
        """Return the modes that are in force."""
        return GlobalModes(
            is_grad_enabled(), default_state(), dt.default_float, autocast_dtype.get(),
            kernel_preference._preferred.get(), get_matmul_precision(), mesh_policy.noted(),
        )  # fmt: skip

    def first_difference(self, other: GlobalModes) -> str | None:
        """Return the name of the first mode that differs, or None."""
        each = zip(self._fields, self, other, strict=True)
        return next((name.replace("_", " ") for name, a, b in each if a != b), None)

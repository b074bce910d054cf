"""Automatic mixed precision: autocast, the precision of matrix products, losses that are scaled.

An op with float32 operands comes in; what leaves is the same op on operands cast to the narrow dtype. In
order: ``autocast_mode``, ``matmul_precision``, ``rank_agreement``, ``grad_scaler``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..system.lazy_import import lazy_exports

if TYPE_CHECKING:
    from .autocast_mode import autocast as autocast
    from .grad_scaler import GradScaler as GradScaler

__getattr__, __dir__, __all__ = lazy_exports(
    __name__, {"autocast_mode": "autocast", "grad_scaler": "GradScaler"}
)

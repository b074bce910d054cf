"""Automatic mixed precision: autocast, and the precision of matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..system.lazy_import import lazy_exports

if TYPE_CHECKING:
    from .autocast_mode import autocast as autocast

__getattr__, __dir__, __all__ = lazy_exports(__name__, {"autocast_mode": "autocast"})

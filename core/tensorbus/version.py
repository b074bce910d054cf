"""The version of tensorbus-core."""

from __future__ import annotations

__version__ = "0.1.0"

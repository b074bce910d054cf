"""The function of ten ops whose compile time is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def ten_ops(of: Any) -> Callable[[Any, Any], Any]:
    """Return a function of ten ops."""

    def function(x: Any, y: Any) -> Any:
        z = of.exp(x * 0.5) + y
        z = of.tanh(z) * x - y
        return of.sum(of.sqrt(z * z + 1.0))

    return function

"""Transforms: functions that take a function and return another.

In order: ``vectorize``, ``checkpoint``, ``pytree``.
"""

from .vectorize import vmap as vmap

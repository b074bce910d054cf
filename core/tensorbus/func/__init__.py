"""Transforms: functions that take a function and return another; and modes, which programs define.

In order: ``vectorize``, ``checkpoint``, ``pytree``.
"""

from ..dispatch.modes import Mode as Mode
from .vectorize import vmap as vmap

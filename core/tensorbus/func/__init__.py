"""Transforms: functions that take a function and return another; and modes, which programs define.

In order: ``vectorize``, ``vectorized_function``, ``derivatives``, ``jacobians``, ``module_state``,
``checkpoint``, ``pytree``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..dispatch.modes import Mode as Mode
from ..ops.batching_rules import LoopWarning as LoopWarning
from ..system.lazy_import import lazy_exports
from .vectorize import vmap as vmap

if TYPE_CHECKING:
    from .derivatives import grad as grad
    from .derivatives import grad_and_value as grad_and_value
    from .derivatives import jvp as jvp
    from .derivatives import linearize as linearize
    from .derivatives import vjp as vjp
    from .jacobians import hessian as hessian
    from .jacobians import jacfwd as jacfwd
    from .jacobians import jacrev as jacrev
    from .module_state import functional_call as functional_call
    from .module_state import stack_module_state as stack_module_state

_PARTS: Final = {
    "derivatives": "grad grad_and_value jvp linearize vjp",
    "jacobians": "hessian jacfwd jacrev",
    "module_state": "functional_call stack_module_state",
}
__getattr__, __dir__, _ = lazy_exports(__name__, _PARTS)

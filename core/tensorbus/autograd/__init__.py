"""Gradients: recorded nodes and the backward pass; views, and changes in place.

Recorded ops and the gradient of a result come in, gradients of leaves leave; a change of a view comes in, the
changes of all that show the same leave. In order: ``node_order``, ``saved_values``, ``hooks``,
``gradient_shape``, ``gradient_sums``, ``backward_arguments``, ``engine``, ``block_node``, ``function``,
``views``, ``view_changes``, ``forward_rules``, ``forward_mode``, ``forward_ad``, ``gradient_check``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..system.lazy_import import lazy_exports
from ..tensor.grad_mode import enable_grad as enable_grad
from ..tensor.grad_mode import inference_mode as inference_mode
from ..tensor.grad_mode import is_grad_enabled as is_grad_enabled
from ..tensor.grad_mode import no_grad as no_grad
from ..tensor.grad_mode import set_grad_enabled as set_grad_enabled
from .engine import Node as Node
from .engine import Part as Part
from .engine import backward as backward
from .engine import grad as grad
from .engine import record as record
from .engine import record_several as record_several
from .hooks import register_hook as register_hook
from .hooks import register_post_accumulate_grad_hook as register_post_accumulate_grad_hook

if TYPE_CHECKING:
    from . import forward_ad as forward_ad
    from .function import Function as Function
    from .gradient_check import gradcheck as gradcheck

_PARTS: Final = {"function": "Function", "gradient_check": "gradcheck"}
__getattr__, __dir__, _ = lazy_exports(__name__, _PARTS, "forward_ad")

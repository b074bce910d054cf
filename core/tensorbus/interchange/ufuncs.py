"""NumPy's functions of tensors: ``np.sin(x)``, ``array + x``. The result is a tensor.

Only where nothing is copied between devices without a word: on a device whose memory is the host's. Of
ufuncs the plain call is taken; who writes into an array, or reduces, says so with ``x.numpy()``.
"""

from __future__ import annotations

from typing import Any, Final

from .. import plugins
from ..dispatch.modes import base_device
from ..errors import DtypeError
from ..ops.definition import table
from ..ops.matmul.matmul import matmul
from ..tensor.tensor import Tensor
from . import host_array

NAMES: Final = {
    "absolute": "abs", "fabs": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "conjugate": "conj",
    "degrees": "rad2deg", "float_power": "", "invert": "bitwise_invert", "left_shift": "bitwise_left_shift",
    "radians": "deg2rad", "right_shift": "bitwise_right_shift", "rint": "round", "true_divide": "divide",
}  # fmt: skip
"""What ufuncs are called here whose names differ; an empty name: there is no op."""


def call(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return what the op of the ufunc's name makes of tensors and arrays.

    Raises ``DtypeError`` for tensors of other devices, and for what is no plain call of an elementwise op.
    """
    name = NAMES.get(ufunc.__name__, ufunc.__name__)
    known = name in table and (table[name].family == "elementwise" or name == "matmul")
    if method != "__call__" or options or not known or table[name].results:
        raise DtypeError(
            f"numpy.{ufunc.__name__}: a tensor is taken by plain calls of elementwise functions only, got"
            f" {method!r}{f' with {sorted(options)}' if options else ''}; give NumPy x.numpy(), or take"
            f" tensorbus' own function."
        )
    like = next(x for x in inputs if isinstance(x, Tensor))
    function = matmul if name == "matmul" else table.function(name)
    return function(*(as_operand(name, x, like) for x in inputs))


def as_operand(name: str, x: Any, like: Tensor) -> Any:
    """Return an operand; an array as a tensor beside ``like``, which lies in the host's memory."""
    if isinstance(x, Tensor) or not getattr(x, "shape", ()):
        return x
    if base_device(like.device).type != plugins.host_type():
        raise DtypeError(
            f"{name}: needs tensors, got {type(x).__name__} and a tensor on {like.device}. Say where to"
            f" compute: tensorbus.asarray(array, device={str(like.device)!r}), or x.numpy()."
        )
    return host_array.asarray(x, device=like.device)

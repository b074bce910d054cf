"""What PyTorch's names are called here, where the standard or one place for each thing decided otherwise.

Errors for a name that is missing say so. ``docs/pytorch.md`` has the same table, and more.
"""

from __future__ import annotations

from typing import Final

FUNCTIONS: Final = {
    "absolute": "abs(x)",
    "amax": "max(x, axis=...)",
    "amin": "min(x, axis=...)",
    "arccos": "acos(x)",
    "arcsin": "asin(x)",
    "arctan": "atan(x)",
    "arctan2": "atan2(x, y)",
    "as_tensor": "asarray(data)",
    "bitwise_not": "bitwise_invert(x)",
    "bmm": "matmul(x, y)",
    "broadcast_tensors": "broadcast_arrays(x, y)",
    "cat": "concat((x, y), axis=...)",
    "cholesky": "linalg.cholesky(x)",
    "clamp": "clip(x, min, max)",
    "concatenate": "concat((x, y), axis=...)",
    "cross": "linalg.cross(x, y)",
    "det": "linalg.det(x)",
    "div": "divide(x, y)",
    "double": "float64",
    "dot": "matmul(x, y)",
    "eq": "equal(x, y)",
    "fix": "trunc(x)",
    "float": "float32",
    "from_numpy": "asarray(data)",
    "ge": "greater_equal(x, y)",
    "gt": "greater(x, y)",
    "half": "float16",
    "int": "int32",
    "inverse": "linalg.inv(x)",
    "is_complex": "isdtype(x.dtype, 'complex floating')",
    "is_floating_point": "isdtype(x.dtype, 'real floating')",
    "is_tensor": "isinstance(x, Tensor)",
    "le": "less_equal(x, y)",
    "long": "int64",
    "lt": "less(x, y)",
    "matrix_power": "linalg.matrix_power(x, n)",
    "mm": "matmul(x, y)",
    "movedim": "moveaxis(x, source, destination)",
    "mul": "multiply(x, y)",
    "mv": "matmul(x, y)",
    "ne": "not_equal(x, y)",
    "neg": "negative(x)",
    "norm": "linalg.norm(x)",
    "permute": "permute_dims(x, axes)",
    "ravel": "flatten(x)",
    "select": "squeeze(take(x, [index], axis=...), axis=...)",
    "set_float32_matmul_precision": "set_matmul_precision(name)",
    "short": "int16",
    "sub": "subtract(x, y)",
    "swapdims": "swapaxes(x, i, j)",
    "take_along_dim": "take_along_axis(x, indices, axis=...)",
    "transpose": "swapaxes(x, i, j)",
    "true_divide": "divide(x, y)",
    "unbind": "unstack(x, axis=...)",
    "unique": "unique_values(x)",
    "unsqueeze": "expand_dims(x, axis=...)",
}
"""What stands in ``tensorbus`` for a name of ``torch``."""

METHODS: Final = {
    "bool": "x.to(tensorbus.bool)",
    "contiguous": "x: every tensor is",
    "cpu": "x.to('cpu')",
    "cuda": "x.to('cuda')",
    "data": "x.detach(), or x.copy_(y) in tensorbus.no_grad()",
    "dim": "x.ndim",
    "double": "x.to(tensorbus.float64)",
    "expand": "tensorbus.broadcast_to(x, shape)",
    "expand_as": "tensorbus.broadcast_to(x, y.shape)",
    "float": "x.to(tensorbus.float32)",
    "half": "x.to(tensorbus.float16)",
    "int": "x.to(tensorbus.int32)",
    "is_cuda": "x.device.type",
    "long": "x.to(tensorbus.int64)",
    "new_full": "tensorbus.full(shape, value, dtype=x.dtype, device=x.device)",
    "new_ones": "tensorbus.ones(shape, dtype=x.dtype, device=x.device)",
    "new_zeros": "tensorbus.zeros(shape, dtype=x.dtype, device=x.device)",
    "numel": "x.size",
    "pow": "x**y",
    "reshape_as": "x.reshape(y.shape)",
    "short": "x.to(tensorbus.int16)",
    "t": "x.T",
    "type": "x.to(dtype)",
    "type_as": "x.to(y.dtype)",
    "view_as": "x.reshape(y.shape)",
}
"""What stands for a name that only ``torch.Tensor`` has, or that means something else there."""


def hint(name: str, *, method: bool = False) -> str:
    """Return the sentence that says what a name of PyTorch's is here, to follow an error; empty if none.

    >>> hint("cat")
    "; PyTorch's cat is here tensorbus.concat((x, y), axis=...)"
    >>> hint("cats")
    ''
    """
    if method and name in METHODS:
        return f"; PyTorch's {name} is here {METHODS[name]}"
    found = FUNCTIONS.get(name)
    return f"; PyTorch's {name} is here tensorbus.{found}" if found else ""

"""What PyTorch's names are called here, where the standard or one place for each thing decided otherwise.

Errors for a name that is missing say so. ``docs/pytorch.md`` has the same table, and more.
"""

from __future__ import annotations

from typing import Final

FUNCTIONS: Final = {
    "absolute": "abs(x)",
    "amax": "max(x, axis=...)",
    "amin": "min(x, axis=...)",
    "amp": "autocast",
    "arccos": "acos(x)",
    "arcsin": "asin(x)",
    "arctan": "atan(x)",
    "arctan2": "atan2(x, y)",
    "argwhere": "stack(tensorbus.nonzero(x), axis=1)",
    "as_tensor": "asarray(data)",
    "bitwise_not": "bitwise_invert(x)",
    "bmm": "matmul(x, y)",
    "broadcast_tensors": "broadcast_arrays(x, y)",
    "cat": "concat((x, y), axis=...)",
    "cdouble": "complex128",
    "cfloat": "complex64",
    "cholesky": "linalg.cholesky(x)",
    "clamp": "clip(x, min, max)",
    "concatenate": "concat((x, y), axis=...)",
    "cosine_similarity": "nn.functional.cosine_similarity(x, y)",
    "cross": "linalg.cross(x, y)",
    "cuda": "devices()",
    "det": "linalg.det(x)",
    "div": "divide(x, y)",
    "dot": "matmul(x, y)",
    "double": "float64",
    "dropout": "nn.functional.dropout(x, p)",
    "eq": "equal(x, y)",
    "fix": "trunc(x)",
    "float": "float32",
    "FloatTensor": "asarray(data, dtype=tensorbus.float32)",
    "from_numpy": "asarray(data)",
    "ge": "greater_equal(x, y)",
    "ger": "outer(x, y)",
    "gt": "greater(x, y)",
    "half": "float16",
    "histc": "histogram(x, bins).hist",
    "inner": "vecdot(x, y)",
    "int": "int32",
    "inverse": "linalg.inv(x)",
    "is_complex": "isdtype(x.dtype, 'complex floating')",
    "is_floating_point": "isdtype(x.dtype, 'real floating')",
    "jit": "compile(fn)",
    "le": "less_equal(x, y)",
    "long": "int64",
    "LongTensor": "asarray(data, dtype=tensorbus.int64)",
    "lt": "less(x, y)",
    "matrix_power": "linalg.matrix_power(x, n)",
    "mm": "matmul(x, y)",
    "movedim": "moveaxis(x, source, destination)",
    "mul": "multiply(x, y)",
    "mv": "matmul(x, y)",
    "nansum": "sum(tensorbus.where(tensorbus.isnan(x), 0, x))",
    "ne": "not_equal(x, y)",
    "neg": "negative(x)",
    "norm": "linalg.norm(x)",
    "permute": "permute_dims(x, axes)",
    "promote_types": "result_type(x, y)",
    "ravel": "flatten(x)",
    "row_stack": "vstack((x, y))",
    "select": "squeeze(take(x, [index], axis=...), axis=...)",
    "set_float32_matmul_precision": "set_matmul_precision(name)",
    "sgn": "sign(x)",
    "short": "int16",
    "sub": "subtract(x, y)",
    "swapdims": "swapaxes(x, i, j)",
    "take_along_dim": "take_along_axis(x, indices, axis=...)",
    "transpose": "swapaxes(x, i, j)",
    "true_divide": "divide(x, y)",
    "unbind": "unstack(x, axis=...)",
    "unflatten": "reshape(x, shape)",
    "unique": "unique_values(x)",
    "unsqueeze": "expand_dims(x, axis=...)",
    "vdot": "vecdot(x, y)",
}
"""What stands in ``tensorbus`` for a name of ``torch``."""

EXPRESSIONS: Final = {
    "addmm": "x + y @ z",
    "aminmax": "x.min(), x.max()",
    "baddbmm": "x + y @ z",
    "clone": "x.clone()",
    "is_tensor": "isinstance(x, tensorbus.Tensor)",
    "narrow": "x[start:stop]",
    "numel": "x.size",
    "Size": "tuple",
    "std_mean": "x.std(), x.mean()",
    "t": "x.T",
    "testing": "assert tensorbus.allclose(x, y)",
    "var_mean": "x.var(), x.mean()",
}
"""What is written for a name of ``torch`` that no function stands for."""

METHODS: Final = {
    "abs_": "x.copy_(x.abs())",
    "bfloat16": "x.to(tensorbus.bfloat16)",
    "bool": "x.to(tensorbus.bool)",
    "byte": "x.to(tensorbus.uint8)",
    "cdouble": "x.to(tensorbus.complex128)",
    "ceil_": "x.copy_(x.ceil())",
    "cfloat": "x.to(tensorbus.complex64)",
    "char": "x.to(tensorbus.int8)",
    "contiguous": "x: every tensor is",
    "cos_": "x.copy_(x.cos())",
    "cpu": "x.to('cpu')",
    "cuda": "x.to('cuda')",
    "data": "x.detach(), or x.copy_(y) in tensorbus.no_grad()",
    "dim": "x.ndim",
    "double": "x.to(tensorbus.float64)",
    "element_size": "x.dtype.itemsize",
    "exp_": "x.copy_(x.exp())",
    "expand": "tensorbus.broadcast_to(x, shape)",
    "expand_as": "tensorbus.broadcast_to(x, y.shape)",
    "float": "x.to(tensorbus.float32)",
    "floor_": "x.copy_(x.floor())",
    "get_device": "x.device.index",
    "grad_fn": "x.is_leaf: histories are not shown",
    "H": "x.mT.conj()",
    "half": "x.to(tensorbus.float16)",
    "index_add_": "x.copy_(x.index_add(axis, index, value))",
    "index_put_": "x[indices] = values",
    "int": "x.to(tensorbus.int32)",
    "is_contiguous": "True: every tensor is",
    "is_cuda": "x.device.type",
    "log_": "x.copy_(x.log())",
    "long": "x.to(tensorbus.int64)",
    "mH": "x.mT.conj()",
    "ndimension": "x.ndim",
    "nelement": "x.size",
    "new_full": "tensorbus.full(shape, value, dtype=x.dtype, device=x.device)",
    "new_ones": "tensorbus.ones(shape, dtype=x.dtype, device=x.device)",
    "new_tensor": "tensorbus.asarray(data, dtype=x.dtype, device=x.device)",
    "new_zeros": "tensorbus.zeros(shape, dtype=x.dtype, device=x.device)",
    "numel": "x.size",
    "pow": "x**y",
    "relu_": "x.copy_(x.relu())",
    "reshape_as": "x.reshape(y.shape)",
    "round_": "x.copy_(x.round())",
    "rsqrt_": "x.copy_(x.rsqrt())",
    "scatter_": "x.copy_(x.scatter_along_axis(index, value, axis=...))",
    "scatter_add_": "x.copy_(x.scatter_add(axis, index, value))",
    "short": "x.to(tensorbus.int16)",
    "sigmoid_": "x.copy_(x.sigmoid())",
    "sin_": "x.copy_(x.sin())",
    "sqrt_": "x.copy_(x.sqrt())",
    "t": "x.T",
    "tanh_": "x.copy_(x.tanh())",
    "type": "x.to(dtype)",
    "type_as": "x.to(y.dtype)",
    "view_as": "x.reshape(y.shape)",
}
"""What stands for a name that only ``torch.Tensor`` has, or that means something else there."""

NUMPY: Final = {
    "astype": "x.to(dtype)",
    "copy": "x.clone()",
    "fill": "x.fill_(value)",
    "itemsize": "x.dtype.itemsize",
}
"""What stands for a name that NumPy's arrays have."""

MISSING: Final = (*FUNCTIONS, *EXPRESSIONS, *METHODS, *NUMPY)
"""What tensors may be asked for in vain."""


def hint(name: str, *, method: bool = False) -> str:
    """Return the sentence that says what a name of PyTorch's is here, to follow an error; empty if none.

    >>> hint("cat")
    "; PyTorch's cat is here tensorbus.concat((x, y), axis=...)"
    >>> hint("cats")
    ''
    """
    if method and name in NUMPY:
        return f"; NumPy's {name} is here {NUMPY[name]}"
    found = METHODS.get(name) if method else None
    if found is None and name in FUNCTIONS:
        found = f"tensorbus.{FUNCTIONS[name]}"
    found = found or EXPRESSIONS.get(name)
    return f"; PyTorch's {name} is here {found}" if found else ""


def of_module(name: str) -> str:
    """Return the sentence that says what a method of PyTorch's modules is here; empty if none.

    >>> of_module("cuda")
    "; PyTorch's cuda is here module.to('cuda')"
    """
    return f"; PyTorch's {name} is here module.to({name!r})" if name in ("cpu", "cuda") else ""


_FORMS: Final = {("where", 1): "nonzero(condition)"}


def of_form(name: str, count: int) -> str:
    """Return what stands for a function of PyTorch's where it is given ``count`` operands; empty if none.

    >>> of_form("where", 1)
    " PyTorch's where of 1 operand is here tensorbus.nonzero(condition)."
    """
    found = _FORMS.get((name, count))
    return f" PyTorch's {name} of {count} operand is here tensorbus.{found}." if found else ""

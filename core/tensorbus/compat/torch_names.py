"""What PyTorch's names are called here, where the standard or one place for each thing decided otherwise.

Errors for a name that is missing say so. ``docs/pytorch.md`` has the same table, and more.
"""

from __future__ import annotations

from typing import Final

FUNCTIONS: Final = {
    "absolute": "abs(x)",
    "accelerator": "devices()",
    "amax": "max(x, axis=...)",
    "amin": "min(x, axis=...)",
    "arccos": "acos(x)",
    "arccosh": "acosh(x)",
    "arcsin": "asin(x)",
    "arcsinh": "asinh(x)",
    "arctan": "atan(x)",
    "arctan2": "atan2(x, y)",
    "arctanh": "atanh(x)",
    "as_tensor": "asarray(data)",
    "backends": "devices()",
    "bitwise_not": "bitwise_invert(x)",
    "bmm": "matmul(x, y)",
    "BoolTensor": "asarray(data, dtype=tensorbus.bool)",
    "broadcast_tensors": "broadcast_arrays(x, y)",
    "ByteTensor": "asarray(data, dtype=tensorbus.uint8)",
    "cat": "concat((x, y), axis=...)",
    "cdouble": "complex128",
    "cfloat": "complex64",
    "cholesky": "linalg.cholesky(x)",
    "clamp": "clip(x, min, max)",
    "clamp_max": "clip(x, max=...)",
    "clamp_min": "clip(x, min=...)",
    "concatenate": "concat((x, y), axis=...)",
    "conj_physical": "conj(x)",
    "cosine_similarity": "nn.functional.cosine_similarity(x, y)",
    "cross": "linalg.cross(x, y)",
    "cuda": "devices()",
    "det": "linalg.det(x)",
    "div": "divide(x, y)",
    "dot": "matmul(x, y)",
    "double": "float64",
    "DoubleTensor": "asarray(data, dtype=tensorbus.float64)",
    "dropout": "nn.functional.dropout(x, p)",
    "eq": "equal(x, y)",
    "fix": "trunc(x)",
    "fliplr": "flip(x, axis=1)",
    "flipud": "flip(x, axis=0)",
    "float": "float32",
    "FloatTensor": "asarray(data, dtype=tensorbus.float32)",
    "from_numpy": "asarray(data)",
    "ge": "greater_equal(x, y)",
    "ger": "outer(x, y)",
    "get_float32_matmul_precision": "get_matmul_precision()",
    "gt": "greater(x, y)",
    "half": "float16",
    "HalfTensor": "asarray(data, dtype=tensorbus.float16)",
    "histc": "histogram(x, bins).hist",
    "int": "int32",
    "IntTensor": "asarray(data, dtype=tensorbus.int32)",
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
    "mps": "devices()",
    "msort": "sort(x, axis=0)",
    "mul": "multiply(x, y)",
    "mv": "matmul(x, y)",
    "ne": "not_equal(x, y)",
    "neg": "negative(x)",
    "norm": "linalg.norm(x)",
    "permute": "permute_dims(x, axes)",
    "pinverse": "linalg.pinv(x)",
    "promote_types": "result_type(x, y)",
    "range": "arange(start, end + step, step)",
    "ravel": "flatten(x)",
    "row_stack": "vstack((x, y))",
    "scalar_tensor": "asarray(value)",
    "set_default_tensor_type": "set_default_dtype(dtype)",
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
    "unsqueeze": "expand_dims(x, axis=...)",
    "vdot": "vecdot(x, y)",
    "xpu": "devices()",
}
"""What stands in ``tensorbus`` for a name of ``torch``."""

EXPRESSIONS: Final = {
    "adjoint": "x.mT.conj()",
    "clone": "x.clone()",
    "GradScaler": "not needed for bfloat16: tensorbus.autocast(dtype=tensorbus.bfloat16)",
    "is_nonzero": "bool(x)",
    "is_tensor": "isinstance(x, tensorbus.Tensor)",
    "isneginf": "x == -tensorbus.inf",
    "isposinf": "x == tensorbus.inf",
    "numel": "x.size",
    "rsub": "y - x",
    "Size": "tuple",
    "t": "x.T",
    "utils": "Python's own loops over data: tensorbus.stack(samples) is a batch; tensorbus.checkpoint",
}
"""What is written for a name of ``torch`` that no function stands for."""

METHODS: Final = {
    "abs_": "x.copy_(x.abs())",
    "bernoulli_": "x.copy_(tensorbus.bernoulli(p, x.shape, device=x.device))",
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
    "detach_": "x = x.detach()",
    "dim": "x.ndim",
    "double": "x.to(tensorbus.float64)",
    "element_size": "x.dtype.itemsize",
    "exp_": "x.copy_(x.exp())",
    "expand": "tensorbus.broadcast_to(x, shape)",
    "expand_as": "tensorbus.broadcast_to(x, y.shape)",
    "exponential_": "x.copy_(tensorbus.exponential(x.shape, device=x.device))",
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
    "is_cpu": "x.device.type",
    "is_cuda": "x.device.type",
    "is_sparse": "False: every tensor is dense",
    "log_": "x.copy_(x.log())",
    "long": "x.to(tensorbus.int64)",
    "mH": "x.mT.conj()",
    "ndimension": "x.ndim",
    "nelement": "x.size",
    "new_empty": "tensorbus.empty(shape, dtype=x.dtype, device=x.device)",
    "new_full": "tensorbus.full(shape, value, dtype=x.dtype, device=x.device)",
    "new_ones": "tensorbus.ones(shape, dtype=x.dtype, device=x.device)",
    "new_tensor": "tensorbus.asarray(data, dtype=x.dtype, device=x.device)",
    "new_zeros": "tensorbus.zeros(shape, dtype=x.dtype, device=x.device)",
    "numel": "x.size",
    "pow": "x**y",
    "random_": "x.copy_(tensorbus.randint(low, high, x.shape, device=x.device))",
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
    "squeeze_": "x = x.squeeze()",
    "swapaxes_": "x = x.swapaxes(i, j)",
    "t": "x.T",
    "t_": "x = x.T",
    "tanh_": "x.copy_(x.tanh())",
    "transpose_": "x = x.swapaxes(i, j)",
    "type": "x.to(dtype)",
    "type_as": "x.to(y.dtype)",
    "unsqueeze_": "x = x.expand_dims(axis)",
    "view_as": "x.reshape(y.shape)",
}
"""What stands for a name that only ``torch.Tensor`` has, or that means something else there."""

IN_PLACE: Final = tuple(
    """
    acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_or
    bitwise_right_shift bitwise_xor clamp_max clamp_min copysign cosh cumprod cumsum deg2rad digamma
    divide erf erfc erfinv exp2 expm1 floor_divide fmod frac greater greater_equal heaviside hypot
    index_copy less less_equal lgamma log10 log1p log2 logical_and logical_not logical_or
    logical_xor logit multiply negative nextafter not_equal rad2deg reciprocal remainder
    scatter_reduce sign sinc sinh square subtract tan tril triu trunc xlogy
    """.split()
)
"""Methods that ``torch.Tensor`` has with a ``_`` behind the name too: here ``x.copy_(x.name(...))``."""

HOMES: Final = {
    name: home
    for home, names in {
        "nn": "ModuleDict ParameterDict",
        "nn.functional": """
            adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout avg_pool1d batch_norm bilinear
            binary_cross_entropy_with_logits celu channel_shuffle cosine_embedding_loss ctc_loss
            embedding embedding_bag feature_alpha_dropout group_norm hardshrink
            hinge_embedding_loss instance_norm kl_div margin_ranking_loss max_pool1d max_pool3d
            pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu rms_norm
            rrelu selu threshold triplet_margin_loss
        """,
        "linalg": "cholesky_solve cond eig lstsq lu lu_solve matrix_exp matrix_rank qr slogdet solve svd",
        "random": "default_generator",
        "special": "i0 polygamma",
    }.items()
    for name in names.split()
}
"""Names of ``torch`` that are the same here, in one module only: it is named by the error."""

DISTRIBUTIONS: Final = {
    "Bernoulli": "bernoulli(p, shape)",
    "Beta": "distributions.beta(shape, a, b)",
    "Categorical": "multinomial(weights, n, replacement=True), with nn.functional.log_softmax for log_prob",
    "Exponential": "exponential(shape, rate)",
    "Gamma": "distributions.gamma(shape, concentration, rate)",
    "Normal": "normal(shape, mean, std)",
    "Poisson": "poisson(rate)",
    "Uniform": "uniform(shape, low, high)",
}
"""What draws in the place of a class of ``torch.distributions``; densities are written out."""

NUMPY: Final = {
    "astype": "x.to(dtype)",
    "copy": "x.clone()",
    "fill": "x.fill_(value)",
    "itemsize": "x.dtype.itemsize",
}
"""What stands for a name that NumPy's arrays have."""

MISSING: Final = (
    *FUNCTIONS, *EXPRESSIONS, *METHODS, *NUMPY, *HOMES, *(f"{name}_" for name in IN_PLACE),
)  # fmt: skip
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
    equivalent = METHODS.get(name) if method else None
    if method and name[:-1] in IN_PLACE and name.endswith("_"):
        equivalent = f"x.copy_(x.{name[:-1]}(...))"
    if equivalent is None and name in FUNCTIONS:
        equivalent = f"tensorbus.{FUNCTIONS[name]}"
    if equivalent is None and name in HOMES:
        equivalent = f"tensorbus.{HOMES[name]}.{name}"
    equivalent = equivalent or EXPRESSIONS.get(name)
    return f"; PyTorch's {name} is here {equivalent}" if equivalent else ""


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
    form = _FORMS.get((name, count))
    return f" PyTorch's {name} of {count} operand is here tensorbus.{form}." if form else ""


def of_distributions(name: str) -> str:
    """Return the sentence that says what draws instead of a class of ``torch.distributions``; empty if none.

    >>> of_distributions("Normal")
    "; PyTorch's Normal is here tensorbus.normal(shape, mean, std)"
    """
    equivalent = DISTRIBUTIONS.get(name)
    return f"; PyTorch's {name} is here tensorbus.{equivalent}" if equivalent else ""

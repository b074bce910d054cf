"""PyTorch's names: those that are second names of what is here, and what stands for the others.

Errors for a name that is missing say what stands for it. ``docs/pytorch.md`` has the same table, and more.
"""

from __future__ import annotations

from typing import Final

ALIASES: Final = {
    alias: name
    for name, aliases in {
        "abs": "absolute",
        "acos": "arccos",
        "acosh": "arccosh",
        "asin": "arcsin",
        "asinh": "arcsinh",
        "atan": "arctan",
        "atan2": "arctan2",
        "atanh": "arctanh",
        "asarray": "as_tensor from_numpy",
        "bitwise_invert": "bitwise_not",
        "broadcast_arrays": "broadcast_tensors",
        "clip": "clamp",
        "concat": "cat concatenate",
        "conj": "conj_physical",
        "divide": "div true_divide",
        "equal": "eq",
        "expand_dims": "unsqueeze",
        "flatten": "ravel",
        "greater": "gt",
        "greater_equal": "ge",
        "less": "lt",
        "less_equal": "le",
        "linalg.cholesky": "cholesky",
        "linalg.det": "det",
        "linalg.inv": "inverse",
        "linalg.matrix_power": "matrix_power",
        "linalg.pinv": "pinverse",
        "matmul": "bmm dot mm mv",
        "max": "amax",
        "min": "amin",
        "moveaxis": "movedim",
        "multiply": "mul",
        "negative": "neg",
        "not_equal": "ne",
        "outer": "ger",
        "permute_dims": "permute",
        "result_type": "promote_types",
        "sign": "sgn",
        "subtract": "sub",
        "swapaxes": "swapdims transpose",
        "tensor": "scalar_tensor",
        "trapezoid": "trapz",
        "trunc": "fix",
        "unstack": "unbind",
        "vecdot": "vdot",
        "vstack": "row_stack",
        "nn.functional.cosine_similarity": "cosine_similarity",
        "nn.functional.dropout": "dropout",
        "complex128": "cdouble",
        "complex64": "cfloat",
        "float16": "half",
        "float32": "float",
        "float64": "double",
        "int16": "short",
        "int32": "int",
        "int64": "long",
    }.items()
    for alias in aliases.split()
}
"""Second names, PyTorch's or NumPy's, each of the name of a function or dtype here that means the same.

A name is looked up when it is first used, in ``tensorbus`` and, of what is a method, in ``Tensor``.
"""

FORMS: Final = """adjoint expand fliplr flipud is_complex is_floating_point is_tensor isneginf isposinf
    max_with_indices min_with_indices msort numel t take_along_dim unflatten""".split()
"""Functions of ``eager/torch_forms.py``; those that take a tensor first are methods too."""

METHOD_ALIASES: Final = {"pow": "power", "ndimension": "dim", "nelement": "numel", "reshape_as": "view_as"}
"""Second names that only methods have."""

METHOD_FORMS: Final = """bfloat16 bool byte cdouble cfloat char contiguous cpu cuda dim double element_size
    expand_as float get_device half int is_contiguous long new_empty new_full new_ones new_tensor new_zeros
    short tile type type_as view_as""".split()
"""Methods of ``eager/torch_forms.py``."""

FUNCTIONS: Final = {
    "accelerator": "devices()",
    "adaptive_max_pool1d": "nn.functional.adaptive_max_pool1d(x, n, return_indices=True)",
    "backends": "devices()",
    "binary_cross_entropy_with_logits": (
        "nn.functional.binary_cross_entropy_with_logits(x, y, reduction='none')"
    ),
    "BoolTensor": "asarray(data, dtype=tensorbus.bool)",
    "ByteTensor": "asarray(data, dtype=tensorbus.uint8)",
    "batch_norm": "nn.functional.batch_norm(x, running_mean, running_var, weight, bias)",
    "cosine_embedding_loss": "nn.functional.cosine_embedding_loss(x, y, target, reduction='none')",
    "cross": "linalg.cross(x, y, axis=x.shape.index(3))",
    "ctc_loss": "nn.functional.ctc_loss(x, targets, input_lengths, target_lengths, reduction='none')",
    "cuda": "devices()",
    "DoubleTensor": "asarray(data, dtype=tensorbus.float64)",
    "eig": "linalg.eig(x)",
    "embedding": "nn.functional.embedding(indices, weight)",
    "embedding_bag": "nn.functional.embedding_bag(indices, weight)",
    "FloatTensor": "asarray(data, dtype=tensorbus.float32)",
    "get_float32_matmul_precision": "get_matmul_precision()",
    "HalfTensor": "asarray(data, dtype=tensorbus.float16)",
    "hinge_embedding_loss": "nn.functional.hinge_embedding_loss(x, target, reduction='none')",
    "histc": "histogram(x, bins).hist",
    "igamma": "special.gammainc(x, y)",
    "igammac": "special.gammaincc(x, y)",
    "instance_norm": "nn.functional.instance_norm(x, running_mean, running_var, weight, bias)",
    "IntTensor": "asarray(data, dtype=tensorbus.int32)",
    "jit": "compile(fn)",
    "kl_div": "nn.functional.kl_div(x, target, reduction='none')",
    "LongTensor": "asarray(data, dtype=tensorbus.int64)",
    "lstsq": "linalg.lstsq(a, b)",
    "lu": "linalg.lu_factor(x)",
    "lu_solve": "linalg.lu_solve(LU, permutation, b)",
    "margin_ranking_loss": "nn.functional.margin_ranking_loss(x, y, target, reduction='none')",
    "mps": "devices()",
    "mvlgamma": "special.multigammaln(x, p)",
    "norm": "linalg.vector_norm(x, p, axis)",
    "polygamma": "special.polygamma(n, x)",
    "set_default_tensor_type": "set_default_dtype(dtype)",
    "set_float32_matmul_precision": "set_matmul_precision(name)",
    "poisson_nll_loss": "nn.functional.poisson_nll_loss(x, target, reduction='none')",
    "triplet_margin_loss": "nn.functional.triplet_margin_loss(x, positive, negative, reduction='none')",
    "solve": "linalg.solve(a, b)",
    "xpu": "devices()",
}
"""What stands in ``tensorbus`` for a name of ``torch``: calls of the same values by ``torch``'s defaults."""

EXPRESSIONS: Final = {
    "clone": "x.clone()",
    "is_nonzero": "bool(x)",
    "range": "start + step * tensorbus.arange((end - start) // step + 1, dtype=tensorbus.float32)",
    "rsub": "y - x",
    "Size": "tuple",
    "svd": "u, s, vh = tensorbus.linalg.svd(x, full_matrices=False); v = vh.mH",
    "utils": "Python's own loops over data: tensorbus.stack(samples) is a batch; tensorbus.checkpoint",
}
"""What is written for a name of ``torch`` that no function stands for."""

METHODS: Final = {
    "bernoulli_": "x.copy_(tensorbus.bernoulli(p, x.shape, device=x.device))",
    "data": "x.detach(): it is set by x.copy_(y) in tensorbus.no_grad()",
    "detach_": "x = x.detach()",
    "exponential_": "x.copy_(tensorbus.exponential(x.shape, device=x.device))",
    "grad_fn": "x.is_leaf: histories are not shown",
    "is_cpu": "x.device.type == 'cpu'",
    "is_cuda": "x.device.type == 'cuda'",
    "is_sparse": "False: every tensor is dense",
    "random_": "x.copy_(tensorbus.randint(low, high, x.shape, device=x.device))",
    "squeeze_": "x = x.squeeze()",
    "swapaxes_": "x = x.swapaxes(i, j)",
    "t_": "x = x.T",
    "transpose_": "x = x.swapaxes(i, j)",
    "unsqueeze_": "x = x.expand_dims(axis)",
}
"""What stands for a name that only ``torch.Tensor`` has, or that means something else there."""

IN_PLACE: Final = tuple(
    """
    abs acos acosh addbmm addmm addmv addr asin asinh atan atan2 atanh baddbmm bitwise_and bitwise_invert
    bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor ceil clamp_max clamp_min copysign cos cosh
    cumprod cumsum deg2rad digamma equal erf erfc erfinv exp exp2 expm1 floor floor_divide fmod frac greater
    greater_equal heaviside hypot index_add index_copy index_fill index_put lcm gcd less less_equal lgamma
    log log10 log1p log2 logical_and logical_not logical_or logical_xor logit masked_scatter nan_to_num
    negative nextafter not_equal rad2deg reciprocal relu remainder renorm round rsqrt scatter scatter_add
    scatter_reduce sigmoid sign sin sinc sinh sqrt square tan tanh tril triu trunc xlogy
    """.split()
)
"""Methods that have a form with a ``_`` behind the name, which changes the tensor and returns it."""

HOMES: Final = {
    name: home
    for home, names in {
        "amp": "GradScaler",
        "nn": "ModuleDict ParameterDict",
        "nn.functional": """
            adaptive_avg_pool1d alpha_dropout avg_pool1d bilinear celu channel_shuffle feature_alpha_dropout
            group_norm hardshrink max_pool1d max_pool3d pairwise_distance pdist pixel_shuffle
            pixel_unshuffle prelu rms_norm rrelu selu threshold
        """,
        "linalg": "cholesky_solve matrix_exp matrix_rank qr slogdet",
        "random": "default_generator",
        "special": "i0",
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

DISTRIBUTED: Final = {
    "all_gather_single": "distributed.all_gather_into_tensor(output, x)",
    "default_pg_timeout": "distributed.init(timeout=seconds)",
    "destroy_process_group": "distributed.shutdown()",
    "device_mesh": "distributed.init_device_mesh: its names are distributed's own",
    "DistributedDataParallel": "distributed.replicate(module)",
    "fsdp": "distributed.fully_shard: its names are distributed's own",
    "FSDPModule": "distributed.FullyShardedModule",
    "FullyShardedDataParallel": "distributed.fully_shard(module)",
    "get_backend": "distributed.records()[-1].communicator",
    "get_node_local_rank": "distributed.get_local_rank()",
    "group": "distributed.new_group(): it has all ranks, as group=None says everywhere",
    "HashStore": "distributed.MemoryStore()",
    "init_process_group": "distributed.init(): the tensors' device chooses what connects the ranks",
    "is_gloo_available": "distributed.communicators().get('tcp')",
    "is_mpi_available": "distributed.communicators().get('mpi')",
    "is_nccl_available": "distributed.communicators().get('nccl')",
    "reduce_scatter_single": "distributed.reduce_scatter_tensor(part, x)",
    "split_group": "distributed.new_subgroups_by_enumeration(lists_of_ranks)",
    "TCPStore": "distributed.open_store(url)",
}
"""What stands for a name of ``torch.distributed``."""

NUMPY: Final = {
    "astype": "x.to(dtype)",
    "copy": "x.clone()",
    "fill": "x.fill_(value)",
    "itemsize": "x.dtype.itemsize",
}
"""What stands for a name that NumPy's arrays have."""

MISSING: Final = (
    *FUNCTIONS, *EXPRESSIONS, *METHODS, *NUMPY, *HOMES,
)  # fmt: skip
"""What tensors may be asked for in vain."""


def hint(name: str, *, method: bool = False) -> str:
    """Return the sentence that says what a name of PyTorch's is here, to follow an error; empty if none.

    >>> hint("histc")
    "; PyTorch's histc is here tensorbus.histogram(x, bins).hist"
    >>> hint("cats")
    ''
    """
    if method and name in NUMPY:
        return f"; NumPy's {name} is here {NUMPY[name]}"
    equivalent = METHODS.get(name) if method else None
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
    if name == "module":
        return "; PyTorch's DistributedDataParallel.module is here what replicate returns, the module itself"
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


def of_distributed(name: str) -> str:
    """Return the sentence that says what a name of ``torch.distributed`` is here; empty if none.

    >>> of_distributed("destroy_process_group")
    "; PyTorch's destroy_process_group is here tensorbus.distributed.shutdown()"
    """
    equivalent = DISTRIBUTED.get(name)
    return f"; PyTorch's {name} is here tensorbus.{equivalent}" if equivalent else ""
